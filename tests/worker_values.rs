//! Values that are not there, devices that go and come, fields that spoil one another: each absence has its reason,
//! and no other value suffers.

use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::live::{Live, QUICK, TWO, wall_ns};

const TEMPERATURE: &str = "DCGM_FI_DEV_GPU_TEMP_CELSIUS";
const GR: &str = "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO";

#[test]
fn a_blank_with_status_0_is_absent_and_not_0() {
    let mut live = Live::flowing("values-blank", TWO, QUICK);
    live.wait_point("hw.temperature", 0, 5, |point| point.value == 45.0);
    live.node.now("fields: {0: {150: {absent: blank}}}\n");
    live.wait_absent(0, TEMPERATURE, "blank", 5);
    assert_eq!(live.feed.latest("hw.temperature", &[("hw.id", &Live::gpu(0))]), []);
    live.wait_point("hw.temperature", 1, 1, |point| point.value == 45.0);
    live.node.now("");
    live.wait_point("hw.temperature", 0, 5, |point| point.value == 45.0);
    let temperatures = live.feed.points().iter().filter(|p| p.name == "hw.temperature" && !p.value.is_nan());
    assert_eq!(temperatures.filter(|point| point.value != 45.0).count(), 0);
    assert!(live.terminate());
}

#[test]
fn a_lost_gpu_is_told_and_comes_back_with_its_series() {
    let mut live = Live::flowing("values-lost", TWO, QUICK);
    let before = live.energy(1, 5, 0.0);
    let gpu = Live::gpu(1);
    let status = |live: &mut Live, state: &str| {
        live.feed.value("hw.status", &[("hw.id", &gpu), ("hw.type", "gpu"), ("hw.state", state)])
    };
    live.node.now("lost: [1]\n");
    let lost = live.wait_status(("hw.id", &gpu), "lost", 6);
    assert_eq!((&*lost.severity_text, lost.get("gpu.status.source")), ("ERROR", ""));
    live.wait_absent(1, TEMPERATURE, "device_lost", 3);
    wait_for("hw.status", 2, || (status(&mut live, "failed") == Some(1.0)).then_some(()));
    // The other one goes on.
    let other = live.energy(0, 2, 0.0);
    live.energy(0, 4, other.value + 1.5);
    live.node.now("");
    let back = live.wait_status(("hw.id", &gpu), "up", 45);
    assert_eq!(back.get("gpu.status.id"), lost.get("gpu.status.id"));
    let after = live.energy(1, 6, before.value + 2.0);
    assert_eq!(after.start, before.start, "the counter goes on");
    wait_for("hw.status", 2, || (status(&mut live, "ok") == Some(1.0)).then_some(()));
    assert_eq!(live.feed.statuses(("gpu.status.source", "dcgm"), "down"), []);
    assert!(live.terminate());
}

#[test]
fn a_value_that_is_taken_no_more_is_stale_after_three_intervals() {
    let scenario = format!("{TWO}faults:\n- stale: {{gpu: 0, fields: [150], from: 6}}\n");
    let began = wall_ns();
    let mut live = Live::flowing("values-stale", &scenario, QUICK);
    let stale = live.wait_absent(0, TEMPERATURE, "stale", 15);
    let age = (stale.time - began) as f64 / 1e9;
    assert!((8.0..10.7).contains(&age), "{age} s after the begin, of which 6 s were well");
    live.energy(0, 1, 0.0);
    live.wait_point("hw.temperature", 1, 1, |point| point.value == 45.0);
    assert!(live.terminate());
}

#[test]
fn a_field_that_is_refused_takes_no_other_with_it() {
    let scenario = "version: 1\ngpus:\n- fields: {1003: {watch: -38}}\n- {}\n";
    let worker = "groups:\n- {name: profiling, interval: 1s, fields: [1001, 1002, 1003]}";
    let mut live = Live::start("values-refused", scenario, worker, |setup| setup);
    live.wait_absent(0, "DCGM_FI_PROF_SM_OCCUPANCY_RATIO", "conflict", 20);
    for (gpu, metric) in [
        (0, "gpu.dcgm.utilization"),
        (0, "gpu.dcgm.sm.utilization"),
        (1, "gpu.dcgm.utilization"),
        (1, "gpu.dcgm.sm.occupancy"),
    ] {
        live.wait_point(metric, gpu, 10, |_| true);
    }
    assert!(live.terminate());
}

#[test]
fn fields_that_spoil_one_another_are_all_read_in_the_end() {
    let fields: Vec<u16> = [310].into_iter().chain(1200..=1211).collect();
    let curves: String =
        fields.iter().map(|id| format!("    {id}: {{curve: {{counter: {{per_s: 10}}}}}}\n")).collect();
    let spoil = format!("faults:\n- spoil: {{a: [310], b: {:?}}}\n", &fields[1..]);
    let scenario =
        format!("version: 1\ngpus:\n- count: 2\n  nvlinks: {{count: 2}}\n  fields:\n{curves}{spoil}");
    let worker = format!("groups:\n- {{name: together, interval: 1s, fields: {fields:?}}}");
    let mut live = Live::start("values-spoil", &scenario, &worker, |setup| setup);
    for gpu in 0..2 {
        live.wait_point("hw.errors", gpu, 40, |p| p.has(&[("error.type", "corrected")]) && p.value > 0.0);
        live.wait_point("gpu.dcgm.nvlink_tx_packet_total", gpu, 40, |point| point.value > 0.0);
    }
    assert!(live.terminate());
}

