//! Replayed scenarios → golden findings, deterministic.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::scratch::Scratch;

/// Replays a scenario with the real program and gives its findings.
fn findings(scenario: &Path) -> (String, String, Option<i32>) {
    let scratch = Scratch::new(&format!("replay-{:?}", std::thread::current().id()));
    let file = scratch.path().join("findings.jsonl");
    let out = Command::new(programs::agent())
        .args(["run", "--replay"])
        .arg(scenario)
        .arg("--findings")
        .arg(&file)
        .output()
        .unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    (text, String::from_utf8_lossy(&out.stderr).into_owned(), out.status.code())
}

fn fixture(name: &str) -> std::path::PathBuf {
    programs::workspace().join("tests/fixtures/scenarios").join(name)
}

/// Compares with `NAME.findings.jsonl`; `UPDATE=1` rewrites it.
#[track_caller]
fn check(name: &str) -> Vec<Value> {
    let (text, stderr, status) = findings(&fixture(&format!("{name}.jsonl")));
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    let golden = fixture(&format!("{name}.findings.jsonl"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(
        text,
        std::fs::read_to_string(&golden).unwrap_or_default(),
        "UPDATE=1 rewrites {}",
        golden.display()
    );
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_blocked_close_is_one_stall_with_its_victim_and_pod() {
    let found = check("blocked_close");
    let events: Vec<&str> = found.iter().map(|f| f["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["stall.begin", "stall.end"]);
    let (begin, end) = (&found[0], &found[1]);
    assert_eq!((&begin["cause"], &begin["id"]), (&end["cause"], &end["id"]));
    assert_eq!(begin["cause"], "driver_call");
    let within = |value: &Value, want: f64| (value.as_f64().unwrap() - want).abs() <= 1.5;
    assert!(within(&begin["begin"], 20.2) && within(&end["end"], 40.0), "{begin} {end}");
    assert!(begin["t"].as_f64().unwrap() <= 23.2, "told in time: {begin}");
    assert_eq!(begin["victims"][0]["pid"], 100);
    assert_eq!(begin["victims"][0]["pod_uid"], "7f6e5d4c-1111-2222-3333-444455556666");
}

#[test]
fn a_power_cap_at_full_load_is_no_stall() {
    assert_eq!(check("power_cap_at_full_load"), [] as [Value; 0]);
}

#[test]
fn a_hung_call_and_an_xid() {
    let found = check("hung_call_and_xid");
    let events: Vec<&str> = found.iter().map(|f| f["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["stall.begin", "xid", "stall.end"]);
    assert_eq!((&found[1]["code"], &found[1]["hw_id"]), (&119.into(), &found[0]["hw_id"]));
    assert_eq!(found[1]["victims"][0]["pod_uid"], "0a1b2c3d-1111-2222-3333-444455556666");
}

/// 100 has all GPUs open and registered one; 200 opened all and its container was given one; 300 computes on another one
/// than it was given; 400 registered a GPU and has the capability of an instance of it; of 500 NVML's list says that it
/// is over; 600 is the server of MPS.
#[test]
fn a_stall_is_on_the_gpu_that_the_best_evidence_names() {
    let found = check("uses_by_rank");
    let devices: Vec<_> = found
        .iter()
        .filter(|f| f["event"] == "stall.begin")
        .map(|f| {
            (f["victims"][0]["pid"].as_u64().unwrap(), f["hw_id"].as_str().map(|id| id.get(..7).unwrap()))
        })
        .collect();
    let want = [
        (500, None),
        (200, Some("GPU-111")),
        (100, Some("GPU-222")),
        (300, Some("GPU-222")),
        (400, Some("MIG-ccc")),
    ];
    assert_eq!(devices, want);
}

#[test]
fn a_slow_engine_is_told_apart_from_one_that_is_gone() {
    let found = check("device_values");
    let of = |name: &str| -> Vec<String> {
        let all = found.iter().filter(|f| f["event"] == "status" && f["id"].as_str().unwrap().contains(name));
        all.map(|f| format!("{} {} {}", f["t"], f["state"].as_str().unwrap(), f["end"])).collect()
    };
    let dcgm = ["13.0 slow null", "16.0 down null", "16.0 down 16.0", "21.0 up 21.0"];
    assert_eq!(of("dcgm"), dcgm);
    assert_eq!(of("GPU-9f8e7d6c"), ["17.0 lost null", "26.0 up 26.0"]);
    let slow = found.iter().find(|f| f["state"] == "slow").unwrap();
    assert_eq!(
        (&slow["begin"], &slow["severity"]),
        (&10.0.into(), &"warning".into()),
        "since the call began"
    );
}

#[test]
fn a_wait_for_a_lock_names_its_victims_and_its_holder() {
    let found = check("lock_stall");
    let of = |event: &str| -> Vec<&Value> { found.iter().filter(|f| f["event"] == event).collect() };
    let (begins, ends) = (of("stall.begin"), of("stall.end"));
    assert_eq!((begins.len(), ends.len(), found.len()), (2, 2, 4), "the holder is a monitor, and no victim");
    for stall in begins.iter().chain(&ends) {
        assert_eq!((&stall["cause"], &stall["lock"]), (&"driver_lock".into(), &"rm_api".into()), "{stall}");
        assert_eq!((&stall["victims"][0]["pid"], &stall["holder"]["pid"]), (&100.into(), &200.into()));
        assert_eq!(stall["victims"][0]["pod_uid"], "7f6e5d4c-1111-2222-3333-444455556666");
        assert_eq!(stall["holder"]["pod_uid"], "0a0b0c0d-1111-2222-3333-444455556666");
        assert_eq!((&stall["holder"]["tid"], &stall["holder"]["comm"]), (&200.into(), &"exporter".into()));
    }
    let victims: Vec<_> = begins.iter().map(|f| f["victims"][0]["tid"].as_u64().unwrap()).collect();
    assert_eq!(victims, [101, 102]);
}

/// The twins of the scenario above: without a known holder it is a long call, and one of a dead process is another cause.
#[test]
fn the_cause_of_a_wait_depends_on_its_holder() {
    let text = std::fs::read_to_string(fixture("lock_stall.jsonl")).unwrap();
    let is_holders = |line: &&str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["call"]["pid"] == 200 && line["call"]["layer"] == "lock"
    };
    let unknown: Vec<&str> = text.lines().filter(|line| !is_holders(line)).collect();
    let mut dead: Vec<&str> = text.lines().filter(|line| !line.contains("\"release\"")).collect();
    let at = dead.iter().position(|line| line.starts_with("{\"t\": 6.75")).unwrap();
    dead.insert(at, "{\"t\": 6.7, \"exit\": {\"pid\": 200}}");
    for (name, lines, cause) in [("unknown", unknown, "driver_call"), ("dead", dead, "dead_holder")] {
        let scratch = Scratch::new(&format!("holder-{name}"));
        let scenario = scratch.path().join("scenario.jsonl");
        std::fs::write(&scenario, lines.join("\n")).unwrap();
        let (found, stderr, _) = findings(&scenario);
        assert_eq!(stderr, "", "{name}");
        let begins = found.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let begins: Vec<Value> = begins.filter(|f| f["event"] == "stall.begin").collect();
        assert_eq!(begins.len(), 2, "{name}: {found}");
        assert!(
            begins.iter().all(|f| f["cause"] == cause && f["holder"].is_null() == (name == "unknown")),
            "{found}"
        );
    }
}

#[test]
fn an_error_of_the_resource_manager_is_said_and_a_fault_within_a_call_is_no_second_stall() {
    let found = check("rm_error_and_faults");
    let stalls: Vec<(&str, &str)> =
        found.iter().map(|f| (f["event"].as_str().unwrap(), f["id"].as_str().unwrap())).collect();
    let (failed, with_fault, fault) =
        ("stall-101-ioctl-5000000000", "stall-101-ioctl-10000000000", "stall-102-fault-20000000000");
    let of = |id| [("stall.begin", id), ("stall.end", id)];
    assert_eq!(stalls, [of(failed), of(with_fault), of(fault)].concat());
    let evidence = |place: usize| found[place]["evidence"].as_array().unwrap().clone();
    assert!(evidence(1).contains(&"the resource manager answered NV_ERR_GPU_IS_LOST".into()), "{}", found[1]);
    assert!(
        evidence(0)
            .contains(&"the resource manager was asked for NV2080_CTRL_CMD_FB_GET_REMAPPED_ROWS".into())
    );
    assert!(
        evidence(2).iter().any(|e| e.as_str().unwrap().starts_with("in another call (fault) for ")),
        "{}",
        found[2]
    );
    let end = |place: usize| found[place]["end"].as_f64().unwrap();
    assert_eq!((end(3), end(5)), (13.0, 22.0), "the fault's end does not end the call");
}

/// The kubelet's raw answers and job files change nothing of who hangs on which device.
#[test]
fn a_hung_call_where_devices_are_given_is_its_pods_on_its_device() {
    let pod = |number: u32| format!("0a1b2c3d-1111-2222-3333-44445555{number:04}");
    for (name, hw_id, uid) in [
        ("pod_devices_gke", "MIG-11112222-0000-4000-8000-000000000707", pod(7)),
        ("pod_devices_uuids", "MIG-bbbbbbbb-0000-4000-8000-000000000006", pod(6)),
        ("time_slicing", "GPU-55550000-0000-4000-8000-000000000000", pod(3)),
    ] {
        let found = check(name);
        let events: Vec<&str> = found.iter().map(|f| f["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["stall.begin", "stall.end"], "{name}");
        for stall in &found {
            assert_eq!((&stall["hw_id"], &stall["cause"]), (&hw_id.into(), &"driver_call".into()), "{name}");
            assert_eq!(stall["victims"][0]["pod_uid"], uid, "{name}");
        }
    }
    for name in ["mps_slots", "job_devices"] {
        assert_eq!(check(name), [] as [Value; 0], "{name}");
    }
}

/// Without the check of the thread, or with the thread seen outside, an open call proves nothing.
#[test]
fn every_piece_of_evidence_is_required() {
    let text = std::fs::read_to_string(fixture("blocked_close.jsonl")).unwrap();
    let without = |wanted: &dyn Fn(&Value) -> bool| {
        let mut kept = String::new();
        for line in text.lines().filter(|line| !wanted(&serde_json::from_str(line).unwrap())) {
            writeln!(kept, "{line}").unwrap();
        }
        kept
    };
    let no_call = without(&|l| l["call"]["edge"] == "enter");
    let no_check = without(&|l| !l["thread"].is_null() && l["t"].as_f64().unwrap() < 40.0)
        .lines()
        .filter(|line| !line.contains("\"exit\""))
        .collect::<Vec<_>>()
        .join("\n");
    let outside = text.replace("\"inside\": \"inside\"", "\"inside\": \"outside\"");
    let monitor = text.replace("\"role\": \"workload\"", "\"role\": \"monitor\"");
    for (name, text) in
        [("no call", no_call), ("no check", no_check), ("outside", outside), ("monitor", monitor)]
    {
        let scratch = Scratch::new(&format!("evidence-{}", name.replace(' ', "-")));
        let scenario = scratch.path().join("scenario.jsonl");
        std::fs::write(&scenario, text).unwrap();
        let (found, stderr, _) = findings(&scenario);
        assert_eq!((found.as_str(), stderr.as_str()), ("", ""), "{name}");
    }
}

#[test]
fn the_same_replay_gives_the_same_bytes() {
    let scenario = fixture("hung_call_and_xid.jsonl");
    assert_eq!(findings(&scenario), findings(&scenario));
}

#[test]
fn a_bad_line_is_named_and_the_rest_is_used() {
    let scratch = Scratch::new("bad-line");
    let scenario = scratch.path().join("scenario.jsonl");
    let good = std::fs::read_to_string(fixture("hung_call_and_xid.jsonl")).unwrap();
    std::fs::write(&scenario, format!("{{\"t\":0,\"gpus\":{{}}}}\n{good}")).unwrap();
    let (found, stderr, status) = findings(&scenario);
    assert_eq!(stderr, format!("{}:1: gpus: no such kind of signal\n", scenario.display()));
    assert_eq!((found.lines().count(), status), (3, Some(1)));
}
