//! Answers of every shape: device plugins' ids, claims, sidecars, thousands of pods, and what no kubelet would send.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::answer::{Answer, LeftOut, allocatable, list};
use super::message::{
    CdiDevice, ClaimResource, ContainerDevices, ContainerResources, DynamicResource, PodResources,
};
use super::ours::Ours;

fn devices(resource: &str, ids: &[&str]) -> ContainerDevices {
    let device_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    ContainerDevices { resource_name: resource.to_owned(), device_ids }
}

fn pod(name: &str, containers: Vec<(&str, Vec<ContainerDevices>)>) -> PodResources {
    let container = |(name, devices): (&str, _)| ContainerResources {
        name: name.to_owned(),
        devices,
        ..ContainerResources::default()
    };
    PodResources {
        name: name.to_owned(),
        namespace: "a".to_owned(),
        containers: containers.into_iter().map(container).collect(),
    }
}

fn encode(pods: &[PodResources]) -> Bytes {
    let mut bytes = Vec::new();
    for pod in pods {
        part(&pod.encode_to_vec(), &mut bytes);
    }
    bytes.into()
}

fn part(message: &[u8], bytes: &mut Vec<u8>) {
    encode_key(1, WireType::LengthDelimited, bytes);
    encode_varint(message.len() as u64, bytes);
    bytes.extend(message);
}

fn read(pods: &[PodResources]) -> Answer {
    list(encode(pods), &Ours::default()).unwrap()
}

/// `pod/container resource ids claim` of every grant.
fn lines(answer: &Answer) -> Vec<String> {
    let line = |grant: &crate::model::Grant| {
        let claim = grant.claim.as_deref().map(|claim| format!(" {claim}")).unwrap_or_default();
        let ids = grant.device_ids.join(",");
        format!("{}/{} {} {ids}{claim}", grant.pod, grant.container, grant.resource)
    };
    answer.devices.grants.iter().map(line).collect()
}

#[test]
fn a_grant_for_each_resource_of_a_container_in_whatever_order_they_come() {
    let mut pods = [
        pod("train-1", vec![("main", vec![devices("nvidia.com/gpu", &["nvidia0/gi8/vgpu1"])])]),
        pod("train-0", vec![("main", vec![devices("nvidia.com/gpu", &["nvidia1", "nvidia0"])])]),
        pod("cpu-only", vec![("main", vec![])]),
        pod("radeon", vec![("main", vec![devices("amd.com/gpu", &["0000:03:00.0"])])]),
        pod(
            "proxied",
            vec![
                ("main", vec![devices("nvidia.com/gpu", &["nvidia2"]), devices("rdma/hca", &["0"])]),
                ("sidecar", vec![devices("nvidia.com/gpu", &["nvidia3"])]),
            ],
        ),
    ];
    let answer = read(&pods);
    let want = [
        "proxied/main nvidia.com/gpu nvidia2",
        "proxied/sidecar nvidia.com/gpu nvidia3",
        "train-0/main nvidia.com/gpu nvidia0,nvidia1",
        "train-1/main nvidia.com/gpu nvidia0/gi8/vgpu1",
    ];
    assert_eq!(lines(&answer), want);
    assert_eq!((answer.pods, answer.ids(), answer.left_out), (5, 5, LeftOut::default()));
    assert_eq!(answer.others.iter().map(String::as_str).collect::<Vec<_>>(), ["amd.com/gpu", "rdma/hca"]);
    pods.reverse();
    assert_eq!(read(&pods), answer);
}

#[test]
fn a_claim_gives_the_drivers_names_or_where_there_are_none_those_of_the_runtime() {
    let claim = |driver: &str, device: &str, cdi: &[&str]| ClaimResource {
        cdi_devices: cdi.iter().map(|name| CdiDevice { name: (*name).to_owned() }).collect(),
        driver_name: driver.to_owned(),
        pool_name: "node-7".to_owned(),
        device_name: device.to_owned(),
    };
    let mut with_claim = pod("dra", vec![("main", vec![])]);
    with_claim.containers[0].dynamic_resources = vec![
        DynamicResource {
            claim_name: "two".to_owned(),
            claim_namespace: "a".to_owned(),
            claim_resources: vec![
                claim("gpu.nvidia.com", "gpu-1", &["k8s.gpu.nvidia.com/claim=77-gpu-1"]),
                claim("compute-domain.nvidia.com", "channel-0", &[]),
                claim(
                    "gpu.nvidia.com",
                    "gpu-0-mig-19-2-2",
                    &["k8s.gpu.nvidia.com/claim=77-gpu-0-mig-19-2-2"],
                ),
                claim("gpu.intel.com", "card0", &[]),
            ],
        },
        DynamicResource {
            claim_name: "old".to_owned(),
            claim_namespace: "a".to_owned(),
            claim_resources: vec![claim("", "", &["k8s.gpu.nvidia.com/device=gpu-2", "nvidia.com/gpu=0"])],
        },
    ];
    let answer = read(&[with_claim]);
    let want = [
        "dra/main gpu.nvidia.com gpu-0-mig-19-2-2,gpu-1 a/two",
        "dra/main k8s.gpu.nvidia.com k8s.gpu.nvidia.com/device=gpu-2,nvidia.com/gpu=0 a/old",
    ];
    assert_eq!(lines(&answer), want);
    let others: Vec<_> = answer.others.iter().map(String::as_str).collect();
    assert_eq!(others, ["compute-domain.nvidia.com", "gpu.intel.com"]);
}