#[test]
fn while_the_driver_is_detached_fields_are_absent_and_then_go_on() {
    let mut live = Live::flowing("values-detached", TWO, QUICK);
    let before = live.energy(0, 5, 0.0);
    live.node.now("detached: true\n");
    let field = [("hw.id", Live::gpu(0)), ("gpu.field", TEMPERATURE.to_owned())];
    let field = [(field[0].0, &*field[0].1), (field[1].0, &*field[1].1)];
    let absent = wait_for("the absence", 8, || live.feed.latest("gpu.field.absent", &field).pop());
    let reason = absent.attributes["gpu.absence.reason"].clone();
    assert!(["not_found", "blank", "stale", "device_lost", "source_down"].contains(&&*reason), "{reason}");
    assert_eq!(live.feed.latest("hw.temperature", &[("hw.id", &Live::gpu(0))]), []);
    live.node.now("");
    let after = live.energy(0, 45, before.value + 4.0);
    assert_eq!(after.start, before.start, "the counter goes on");
    live.wait_point("hw.temperature", 0, 5, |point| point.value == 45.0);
    assert!(live.agent.as_mut().is_some_and(|agent| agent.is_running()) && live.terminate());
}

#[test]
fn profiling_that_another_client_paused_says_so() {
    let scenario = "version: 1\ngpus:\n- count: 2\nfaults:\n- paused: {from: 3, until: 10}\n";
    let worker = "groups:\n- {name: profiling, interval: 1s, fields: [1001]}";
    let mut live = Live::start("values-paused", scenario, worker, |setup| setup);
    live.wait_point("gpu.dcgm.utilization", 0, 10, |_| true);
    live.wait_absent(0, GR, "paused", 12);
    live.wait_own("warpgauge.source.lack", &[("source", "profiling"), ("reason", "paused")], 1.0, 3);
    let resumed = wall_ns();
    wait_for("profiling again", 15, || {
        let points = live.feed.latest("gpu.dcgm.utilization", &[("hw.id", &Live::gpu(0))]);
        points.into_iter().find(|point| point.time > resumed)
    });
    assert!(live.terminate());
}

#[test]
fn after_xid_119_the_engine_calls_no_driver_and_its_fields_are_stale() {
    let scenario = format!("{TWO}xids:\n- {{t: 5, gpu: 1, code: 119, source: kmsg}}\n");
    let mut live = Live::flowing("values-119", &scenario, QUICK);
    let field = [("hw.id", Live::gpu(0)), ("gpu.field", TEMPERATURE.to_owned())];
    let field = [(field[0].0, &*field[0].1), (field[1].0, &*field[1].1)];
    let absent = wait_for("the absence", 15, || live.feed.latest("gpu.field.absent", &field).pop());
    let reason = absent.attributes["gpu.absence.reason"].clone();
    assert!(["stale", "blank"].contains(&&*reason), "{reason}");
    assert_eq!(live.feed.latest("hw.temperature", &[("hw.id", &Live::gpu(0))]), []);
    assert!(live.agent.as_mut().is_some_and(|agent| agent.is_running()) && live.terminate());
}

#[test]
fn an_xid_is_counted_once_however_many_workers_hear_of_it() {
    let scenario = format!("{TWO}xids:\n- {{t: 4, gpu: 0, code: 79, source: kmsg}}\n");
    let worker = format!("{QUICK}\n- {{name: errors, interval: 1s, fields: [230]}}");
    let mut live = Live::flowing("values-xids", &scenario, &worker);
    let count = |live: &mut Live, xid: &str| {
        let gpu = Live::gpu(0);
        live.feed.value("gpu.dcgm.xid_errors", &[("hw.id", &gpu), ("gpu.error.xid", xid)])
    };
    wait_for("the first XID", 10, || (count(&mut live, "79") == Some(1.0)).then_some(()));
    let worker = live.worker().unwrap();
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).unwrap();
    wait_for("another worker", 5, || live.worker().filter(|pid| *pid != worker));
    live.wait_source("dcgm", "up", 5);
    // What comes after it proves that the new worker reads events.
    let now = wall_ns();
    live.wait_point("hw.energy", 0, 5, |point| point.time > now);
    live.node.now("xids: [{gpu: 0, code: 31}]\n");
    wait_for("the next XID", 10, || (count(&mut live, "31") == Some(1.0)).then_some(()));
    assert_eq!(count(&mut live, "79"), Some(1.0));
    assert!(live.terminate());
}
