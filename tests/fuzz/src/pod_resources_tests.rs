//! Answers of a kubelet, arbitrary and broken, in CI; libFuzzer goes deeper.
//!
//! In: what proptest makes up. Out: failures, made small. What can go wrong: nothing.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::{Index, select};
use prost::encoding::message;
use warpgauge::sources::kubelet::answer::{self, Answer};
use warpgauge::sources::kubelet::message::{
    CdiDevice, ClaimResource, ContainerDevices, ContainerResources, DynamicResource, PODS, PodResources,
};
use warpgauge::sources::kubelet::ours::Ours;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(vec!["a", "train-0", "main", "node-7"]).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => (0..400_usize).prop_map(|n| "x".repeat(n)),
    ]
}

fn resource() -> impl Strategy<Value = String> {
    let known =
        vec!["nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "corp/a", "gpu.nvidia.com", ""];
    prop_oneof![6 => select(known).prop_map(str::to_owned), 1 => any::<String>()]
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[0-9]|nvidia[0-9]/gi[0-9]|GPU-[0-9a-f]{8}-0000-0000-0000-[0-9]{12}::[0-9]|MIG-GPU-é",
        1 => any::<String>(),
    ]
}

fn devices() -> impl Strategy<Value = ContainerDevices> {
    (resource(), vec(id(), 0..6))
        .prop_map(|(resource_name, device_ids)| ContainerDevices { resource_name, device_ids })
}

fn claim() -> impl Strategy<Value = DynamicResource> {
    let cdi = vec(id().prop_map(|id| CdiDevice { name: format!("k8s.gpu.nvidia.com/claim={id}") }), 0..3);
    let device =
        (cdi, resource(), name(), name()).prop_map(|(cdi_devices, driver_name, pool_name, device_name)| {
            ClaimResource { cdi_devices, driver_name, pool_name, device_name }
        });
    (name(), name(), vec(device, 0..4)).prop_map(|(claim_name, claim_namespace, claim_resources)| {
        DynamicResource { claim_name, claim_namespace, claim_resources }
    })
}

fn pod() -> impl Strategy<Value = PodResources> {
    let container =
        (name(), vec(devices(), 0..3), vec(claim(), 0..2)).prop_map(|(name, devices, dynamic_resources)| {
            ContainerResources { name, devices, dynamic_resources }
        });
    (name(), name(), vec(container, 0..4)).prop_map(|(name, namespace, containers)| PodResources {
        name,
        namespace,
        containers,
    })
}

fn encode(pods: &[PodResources]) -> Vec<u8> {
    let mut bytes = Vec::new();
    message::encode_repeated(PODS, pods, &mut bytes);
    bytes
}

fn read(bytes: &[u8]) -> Option<Answer> {
    answer::list(Bytes::copy_from_slice(bytes), &Ours::default()).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_answer_is_the_same_in_any_order(pods in vec(pod(), 0..12)) {
        let forward = read(&encode(&pods));
        let backward = read(&encode(&pods.iter().rev().cloned().collect::<Vec<_>>()));
        prop_assert_eq!(forward.as_ref().map(|answer| answer.pods), Some(pods.len() as u64));
        prop_assert_eq!(forward.map(|a| a.devices), backward.map(|a| a.devices));
    }

    #[test]
    fn every_right_id_of_a_right_pod_is_kept(ids in vec("[a-z0-9]{1,20}", 1..40)) {
        let devices = ContainerDevices { resource_name: "nvidia.com/gpu".to_owned(), device_ids: ids.clone() };
        let container =
            ContainerResources { name: "c".to_owned(), devices: vec![devices], dynamic_resources: vec![] };
        let pod = PodResources { name: "p".to_owned(), namespace: "n".to_owned(), containers: vec![container] };
        let answer = read(&encode(&[pod])).unwrap();
        let mut want = ids;
        want.sort();
        want.dedup();
        prop_assert_eq!(&answer.devices.grants[0].device_ids, &want);
    }

    #[test]
    fn a_kubelet_that_lies_is_taken_in_without_harm(pods in vec(pod(), 0..12)) {
        super::pod_resources(&encode(&pods));
    }

    #[test]
    fn a_changed_or_shortened_answer_is_another_one_or_garbage(
        pods in vec(pod(), 1..6), place in any::<Index>(), byte in any::<u8>(), length in any::<Index>(),
    ) {
        let mut bytes = encode(&pods);
        *place.get_mut(&mut bytes) = byte;
        super::pod_resources(&bytes);
        bytes.truncate(length.index(bytes.len() + 1));
        super::pod_resources(&bytes);
    }

    #[test]
    fn any_bytes_are_an_answer_or_garbage(bytes in vec(any::<u8>(), 0..400)) {
        super::pod_resources(&bytes);
        prop_assert!(read(&bytes).is_none_or(|answer| answer.pods <= bytes.len() as u64));
    }
}