#[test]
fn five_thousand_pods_fit() {
    let pods: Vec<_> = (0..5_000)
        .map(|n| {
            pod(&format!("pod-{n}"), vec![("main", vec![devices("nvidia.com/gpu.shared", &["GPU-x::1"])])])
        })
        .collect();
    let bytes = encode(&pods);
    assert!(bytes.len() < super::answer::ANSWER_MAX / 16, "{} bytes", bytes.len());
    let answer = list(bytes, &Ours::default()).unwrap();
    assert_eq!(
        (answer.pods, answer.devices.grants.len(), answer.left_out),
        (5_000, 5_000, LeftOut::default())
    );
}

#[test]
fn what_no_kubelet_sends_is_left_out_and_takes_nothing_else_with_it() {
    let gpu = |id: &str| vec![devices("nvidia.com/gpu", &[id])];
    let long = "x".repeat(400);
    let many: Vec<String> = (0..200).map(|n| format!("{n:0>400}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    // 80 kB each: below the limit of one pod, above that of all.
    let flood: Vec<_> = (0..60)
        .map(|n| pod(&format!("z-{n}"), vec![("main", vec![devices("nvidia.com/gpu", &many)])]))
        .collect();
    for (odd, left_out) in [
        (vec![pod(&long, vec![("main", gpu("0"))])], LeftOut { bad_name: 1, ..LeftOut::default() }),
        (vec![pod("", vec![("main", gpu("0"))])], LeftOut { bad_name: 1, ..LeftOut::default() }),
        (vec![pod("b", vec![("a\nb", gpu("0"))])], LeftOut { bad_name: 1, ..LeftOut::default() }),
        (vec![pod("b", vec![("main", gpu("a\u{202e}b"))])], LeftOut { bad_name: 1, ..LeftOut::default() }),
        (
            vec![pod("b", vec![("main", gpu(&"1".repeat(513)))])],
            LeftOut { bad_name: 1, ..LeftOut::default() },
        ),
        (vec![pod(&"b".repeat(300_000), vec![])], LeftOut { too_long: 1, ..LeftOut::default() }),
        (flood, LeftOut { too_many: 1_600, ..LeftOut::default() }),
    ] {
        let number = odd.len() as u64 + 1;
        let mut pods = vec![pod("good", vec![("main", gpu("7"))])];
        pods.extend(odd);
        let answer = read(&pods);
        assert_eq!(lines(&answer)[0], "good/main nvidia.com/gpu 7");
        assert_eq!((answer.pods, answer.left_out), (number, left_out));
    }
}

#[test]
fn what_is_not_the_message_is_garbage_and_what_is_new_in_it_is_passed_over() {
    let good = encode(&[pod("good", vec![("main", vec![devices("nvidia.com/gpu", &["7"])])])]);
    let mut newer = good.to_vec();
    encode_key(9, WireType::Varint, &mut newer);
    encode_varint(3, &mut newer);
    assert_eq!(list(newer.into(), &Ours::default()), list(good.clone(), &Ours::default()));
    let mut not_utf8 = Vec::new();
    part(&[0x0a, 2, 0xff, 0xfe], &mut not_utf8);
    for bad in [
        good.slice(..good.len() - 1).to_vec(),
        b"HTTP/1.1 200 OK\r\n".to_vec(),
        vec![0x08, 1],       // pods as a number
        vec![0x0a, 0xff],    // a length that does not end
        vec![0x0a, 5, 0x0a], // shorter than it says
        vec![0],             // field 0
        not_utf8,
    ] {
        let said = list(bad.clone().into(), &Ours::default()).unwrap_err().to_string();
        assert!(said.starts_with("the kubelet's answer cannot be read: "), "{bad:?}: {said}");
        assert!(allocatable(bad.into(), &Ours::default()).is_err());
    }
    assert_eq!(list(Bytes::new(), &Ours::default()), Ok(Answer::default()), "no pods");
}

#[test]
fn what_could_be_given_is_counted() {
    let mut bytes = Vec::new();
    for part_of in
        [devices("nvidia.com/gpu", &["0", "1"]), devices("amd.com/gpu", &["2"]), devices("x/y", &[])]
    {
        part(&part_of.encode_to_vec(), &mut bytes);
    }
    let all = allocatable(bytes.into(), &Ours::new(vec!["x/*".to_owned()])).unwrap();
    let resources: Vec<_> = all.resources.iter().map(String::as_str).collect();
    assert_eq!((all.ids, resources), (2, vec!["nvidia.com/gpu", "x/y"]));
}
