//! Answers as device plugins of all kinds give them → who has what.
//!
//! In: devices and answers, written by hand after reports from the field. Out: the allocations in force, by name.

mod any_answer;

use std::collections::BTreeMap;
use std::time::Duration;

use super::fixtures::{gpu, grant, mig};
use super::*;
use crate::model::signal::{Allocation, DeviceState};
use crate::model::{Gpu, JobGrant};

/// The stage, and what a consumer of its facts believes.
struct Node {
    stage: Allocations,
    telemetry: Telemetry,
    now: MonoNs,
    /// `device namespace/pod` or `device job`, and the shares.
    believed: BTreeMap<String, Vec<u32>>,
    facts: usize,
}

impl Node {
    fn of(devices: &[Gpu]) -> Self {
        let telemetry = Telemetry::default();
        let stage = Allocations::new(&telemetry);
        let mut node = Self { stage, telemetry, now: MonoNs(1), believed: BTreeMap::new(), facts: 0 };
        for device in devices {
            node.push(Signal::Gpu { at: node.now, gpu: device.clone() });
        }
        node.tick(Duration::ZERO);
        node
    }

    fn push(&mut self, signal: Signal) {
        let mut out = Vec::new();
        self.stage.push(&signal, &mut out);
        self.facts += out.len();
        for fact in out {
            let Fact::Reading(Signal::Allocation { allocation, .. }) = fact else { panic!("{fact:?}") };
            let Allocation { hw_id, pod_uid, pod, namespace, job, shares, end, .. } = *allocation;
            assert_eq!(pod_uid, None);
            let whose = job.unwrap_or_else(|| format!("{}/{}", namespace.unwrap(), pod.unwrap()));
            let key = format!("{hw_id} {whose}");
            if end {
                assert_eq!(self.believed.remove(&key), Some(shares), "{key} ends as it was");
            } else {
                assert_ne!(self.believed.insert(key.clone(), shares.clone()), Some(shares), "{key}: no news");
            }
        }
    }

    fn tick(&mut self, by: Duration) {
        self.now = self.now.after(by);
        self.push(Signal::Tick { at: self.now });
    }

    fn pods(&mut self, grants: &[Grant]) {
        let devices = Arc::new(PodDevices { grants: grants.to_vec() });
        self.push(Signal::PodDevices { at: self.now, devices });
    }

    fn jobs(&mut self, grants: Vec<JobGrant>) {
        self.push(Signal::JobDevices { at: self.now, jobs: Arc::new(JobDevices { grants }) });
    }

    fn gone(&mut self, hw_id: &str) {
        let (hw_id, state) = (hw_id.to_owned(), DeviceState::Gone);
        self.push(Signal::GpuState { at: self.now, hw_id, state });
    }

    fn failures(&self, reason: &str) -> u64 {
        let attributes = [("stage", "allocation"), ("reason", reason)];
        self.telemetry.counter("warpgauge.mapping.failures", &attributes).get()
    }

    fn refused(&self) -> u64 {
        self.telemetry.counter("warpgauge.correlate.refused", &[("reason", "allocations")]).get()
    }

    #[track_caller]
    fn check(&self, want: &[(&str, &[u32])]) {
        let got: Vec<_> = self.believed.iter().map(|(key, shares)| (key.as_str(), &shares[..])).collect();
        assert_eq!(got, want);
    }
}

const GPU: &str = "nvidia.com/gpu";

/// Every order of two means the same, and so does every order of the ids.
#[track_caller]
fn check(devices: &[Gpu], grants: &[Grant], want: &[(&str, &[u32])]) {
    let turned = |grant: &Grant| {
        let device_ids = grant.device_ids.iter().rev().cloned().collect();
        Grant { device_ids, ..grant.clone() }
    };
    let backwards: Vec<Grant> = grants.iter().rev().map(turned).collect();
    let mut node = Node::of(devices);
    node.pods(grants);
    node.check(want);
    let facts = node.facts;
    node.pods(&backwards);
    assert_eq!(node.facts, facts, "another order is no news");
    let mut node = Node::of(devices);
    node.pods(&backwards);
    node.check(want);
}

