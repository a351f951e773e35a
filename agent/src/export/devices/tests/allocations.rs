//! Allocations in, the info series and the failures out.
//!
//! In: hand-made allocations and lists of processes. Out: assertions. What can go wrong is what is tested.

use super::*;
use crate::export::devices::budget::ALLOCATIONS_MAX;
use crate::model::signal::{Allocation, AllocationSource};

const NAME: &str = "gpu.allocation.info";

fn of_pod(hw_id: &str, pod: &str, uid: Option<&str>, shares: &[u32], end: bool) -> Allocation {
    Allocation {
        hw_id: hw_id.to_owned(),
        pod_uid: uid.map(str::to_owned),
        pod: Some(pod.to_owned()),
        namespace: Some("team".to_owned()),
        container: Some("main".to_owned()),
        job: None,
        how: AllocationSource::PodResources,
        shares: shares.to_vec(),
        end,
    }
}

fn of_job(hw_id: &str, job: &str) -> Allocation {
    Allocation {
        job: Some(job.to_owned()),
        how: AllocationSource::JobMapping,
        pod: None,
        namespace: None,
        container: None,
        ..of_pod(hw_id, "", None, &[], false)
    }
}

fn give(devices: &mut Devices, allocation: Allocation) {
    push(devices, Signal::Allocation { at: mono(1), allocation: Box::new(allocation) });
}

