//! Faults of the vendor's libraries at a running agent: what hangs, crashes or grows is told, and the rest goes on.
//!
//! Each test has a node of its own whose faults begin while values flow. The receiver is the built-in one.

use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::live::{Live, QUICK, TWO, wall_ns};
use warpgauge_tests::harness::tty::MAJOR;
use warpgauge_tests::needs;

use crate::driver_calls::Caller;
use crate::kernel_log::Lines;

const TEMPERATURE: &str = "DCGM_FI_DEV_GPU_TEMP_CELSIUS";

#[test]
fn a_call_of_dcgm_that_hangs_is_slow_and_not_down() {
    let mut live = Live::flowing("fault-hang-dcgm", TWO, QUICK);
    let before = live.energy(0, 5, 0.0);
    let worker = live.worker();
    let hung = wall_ns();
    live.node.now("hang:\n- {call: dcgmGetLatestValues_v2}\n");
    let slow = live.wait_source("dcgm", "slow", 7);
    assert_eq!(
        (slow.get("gpu.vendor.call"), slow.get("gpu.status.phase"), slow.severity_text.as_str()),
        ("dcgmGetLatestValues_v2", "begin", "WARN")
    );
    assert_told_in_time(slow.get("gpu.status.duration"));
    // The call began up to a second (the interval) and a look of the simulator after the file was written.
    assert!(slow.time < hung + 5_200_000_000, "{}", slow.time - hung);
    live.wait_own("warpgauge.source.up", &[("source", "dcgm")], 0.0, 2);
    live.wait_own("warpgauge.source.lack", &[("source", "dcgm"), ("reason", "slow")], 1.0, 2);
    live.wait_absent(0, TEMPERATURE, "source_down", 2);
    // NVML and exports go on meanwhile.
    assert_eq!(live.feed.value("warpgauge.source.up", &[("source", "nvml")]), Some(1.0));
    live.wait_own("warpgauge.source.up", &[("source", "worker")], 1.0, 2);
    let told = wall_ns();
    wait_for("another export", 2, || live.feed.points().last().filter(|point| point.time > told).map(drop));
    live.node.now("");
    let up = live.wait_source("dcgm", "up", 3);
    assert_eq!(up.get("gpu.status.id"), slow.get("gpu.status.id"));
    let after = live.energy(0, 3, before.value + 3.0);
    assert_eq!(after.start, before.start, "the counter goes on");
    assert_eq!(live.worker(), worker, "nothing was killed");
    live.wait_own("warpgauge.source.up", &[("source", "dcgm")], 1.0, 2);
    assert!(live.terminate());
}

/// The record leaves 4 s after the call began at the latest, and no call counts as slow before 3 s.
#[track_caller]
fn assert_told_in_time(age: &str) {
    let age: f64 = age.parse().unwrap();
    assert!((3.0..4.0).contains(&age), "told {age} s after the call began");
}

#[test]
fn a_call_of_nvml_that_hangs_names_its_gpu() {
    let mut live = Live::flowing("fault-hang-nvml", TWO, QUICK);
    live.node.now("hang:\n- {call: nvmlDeviceGetComputeRunningProcesses_v3, gpu: 1}\n");
    let slow = live.wait_source("nvml", "slow", 7);
    let called = (slow.get("hw.id"), slow.get("gpu.vendor.call"));
    assert_eq!(called, (&*Live::gpu(1), "nvmlDeviceGetComputeRunningProcesses_v3"));
    assert_told_in_time(slow.get("gpu.status.duration"));
    // DCGM's values go on meanwhile, those of that GPU too.
    let now = live.energy(1, 3, 0.0);
    live.energy(1, 4, now.value + 1.5);
    assert_eq!(live.feed.statuses(("gpu.status.source", "dcgm"), "slow"), []);
    live.node.now("");
    live.wait_source("nvml", "up", 3);
    assert!(live.terminate());
}

#[test]
fn driver_calls_are_counted_while_the_worker_hangs() {
    needs!(Root, Tty0, Probes);
    let probes = ["--probes", "on", "--probe-majors", &MAJOR.to_string()];
    let mut live = Live::start("fault-hang-probes", TWO, QUICK, |setup| setup.args(&probes));
    live.energy(0, 20, 0.0);
    live.wait_own("warpgauge.probe.info", &[("probe", "ioctl")], 1.0, 60);
    live.wait_own("warpgauge.source.up", &[("source", "probes")], 1.0, 30);
    live.node.now("hang:\n- {call: \"*\"}\n");
    for source in ["dcgm", "nvml"] {
        live.wait_source(source, "slow", 7);
    }
    let count = |live: &mut Live| -> f64 {
        let of = [("gpu.driver.call", "ioctl"), ("gpu.driver.device", "4:0")];
        live.feed.latest("gpu.driver.call.duration", &of).iter().map(|point| point.value).sum()
    };
    let before = count(&mut live);
    let mut caller = Caller::alone();
    assert_eq!(caller.call("open /dev/tty0"), "done\n");
    for command in 0xde00..0xde10 {
        caller.call(&format!("ioctl {command}"));
    }
    wait_for("the calls", 10, || (count(&mut live) >= before + 16.0).then_some(()));
    assert_eq!(live.feed.value("warpgauge.source.up", &[("source", "probes")]), Some(1.0));
    live.node.now("");
    live.wait_source("dcgm", "up", 3);
    assert!(live.terminate());
}