#[test]
fn ids_of_gke_s_plugin_need_no_option() {
    let devices = [
        gpu("GPU-0", 0, Some(0)),
        gpu("GPU-1", 1, Some(1)),
        gpu("GPU-2", 2, Some(2)),
        mig("MIG-7", "GPU-0", (0, 7, 0), None, "1g.5gb"),
        mig("MIG-8", "GPU-0", (1, 8, 0), None, "1g.5gb"),
    ];
    let grants = [
        grant("a/train-0", GPU, &["nvidia0/gi7"]),
        grant("a/train-1", GPU, &["nvidia0/gi8/vgpu1"]),
        grant("b/infer-0", GPU, &["nvidia1/vgpu0"]),
        grant("b/infer-1", GPU, &["nvidia1/vgpu2"]),
        grant("c/whole", GPU, &["nvidia2"]),
    ];
    let want: [(&str, &[u32]); 5] = [
        ("GPU-1 b/infer-0", &[0]),
        ("GPU-1 b/infer-1", &[2]),
        ("GPU-2 c/whole", &[]),
        ("MIG-7 a/train-0", &[]),
        ("MIG-8 a/train-1", &[1]),
    ];
    check(&devices, &grants, &want);
}

fn of_uuids() -> ([Gpu; 6], [Grant; 8]) {
    let id = |n: u32| format!("GPU-aaaaaaaa-0000-0000-0000-00000000000{n}");
    let devices = [
        gpu(&id(1), 0, None),
        gpu(&id(2), 1, None),
        gpu(&id(3), 2, None),
        gpu(&id(6), 3, None),
        mig("MIG-bbbbbbbb-0000-0000-0000-000000000005", &id(3), (0, 11, 0), None, "1g.10gb"),
        mig("MIG-cccccccc-0000-0000-0000-000000000006", &id(3), (1, 12, 0), None, "3g.40gb"),
    ];
    let grants = [
        grant("a/p1", GPU, &["GPU-aaaaaaaa-0000-0000-0000-000000000001"]),
        grant("a/p2", "nvidia.com/gpu.shared", &["GPU-aaaaaaaa-0000-0000-0000-000000000002::0"]),
        grant("a/p3", "nvidia.com/gpu.shared", &["GPU-aaaaaaaa-0000-0000-0000-000000000002::3"]),
        grant("a/p4", "nvidia.com/mig-1g.10gb", &["MIG-bbbbbbbb-0000-0000-0000-000000000004"]),
        grant("a/p5", "nvidia.com/mig-1g.10gb.shared", &["MIG-bbbbbbbb-0000-0000-0000-000000000005::7"]),
        grant("a/p6", "nvidia.com/mig-3g.40gb", &["MIG-GPU-aaaaaaaa-0000-0000-0000-000000000003/12/0"]),
        grant("a/p7", "nvidia.com/a100", &["GPU-aaaaaaaa-0000-0000-0000-000000000006"]),
        grant("a/p8", "amd.com/gpu", &["0000:03:00.0", "0"]),
    ];
    (devices, grants)
}

#[test]
fn ids_by_uuid_map_whatever_the_resource_is_called() {
    let (devices, grants) = of_uuids();
    let want: [(&str, &[u32]); 6] = [
        ("GPU-aaaaaaaa-0000-0000-0000-000000000001 a/p1", &[]),
        ("GPU-aaaaaaaa-0000-0000-0000-000000000002 a/p2", &[0]),
        ("GPU-aaaaaaaa-0000-0000-0000-000000000002 a/p3", &[3]),
        ("GPU-aaaaaaaa-0000-0000-0000-000000000006 a/p7", &[]),
        ("MIG-bbbbbbbb-0000-0000-0000-000000000005 a/p5", &[7]),
        ("MIG-cccccccc-0000-0000-0000-000000000006 a/p6", &[]),
    ];
    check(&devices, &grants, &want);
}

#[test]
fn an_unknown_id_is_looked_up_and_counted_once_a_minute_and_found_when_its_device_comes() {
    let (devices, grants) = of_uuids();
    let mut grants = grants.to_vec();
    let mut node = Node::of(&devices);
    let is_there = |node: &Node| node.believed.keys().any(|key| key.ends_with("a/p4"));
    let mut counted = Vec::new();
    for second in 0..130 {
        node.pods(&grants);
        grants.swap(0, 1); // ever another answer
        node.tick(Duration::from_secs(1));
        if node.failures("unknown_device") > counted.len() as u64 {
            counted.push(second);
        }
    }
    assert_eq!(counted, [9, 69, 129], "p4's; p8 is another vendor's");
    assert_eq!((node.failures("malformed_id"), is_there(&node)), (0, false));
    let late =
        mig("MIG-bbbbbbbb-0000-0000-0000-000000000004", &devices[2].hw_id, (2, 13, 0), None, "1g.10gb");
    node.push(Signal::Gpu { at: node.now, gpu: late.clone() });
    node.tick(Duration::ZERO);
    assert!(is_there(&node), "at the next tick, without another answer");
    node.gone(&late.hw_id);
    node.tick(Duration::ZERO);
    assert!(!is_there(&node));
    node.tick(Duration::from_secs(600));
    assert_eq!(node.failures("unknown_device"), 4);
    grants.retain(|grant| grant.pod != "p4");
    node.pods(&grants);
    node.tick(Duration::from_secs(600));
    assert_eq!(node.failures("unknown_device"), 4, "nobody asks for it any more");
}

