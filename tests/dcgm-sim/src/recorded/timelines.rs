//! The recorded time lines against the simulator, one test for each.
//!
//! In: `tests/fixtures/dcgm/timeline_*.jsonl`, played by [`super::replay`]. Out: a failed test.

use super::replay::{Replay, TOLERANCE_MS, events, number, recorded};
use super::rig::{START, Seen};
use crate::engine::groups::ALL_GPUS;

#[test]
fn the_engine_is_killed_and_comes_back() {
    Replay::new("h100x4", "").run("engine_kill");
}

#[test]
fn the_engine_stands_still_for_ten_seconds() {
    Replay::new("h100x4", "").run("engine_stopped");
}

#[test]
fn a_gpu_vanishes_and_comes_back() {
    Replay::new("h100x4", "").run("gpu_removed");
}

#[test]
fn the_driver_is_detached_and_attached() {
    Replay::new("h100x4", "detach_s: 1.706\nattach_s: 1.204\n").run("driver_detach_attach");
}

#[test]
fn profiling_values_begin_one_interval_after_the_watch() {
    Replay::new("h100x4", "").run("profiling_first_values");
}

#[test]
fn health_tells_xids_at_once_and_counters_later() {
    Replay::new("h100x4", "").run("health");
}

#[test]
fn xids_of_a_gpu_with_instances() {
    Replay::new("h100mig", "drain_phase: 0.2\n").run("xid_mig");
}

#[test]
fn xid_119_ends_all_driver_calls() {
    Replay::new("h100x4", "").run("xid119_live");
}

#[test]
fn the_log_is_read_again_by_each_engine() {
    for xid in ["79", "119"] {
        let line = format!("xids:\n- {{t: -3600, gpu: 0, code: {xid}, source: kmsg}}\n");
        Replay::new("h100x4", &line).run(&format!("log_xid{xid}"));
    }
}

#[test]
fn xids_come_one_a_second_and_late_ones_are_missed_without_an_overlap() {
    Replay::new("h100x4", "").run("xid");
    // as the recording's client: each 250 ms, from where the last call ended, and with an overlap of 5 s
    let all = events("xid");
    let mut replay = Replay::new("h100x4", "");
    replay.rig.at(308);
    let setup = all.iter().find(|event| event["ev"] == "setup").unwrap();
    replay.now_ms = 308;
    replay.step("xid", setup);
    let (mut next, mut advancing, mut overlapping): (i64, Vec<Seen>, Vec<Seen>) = (0, Vec::new(), Vec::new());
    for poll in 0..141 {
        let now = 312 + poll * 250;
        for event in &all {
            let at = number(event, "t_ms").unwrap();
            if replay.now_ms < at && at <= now && event.get("xid").is_some() {
                replay.rig.at(at);
                replay.raise(event);
            }
        }
        replay.now_ms = now;
        replay.rig.at(now);
        let new = |seen: Vec<Seen>| seen.into_iter().filter(|seen| seen.field == 230 && seen.status == 0);
        let (_, later, seen) = replay.rig.since(ALL_GPUS, replay.fields, next);
        advancing.extend(new(seen));
        let since = START + (now - 5000) * 1000;
        for seen in new(replay.rig.since(ALL_GPUS, replay.fields, since).2) {
            if !overlapping.contains(&seen) {
                overlapping.push(seen);
            }
        }
        next = later;
    }
    for (variant, found) in [("since_all_fields_new", advancing), ("since_overlap_new", overlapping)] {
        let wanted = all.iter().filter(|event| event["ev"] == variant);
        let wanted: Vec<Seen> =
            wanted.flat_map(|event| event["values"].as_array().unwrap()).map(recorded).collect();
        let short = |seen: &Seen| (seen.entity, seen.value.clone());
        let (found_short, wanted_short): (Vec<_>, Vec<_>) =
            (found.iter().map(short).collect(), wanted.iter().map(short).collect());
        assert_eq!(found_short, wanted_short, "{variant}");
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!(
                (found.ts_ms.unwrap() - wanted.ts_ms.unwrap()).abs() <= TOLERANCE_MS,
                "{found:?} {wanted:?}"
            );
        }
    }
}