#[test]
fn xids_of_the_kernel_log_arrive_while_the_worker_hangs() {
    needs!(Root, KmsgWrite);
    let log = ["--kernel-log", "on", "--kernel-log-facilities", "kernel,user"];
    let mut live = Live::start("fault-hang-log", TWO, QUICK, |setup| setup.args(&log));
    let before = live.energy(0, 15, 0.0);
    live.node.now("hang:\n- {call: \"*\"}\n");
    for source in ["dcgm", "nvml"] {
        let slow = live.wait_source(source, "slow", 7);
        assert_told_in_time(slow.get("gpu.status.duration"));
    }
    let mut lines = Lines::new("while-it-hangs");
    lines.write(1);
    let seen = wait_for("the XID", 5, || lines.found(live.feed.records()).pop());
    assert_eq!((seen.event.as_str(), seen.get("gpu.xid.code")), ("gpu.xid", "31"));
    live.node.now("");
    live.wait_source("nvml", "up", 3);
    assert_eq!(live.energy(0, 4, before.value + 3.0).start, before.start);
    assert!(live.terminate());
}

#[test]
fn a_call_that_crashes_costs_seconds_and_no_start_time() {
    let mut live = Live::flowing("fault-crash", TWO, QUICK);
    let before = live.energy(0, 5, 0.0);
    let worker = live.worker();
    live.node.now("crash:\n- {call: dcgmHealthCheck}\n");
    wait_for("the crash", 5, || (live.worker() != worker).then_some(()));
    live.node.now("");
    let crashed = wall_ns();
    let down = live.wait_source("dcgm", "down", 3);
    assert_eq!((down.get("gpu.status.reason"), &*down.severity_text), ("down", "ERROR"));
    let after = wait_for("values after it", 6, || {
        let points = live.feed.latest("hw.energy", &[("hw.id", &Live::gpu(0))]);
        points.into_iter().find(|point| point.time > crashed && point.value > before.value)
    });
    assert_eq!(after.start, before.start, "the counter goes on");
    assert!(after.time < crashed + 5_000_000_000, "{}", after.time - crashed);
    live.wait_source("dcgm", "up", 3);
    let crashes = live.feed.value("warpgauge.worker.restarts", &[("reason", "crashed")]);
    assert!(crashes >= Some(1.0), "{crashes:?}");
    assert!(live.worker().is_some_and(|pid| Some(pid) != worker));
    assert!(live.terminate());
}

#[test]
fn a_crash_loop_is_slowed_down_and_the_agent_lives() {
    let scenario = format!("{TWO}faults:\n- crash: {{call: dcgmInit}}\n");
    let mut live = Live::start("fault-crash-loop", &scenario, QUICK, |setup| setup);
    live.wait_own("warpgauge.source.lack", &[("source", "dcgm"), ("reason", "crash_loop")], 1.0, 10);
    // At once, then after 1 s, then after 2 s: the fourth crash is 3 s after the first, the fifth 7 s.
    live.wait_own("warpgauge.worker.restarts", &[("reason", "crashed")], 4.0, 10);
    let began = wall_ns();
    live.wait_own("warpgauge.worker.restarts", &[("reason", "crashed")], 5.0, 8);
    assert!(wall_ns() - began > 3_000_000_000, "{}", wall_ns() - began);
    live.wait_own("warpgauge.source.up", &[("source", "worker")], 0.0, 2);
    assert!(live.agent.as_mut().is_some_and(|agent| agent.is_running()));
    assert!(live.terminate());
}

#[test]
fn a_worker_that_grows_is_exchanged_and_nobody_is_alarmed() {
    let scenario =
        format!("{TWO}faults:\n- leak: {{call: dcgmGetLatestValues_v2, mib: 64, from: 8, until: 8.4}}\n");
    let worker = format!("memory_limit: 64MiB\n{QUICK}");
    let mut live = Live::flowing("fault-leak", &scenario, &worker);
    let (before, worker) = (live.energy(0, 5, 0.0), live.worker());
    let exchanged = |live: &mut Live| live.feed.value("warpgauge.worker.restarts", &[("reason", "memory")]);
    wait_for("an exchange", 25, || exchanged(&mut live).filter(|n| *n >= 1.0));
    let now = wall_ns();
    let after = wait_for("values after it", 5, || {
        let points = live.feed.latest("hw.energy", &[("hw.id", &Live::gpu(0))]);
        points.into_iter().find(|point| point.time > now && point.value > before.value)
    });
    assert_eq!(after.start, before.start, "the counter goes on");
    assert!(live.worker() != worker);
    let records = live.feed.records().iter();
    let alarms: Vec<_> = records.filter(|r| r.event == "gpu.status").map(|r| r.body.clone()).collect();
    assert_eq!(alarms, [] as [&str; 0], "it was as planned");
    assert!(live.terminate());
}