#[test]
fn an_answer_before_any_device_is_known_is_no_failure() {
    let (devices, grants) = of_uuids();
    let mut node = Node::of(&[]);
    node.pods(&grants);
    node.tick(Duration::from_secs(3));
    assert_eq!((node.believed.len(), node.facts), (0, 0));
    devices.iter().for_each(|device| node.push(Signal::Gpu { at: node.now, gpu: device.clone() }));
    assert_eq!(node.facts, 0, "devices come many at once");
    node.tick(Duration::ZERO);
    assert_eq!((node.believed.len(), node.facts), (6, 6));
    node.tick(Misses::GRACE);
    assert_eq!(node.failures("unknown_device"), 1, "p4's");
}

#[test]
fn four_pods_share_a_gpu() {
    let pods = ["a/w1", "a/w2", "a/w3", "a/w4"];
    let ids = ["GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-0::3"];
    let grants: Vec<Grant> = pods.iter().zip(ids).map(|(pod, id)| grant(pod, GPU, &[id])).collect();
    let want: [(&str, &[u32]); 4] =
        [("GPU-0 a/w1", &[0]), ("GPU-0 a/w2", &[1]), ("GPU-0 a/w3", &[2]), ("GPU-0 a/w4", &[3])];
    check(&[gpu("GPU-0", 0, Some(0))], &grants, &want);
    let mut node = Node::of(&[gpu("GPU-0", 0, Some(0))]);
    node.pods(&grants);
    node.pods(&grants[1..]);
    assert_eq!(node.facts, 5, "one pod ended; nothing else happened, and the device stays");
    node.check(&want[1..]);
}

#[test]
fn slots_of_mps_are_one_allocation_of_so_many_shares() {
    let id = "GPU-11112222-0000-0000-0000-000000000001";
    let slots: Vec<String> = [5, 19, 20].map(|slot| format!("{id}::{slot}")).into();
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    let grants = [grant("team/a", GPU, &slots), grant("team/b", GPU, &[&format!("{id}::6")])];
    let (a, b) = (format!("{id} team/a"), format!("{id} team/b"));
    check(&[gpu(id, 0, Some(0))], &grants, &[(&a, &[5, 19, 20]), (&b, &[6])]);
}

#[test]
fn a_claim_s_device_has_several_names_and_is_one() {
    let devices = [gpu("GPU-0", 0, Some(0)), mig("MIG-1", "GPU-0", (0, 7, 0), Some(2), "1g.18gb")];
    let claim = |pod: &str, driver: &str, ids: &[&str]| Grant {
        claim: Some("a/claim".to_owned()),
        ..grant(pod, driver, ids)
    };
    let driver = "gpu.nvidia.com";
    let part = "gpu-0-mig-1g18gb-19-2";
    let cdi = "k8s.gpu.nvidia.com/claim=dab5ab50-d59a-42a6-af16-cfd4628c0f7a-gpu-0-mig-1g18gb-19-2";
    let mut node = Node::of(&devices);
    node.pods(&[
        claim("a/part", driver, &[part, cdi]),
        claim("a/old", driver, &["gpu-0", "k8s.gpu.nvidia.com/claim=dab5ab50-d59a-42a6-af16-cfd4628c0f7a"]),
        claim("a/fabric", "compute-domain.nvidia.com", &["channel-0", "0"]),
        claim("a/unknown", driver, &["gpu-9", "k8s.gpu.nvidia.com/device=gpu-9"]),
        claim("a/guest", driver, &["gpu-vfio-0"]),
        grant("a/channel", GPU, &["k8s.device-plugin.nvidia.com/imex-channel=0"]),
    ]);
    node.check(&[("GPU-0 a/old", &[]), ("MIG-1 a/part", &[])]);
    node.tick(Misses::GRACE);
    assert_eq!((node.failures("unknown_device"), node.failures("malformed_id")), (1, 0), "a/unknown's");
    node.pods(&[grant("a/odd", GPU, &["nvidia"])]);
    node.tick(Misses::GRACE);
    assert_eq!((node.failures("unknown_device"), node.failures("malformed_id")), (1, 1));
}

