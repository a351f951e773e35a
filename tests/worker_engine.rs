//! Engines that go and come, that hang, that connect without answering, that are too old: with the same worker.

use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::live::{Live, QUICK, TWO, wall_ns};

const ENGINE: &str = "engine: 127.0.0.1:5555\n";
const TEMPERATURE: &str = "DCGM_FI_DEV_GPU_TEMP_CELSIUS";

/// The engine breaks as `broken` says, and is well again; its values are back within 5 s and count on.
fn check(test: &str, scenario: &str, broken: &str, absent_s: u64) {
    let mut live = Live::flowing(test, scenario, &format!("{ENGINE}{QUICK}"));
    let (before, worker) = (live.energy(0, 5, 1.0), live.worker());
    live.node.now(broken);
    let down = live.wait_source("dcgm", "down", absent_s);
    assert_eq!((down.get("gpu.status.reason"), &*down.severity_text), ("engine_down", "ERROR"));
    live.wait_absent(0, TEMPERATURE, "source_down", 2);
    live.wait_own("warpgauge.source.lack", &[("source", "dcgm"), ("reason", "engine_down")], 1.0, 2);
    live.node.now("");
    let back = wall_ns();
    let up = live.wait_source("dcgm", "up", 6);
    assert_eq!(up.get("gpu.status.id"), down.get("gpu.status.id"));
    let after = wait_for("values after it", 6, || {
        let points = live.feed.latest("hw.energy", &[("hw.id", &Live::gpu(0))]);
        points.into_iter().find(|point| point.time > back && point.value > before.value)
    });
    assert!(after.time < back + 5_000_000_000, "{}", after.time - back);
    assert_eq!((after.start, live.worker()), (before.start, worker));
    // 1 W throughout: what was consumed meanwhile is not missing.
    let passed = (after.time - before.time) as f64 / 1e9;
    let counted = after.value - before.value;
    assert!((counted - passed).abs() < 2.0, "{counted} J in {passed} s");
    assert!(live.terminate());
}

#[test]
fn an_engine_that_is_killed_is_back_within_five_seconds_and_counters_go_on() {
    check("engine-killed", TWO, "engine: down\n", 5);
}

#[test]
fn an_engine_that_stands_still_is_given_up_when_the_request_times_out() {
    check("engine-hung", &format!("{TWO}request_timeout: 1\n"), "engine: hung\n", 6);
}

#[test]
fn a_connection_that_was_made_but_is_dead_does_not_count() {
    let scenario = format!("{TWO}request_timeout: 1\nfaults:\n- dead_connect: {{until: 6}}\n");
    let mut live = Live::start("engine-dead", &scenario, &format!("{ENGINE}{QUICK}"), |setup| setup);
    let down = live.wait_source("dcgm", "down", 6);
    assert_eq!((down.get("gpu.status.reason"), &*down.severity_text), ("engine_down", "INFO"));
    let log = live.agent.as_ref().map(|agent| agent.log()).unwrap_or_default();
    assert!(log.contains("took the connection but does not answer"), "{log}");
    // NVML gives what it can meanwhile.
    live.wait_point("hw.temperature", 0, 5, |_| true);
    live.wait_source("dcgm", "up", 10);
    live.wait_point("hw.temperature", 0, 5, |point| point.value == 45.0);
    assert!(live.terminate());
}

#[test]
fn an_engine_that_is_too_old_is_named_and_nvml_stands_in() {
    let scenario = format!("{TWO}library: 4.6.0\nengine_version: 4.5.3\n");
    let mut live = Live::start("engine-old", &scenario, &format!("{ENGINE}{QUICK}"), |setup| setup);
    let down = live.wait_source("dcgm", "down", 6);
    assert_eq!(down.get("gpu.status.reason"), "engine_too_old");
    live.wait_own("warpgauge.source.lack", &[("source", "dcgm"), ("reason", "engine_too_old")], 1.0, 2);
    let log = live.agent.as_ref().map(|agent| agent.log()).unwrap_or_default();
    assert!(log.contains("update the host engine to the release of libdcgm"), "{log}");
    live.wait_point("hw.temperature", 1, 12, |_| true);
    assert_eq!(live.feed.value("warpgauge.source.up", &[("source", "nvml")]), Some(1.0));
    assert!(live.terminate());
}
