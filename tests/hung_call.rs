//! A real ioctl of a real driver hangs; the real Collector hears of it while it hangs, and when it is over.

use std::time::Instant;

use warpgauge_tests::harness::agent::{Agent, Setup};
use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::received::Record;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::harness::tty::{MAJOR, Tty, VT_WAITACTIVE};
use warpgauge_tests::needs;

#[test]
fn in_a_v1_pids_cgroup() {
    needs!(Root, Tty0, Probes, Collector, CgroupV1);
    check(Version::V1, "v1");
}

#[test]
fn in_a_v2_cgroup() {
    needs!(Root, Tty0, Probes, Collector, CgroupV2);
    check(Version::V2, "v2");
}

/// The agent's probes are attached when it says so.
pub(crate) fn wait_for_probes(agent: &mut Agent, collector: &Collector) {
    wait_for("the probes", 60, || {
        assert!(agent.is_running(), "the agent ended:\n{}", agent.log());
        let attached = |probe| collector.latest("warpgauge.probe.info", &[("probe", probe)]) == Some(1.0);
        ["ioctl", "open", "mmap"].into_iter().all(attached).then_some(())
    });
}

#[track_caller]
fn check(version: Version, forced: &str) {
    let scratch = Scratch::new(&format!("hung-call-{forced}"));
    let collector = Collector::start(scratch.path());
    let mut agent = Setup::new(scratch.path())
        .to(&collector.address)
        .args(&["--probe-majors", &MAJOR.to_string(), "--cgroup", forced, "--kernel-log", "off"])
        .start();
    wait_for_probes(&mut agent, &collector);
    assert_every_program_was_taken(&collector);

    let pod = PodCgroup::new(version, 1);
    let tty = Tty::hold();
    let mut victim = tty.victim();
    pod.admit(&victim);
    let pid = victim.id().to_string();
    let stalls = |state: &str| -> Vec<Record> {
        let of_victim = |r: &Record| r.get("process.pid") == pid && r.get("gpu.stall.state") == state;
        collector.records().into_iter().filter(of_victim).collect()
    };

    let began = Instant::now();
    tty.hang(&mut victim);
    let begin = wait_for("the stall while it lasts", 20, || stalls("begin").into_iter().next());
    assert!(matches!(victim.try_wait(), Ok(None)), "exported while the call still hangs");
    let age: f64 = begin.get("gpu.stall.duration").parse().unwrap();
    assert!((1.0..=3.0).contains(&age), "told within 2 s of its threshold of 1 s, not at {age} s");
    assert_whose(&begin, &pod, victim.id());
    assert_eq!((begin.event.as_str(), begin.severity), ("gpu.stall", 13), "WARN");
    assert_eq!(begin.get("gpu.stall.cause"), "driver_call");
    assert_eq!(begin.get("gpu.stall.confidence"), "high", "{}", begin.get("gpu.stall.evidence"));
    assert_eq!(begin.get("gpu.driver.device"), "4:0");
    assert_eq!(begin.get("gpu.driver.call"), "ioctl");
    assert_eq!(begin.get("gpu.driver.operation"), format!("{VT_WAITACTIVE:#06x}"));
    assert_eq!(begin.resource["service.name"], "warpgauge");

    wait_for("a hang of 2.5 s", 10, || (2.5 <= began.elapsed().as_secs_f64()).then_some(()));
    tty.release();
    assert!(victim.wait().unwrap().success());
    let real = began.elapsed().as_secs_f64();
    let end = wait_for("the end of the stall", 20, || stalls("end").into_iter().next());
    let length: f64 = end.get("gpu.stall.duration").parse().unwrap();
    assert!(
        (0.8 * real..=1.2 * real).contains(&length),
        "closed with {length} s, the call took about {real} s"
    );
    assert_eq!(end.get("gpu.stall.id"), begin.get("gpu.stall.id"), "the same episode");
    let began_at = |r: &Record, seconds: f64| r.time as f64 / 1e9 - seconds;
    assert!((began_at(&end, length) - began_at(&begin, age)).abs() < 0.01, "time less duration is the begin");
    assert_ne!(end.get("log.record.uid"), begin.get("log.record.uid"));
    assert_whose(&end, &pod, victim.id());

    assert_histogram(&collector, &pod, length);
    assert!(agent.terminate().success());
    assert_eq!((stalls("begin").len(), stalls("end").len()), (1, 1), "each told once");
}

/// The kernel's verifier had no objection to any program that is meant for it.
#[track_caller]
fn assert_every_program_was_taken(collector: &Collector) {
    for probe in ["ioctl", "open", "mmap"] {
        let attributes = [("probe", probe), ("tactic", "syscall_tracepoint")];
        assert_eq!(collector.latest("warpgauge.probe.info", &attributes), Some(1.0), "{probe}");
    }
    assert_eq!(collector.latest("warpgauge.probe.refused", &[("reason", "refused_by_kernel")]), None);
}

#[track_caller]
fn assert_whose(record: &Record, pod: &PodCgroup, pid: u32) {
    assert_eq!(record.get("process.pid"), pid.to_string());
    assert_eq!(record.get("thread.id"), pid.to_string(), "a process of one thread");
    assert_eq!(record.get("process.executable.name"), "ioctl-victim");
    assert_eq!(record.get("process.linux.cgroup"), pod.path());
    assert_eq!(record.get("container.id"), pod.container_id);
    assert_eq!(record.get("k8s.pod.uid"), pod.pod_uid);
}

/// One call of `length` seconds lies in exactly one bucket: (2^i, 2^(i+1)] at scale 0.
#[track_caller]
fn assert_histogram(collector: &Collector, pod: &PodCgroup, length: f64) {
    let operation = format!("{VT_WAITACTIVE:#06x}");
    let series = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.operation", operation.as_str())];
    let point = wait_for("the call in the histogram", 20, || {
        let points = collector.points();
        points.into_iter().rfind(|p| p.name == "gpu.driver.call.duration" && p.has(&series) && 0.0 < p.value)
    });
    assert_eq!(point.value, 1.0, "one call");
    assert_eq!(point.unit, "s");
    assert!(
        (point.sum - length).abs() < 1e-6,
        "the sum is exact: {} s, the record says {length} s",
        point.sum
    );
    let bucket = (length.log2().ceil() as i64) - 1;
    assert!(
        2f64.powi(bucket as i32) < length && length <= 2f64.powi(bucket as i32 + 1),
        "{length} in {bucket}"
    );
    assert_eq!(point.buckets, Some((0, [(bucket, 1)].into())), "scale 0, one call in bucket {bucket}");
    assert!(0 < point.start && point.start <= point.time, "a cumulative series has a start");
    assert_eq!(point.attributes["container.id"], pod.container_id);
    assert_eq!(point.attributes["gpu.driver.device"], "4:0");
}