#[test]
fn jobs_and_pods_are_told_apart() {
    let devices = [
        gpu("GPU-0", 0, Some(1)),
        gpu("GPU-1", 1, Some(0)),
        mig("MIG-1", "GPU-1", (0, 3, 0), None, "3g.40gb"),
    ];
    let jobs = |gpu, instance, ids: &[&str]| JobGrant {
        gpu,
        instance,
        jobs: ids.iter().map(|id| (*id).to_owned()).collect(),
    };
    let mut node = Node::of(&devices);
    node.pods(&[grant("a/p", GPU, &["0"])]);
    node.jobs(vec![jobs(0, None, &["4711", "4712"]), jobs(1, Some(3), &["4800"]), jobs(7, None, &["1"])]);
    node.check(&[("GPU-0 4711", &[]), ("GPU-0 4712", &[]), ("GPU-0 a/p", &[]), ("MIG-1 4800", &[])]);
    node.jobs(vec![jobs(0, None, &["4712"])]);
    node.check(&[("GPU-0 4712", &[]), ("GPU-0 a/p", &[])]);
    node.pods(&[]);
    node.check(&[("GPU-0 4712", &[])]);
}

/// 8 GPUs with 7 MIG devices each, and 4 replicas of each of those.
fn big_node() -> (Vec<Gpu>, Vec<String>) {
    let mut devices = Vec::new();
    let mut ids = Vec::new();
    for board in 0..8 {
        let name = format!("GPU-{board}");
        devices.push(gpu(&name, board, Some(board)));
        for place in 0..7 {
            let uuid = format!("MIG-{board}-{place}");
            devices.push(mig(&uuid, &name, (place, 7 + place, 0), Some(place), "1g.10gb"));
            ids.extend((0..4).map(|replica| format!("{uuid}::{replica}")));
        }
    }
    (devices, ids)
}

#[test]
fn eight_gpus_of_seven_instances_of_four_replicas() {
    let (devices, ids) = big_node();
    let grants: Vec<Grant> =
        ids.iter().enumerate().map(|(n, id)| grant(&format!("a/p{n:03}"), GPU, &[id])).collect();
    let mut node = Node::of(&devices);
    node.pods(&grants);
    assert_eq!((grants.len(), node.believed.len(), node.facts), (224, 224, 224));
    assert_eq!(node.believed["MIG-7-6 a/p223"], [3]);
    assert_eq!(node.believed["MIG-0-1 a/p004"], [0]);
    node.gone("MIG-3-2");
    node.tick(Duration::ZERO);
    assert_eq!((node.believed.len(), node.facts), (220, 228), "the four of one instance, and no other");
}

#[test]
fn five_thousand_pods_and_the_same_answer_again_says_nothing() {
    let (devices, ids) = big_node();
    let mut grants: Vec<Grant> =
        (0..5_000).map(|n| grant(&format!("a/p{n:04}"), GPU, &[&ids[n % ids.len()]])).collect();
    let mut node = Node::of(&devices);
    node.pods(&grants);
    assert_eq!((node.believed.len(), node.facts, node.refused()), (5_000, 5_000, 0));
    grants.remove(2_500);
    node.pods(&grants);
    assert_eq!((node.believed.len(), node.facts), (4_999, 5_001), "one pod went");
    let same = Arc::new(PodDevices { grants });
    for _ in 0..100 {
        node.push(Signal::PodDevices { at: node.now, devices: Arc::clone(&same) });
    }
    assert_eq!(node.facts, 5_001);
}

#[test]
fn a_flood_is_bounded_and_what_is_refused_is_counted() {
    let (devices, ids) = big_node();
    let mut node = Node::of(&devices);
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let pods: Vec<Grant> = (0..100).map(|n| grant(&format!("a/p{n:04}"), GPU, &ids)).collect();
    node.pods(&pods);
    assert_eq!((node.believed.len(), node.refused()), (5_600, 0), "56 devices of 100 pods");
    let pods: Vec<Grant> = (0..400).map(|n| grant(&format!("a/p{n:04}"), GPU, &ids)).collect();
    node.pods(&pods);
    let (seen, all) = (Allocations::IDS_MAX as u64, 400 * ids.len() as u64);
    assert_eq!(node.believed.len(), 16_384.min(56 * seen.div_ceil(224) as usize));
    assert!(node.refused() >= all - seen, "{}", node.refused());
    let strange: Vec<String> = (0..10_000).map(|n| format!("GPU-none-{n}")).collect();
    let strange: Vec<&str> = strange.iter().map(String::as_str).collect();
    node.pods(&[grant("a/odd", GPU, &strange)]);
    assert_eq!((node.believed.len(), node.stage.pods.misses.present().count()), (0, Misses::MOST));
    assert_eq!(node.failures("unknown_device"), 10_000 - Misses::MOST as u64, "the surplus at once");
}