/// Device, the other attributes' values, and the value.
fn series(devices: &mut Devices, second: u64) -> Vec<(String, Value)> {
    let points = collect(devices, second);
    let of = points.into_iter().filter(|point| point.metric.name == NAME).map(|point| {
        let words: Vec<&str> = point.attributes.iter().map(|(_, value)| value.as_str()).collect();
        (words.join(" "), point.value)
    });
    let mut all: Vec<_> = of.collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

fn said(words: &str, value: Value) -> (String, Value) {
    (words.to_owned(), value)
}

#[test]
fn there_is_one_series_per_device_and_owner_for_as_long_as_it_stands() {
    let (mut devices, telemetry) = devices();
    give(&mut devices, of_pod("GPU-1", "a", None, &[5, 19, 20], false));
    give(&mut devices, of_pod("GPU-1", "b", None, &[6], false));
    give(&mut devices, of_pod("GPU-2", "a", None, &[], false));
    give(&mut devices, of_job("GPU-2", "4711"));
    let a = "GPU-1 team a main pod_resources";
    let named = "GPU-1 team a 0a1b main pod_resources";
    let b = "GPU-1 team b main pod_resources";
    let rest = || {
        [
            said("GPU-2 4711 job_mapping", Value::Count(1)),
            said("GPU-2 team a main pod_resources", Value::Count(1)),
        ]
    };
    let stands = [vec![said(a, Value::Count(3)), said(b, Value::Count(1))], rest().into()].concat();
    assert_eq!(series(&mut devices, 10), stands);
    assert_eq!(series(&mut devices, 20), stands, "it is sent each time");
    give(&mut devices, of_pod("GPU-1", "a", Some("0a1b"), &[5], false));
    give(&mut devices, of_pod("GPU-1", "b", None, &[6], true));
    let ended = [said(named, Value::Count(1)), said(a, Value::End), said(b, Value::End)];
    assert_eq!(series(&mut devices, 30), [&ended[..], &rest()].concat());
    give(&mut devices, of_pod("GPU-1", "a", None, &[], true));
    assert_eq!(
        series(&mut devices, 40),
        [&[said(named, Value::End)][..], &rest()].concat(),
        "whatever its uid"
    );
    assert_eq!(telemetry.gauge("warpgauge.series", &[("metric", NAME)]).get(), 2);
    let names =
        ["hw.id", "k8s.namespace.name", "k8s.pod.name", "k8s.container.name", "gpu.allocation.source"];
    let points = collect(&mut devices, 50);
    let of_a = points.iter().find(|point| point.metric.name == NAME).unwrap();
    assert_eq!(of_a.attributes.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
}

#[test]
fn device_series_name_no_pod_and_no_job() {
    let (mut devices, _) = devices();
    give(&mut devices, of_pod("GPU-1", "a", Some("0a1b"), &[], false));
    give(&mut devices, of_job("GPU-1", "4711"));
    sample(&mut devices, 3, 150, int(60));
    push(&mut devices, gpu("GPU-1", GpuDetails::default()));
    let owned = collect(&mut devices, 10).into_iter().filter(|point| {
        point.attributes.iter().any(|(name, _)| name.starts_with("k8s.") || name.starts_with("slurm."))
    });
    assert_eq!(owned.map(|point| point.metric.name).collect::<Vec<_>>(), [NAME; 2]);
}

#[test]
fn every_pod_of_five_thousand_and_every_replica_of_a_node_has_its_series() {
    let (mut devices, telemetry) = devices();
    for pod in 0..5_000 {
        give(&mut devices, of_pod("GPU-1", &format!("pod-{pod}"), None, &[], false));
    }
    let replicas = (0..8).flat_map(|gpu| (0..7).map(move |mig| format!("MIG-{gpu}-{mig}")));
    for hw_id in replicas {
        (0..4).for_each(|n| give(&mut devices, of_pod(&hw_id, &format!("replica-{n}"), None, &[n], false)));
    }
    assert_eq!(series(&mut devices, 10).len(), 5_000 + 8 * 7 * 4);
    assert!(telemetry.read().iter().all(|(name, ..)| *name != "warpgauge.series.refused"));
    (0..5_000).for_each(|pod| give(&mut devices, of_pod("GPU-1", &format!("pod-{pod}"), None, &[], true)));
    let ended = series(&mut devices, 20).into_iter().filter(|(_, value)| *value == Value::End).count();
    assert_eq!((ended, series(&mut devices, 30).len()), (5_000, 224));
}

#[test]
fn more_allocations_than_their_room_are_counted_and_get_what_others_leave() {
    let (mut devices, telemetry) = devices();
    let all = ALLOCATIONS_MAX + 20;
    let each = |devices: &mut Devices, uid: Option<&str>| {
        (0..all).for_each(|n| give(devices, of_pod("GPU-1", &format!("p{n}"), uid, &[], false)));
    };
    each(&mut devices, None);
    each(&mut devices, Some("u"));
    assert_eq!(series(&mut devices, 10).len(), ALLOCATIONS_MAX);
    let refused = telemetry.counter("warpgauge.series.refused", &[("metric", NAME), ("reason", "limit")]);
    assert_eq!(refused.get(), 40);
    give(&mut devices, of_pod("GPU-1", "p0", None, &[], true));
    give(&mut devices, of_pod("GPU-1", &format!("p{}", all - 1), None, &[], false));
    let late =
        series(&mut devices, 20).into_iter().filter(|(words, _)| words.contains(&format!("p{} ", all - 1)));
    assert_eq!((late.count(), refused.get()), (1, 40));
}

/// A process of a pod, by uid and name.
fn process(pid: u32, uid: Option<&str>, pod: Option<&str>) -> (Pid, Known<Process>) {
    let workload = Workload {
        pod_uid: uid.map(str::to_owned),
        namespace: pod.map(|_| "team".to_owned()),
        pod: pod.map(str::to_owned),
        ..Workload::default()
    };
    (Pid(pid), Known::Is(Process { workload, ..Process::default() }))
}

fn listed(devices: &mut Devices, second: u64, hw_id: &str, whose: &[(Pid, Known<Process>)]) {
    let processes = whose.iter().map(|(pid, _)| GpuProcess {
        pid: *pid,
        memory: None,
        sm_utilization: None,
        context: GpuContext::Compute,
    });
    let list = GpuProcesses { hw_id: hw_id.into(), processes: processes.collect() };
    let at = mono(second);
    let item = Fact::Reading(Signal::Processes { at, processes: Box::new(list) });
    devices.push(&Attributed { item, processes: whose.to_vec() });
}

/// What the processes of these pods on `hw_id` are counted as, after being there for some seconds.
#[track_caller]
fn check(given: &[Allocation], hw_id: &str, seconds: u64, whose: &[(Pid, Known<Process>)], want: (u64, u64)) {
    let (mut devices, telemetry) = devices();
    let mut mig = gpu("MIG-1", GpuDetails::default());
    if let Signal::Gpu { gpu, .. } = &mut mig {
        gpu.parent = Some("GPU-1".to_owned());
    }
    push(&mut devices, mig);
    given.iter().for_each(|allocation| give(&mut devices, allocation.clone()));
    (0..=seconds).for_each(|second| listed(&mut devices, second, hw_id, whose));
    let count = |reason| {
        let attributes = [("stage", "allocation"), ("reason", reason)];
        telemetry.counter("warpgauge.mapping.failures", &attributes).get()
    };
    assert_eq!((count("mismatch"), count("no_allocation")), want, "{given:?} {whose:?}");
}

#[test]
fn a_process_on_a_device_that_its_pod_was_not_given_is_counted_once() {
    let given = [
        of_pod("GPU-1", "a", Some("0a1b"), &[5, 19, 20], false),
        of_pod("GPU-1", "b", Some("3c4d"), &[6], false),
        of_job("GPU-2", "4711"),
    ];
    let (a, b) = (process(501, Some("0a1b"), Some("a")), process(601, Some("3c4d"), Some("b")));
    let other = process(700, Some("ffff"), Some("c"));
    check(&given, "GPU-1", 90, &[a.clone(), process(502, Some("0a1b"), Some("a"))], (0, 0));
    check(&given, "GPU-2", 90, &[b.clone(), process(602, Some("3c4d"), Some("b"))], (1, 0));
    check(&given, "GPU-2", 30, std::slice::from_ref(&b), (0, 0)); // the kubelet may not have said it yet
    check(&given, "MIG-1", 90, std::slice::from_ref(&a), (0, 0)); // its GPU is the pod's
    check(&given, "GPU-1", 90, std::slice::from_ref(&other), (0, 1));
    check(&given[2..], "GPU-2", 90, &[other, b.clone()], (0, 0)); // nobody tells of pods
    check(&given, "GPU-2", 90, &[process(1, None, None), (Pid(2), Known::Gone)], (0, 0));
    // by name where a uid is not known; the same name with another uid is another pod
    let named = [of_pod("GPU-1", "b", None, &[], false)];
    check(&named, "GPU-2", 90, std::slice::from_ref(&b), (1, 0));
    check(&named, "GPU-2", 90, &[process(1, Some("3c4d"), None)], (0, 0));
    check(&given, "GPU-1", 90, &[process(1, Some("9999"), Some("b"))], (0, 1));
}

#[test]
fn a_mismatch_that_comes_anew_counts_anew() {
    let (mut devices, telemetry) = devices();
    give(&mut devices, of_pod("GPU-1", "b", Some("3c4d"), &[], false));
    let whose = [process(601, Some("3c4d"), Some("b"))];
    (0..40).for_each(|second| listed(&mut devices, second, "GPU-2", &whose));
    listed(&mut devices, 40, "GPU-2", &[]);
    (41..90).for_each(|second| listed(&mut devices, second, "GPU-2", &whose));
    let attributes = [("stage", "allocation"), ("reason", "mismatch")];
    assert_eq!(telemetry.counter("warpgauge.mapping.failures", &attributes).get(), 2);
}

#[test]
fn a_pod_whose_name_is_learned_meanwhile_counts_once() {
    let (mut devices, telemetry) = devices();
    give(&mut devices, of_pod("GPU-1", "b", Some("3c4d"), &[], false));
    for (seconds, pod) in [(0..40, None), (40..90, Some("b"))] {
        seconds.for_each(|second| listed(&mut devices, second, "GPU-2", &[process(601, Some("3c4d"), pod)]));
    }
    let attributes = [("stage", "allocation"), ("reason", "mismatch")];
    assert_eq!(telemetry.counter("warpgauge.mapping.failures", &attributes).get(), 1);
}
