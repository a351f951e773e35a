//! What is made of what the libraries say.
//!
//! In: standings and lines as they come. Out: checks. What can go wrong: nothing.

use serde_json::json;

use super::*;
use crate::config::Config;

fn says(source: &str, up: bool, reason: &str, what: &str) -> Standing {
    let text = str::to_owned;
    let remedy = if up { text("") } else { text("mend it") };
    Standing {
        source: text(source),
        up,
        reason: text(reason),
        what: text(what),
        remedy,
        ..Standing::default()
    }
}

fn well() -> Seen {
    let gpu = |n: u32, state: u32| json!({"device": format!("GPU-{n}"), "kind": 1, "state": state, "model": "H100"});
    let capabilities = json!({"capabilities": {
        "library": "/lib/libdcgm.so.4, 4.6.0", "version": "4.6.0/4.5.3",
        "modules": [{"name": "core", "state": "loaded"}, {"name": "profiling", "state": "not_loaded"},
                    {"name": "sysmon", "state": "failed"}],
        "nameless": [],
        "profiling": [
            {"device": "GPU-0", "state": "yes", "reason": null, "remedy": null},
            {"device": "GPU-1", "state": "yes", "reason": null, "remedy": null},
        ],
    }});
    let dcgm = Standing { library: "/lib/libdcgm.so.4, 4.6.0".into(), ..says("dcgm", true, "", "embedded") };
    let nvml = Standing { library: "libnvidia-ml.so.1, NVML 13".into(), ..says("nvml", true, "", "x") };
    Seen {
        standings: vec![dcgm, nvml],
        lines: vec![
            capabilities,
            json!({"id": 150, "status": {}}),
            gpu(0, 0),
            gpu(1, 0),
            json!({"device": "MIG-a", "kind": 2, "mig_profile": "1g.10gb"}),
        ],
        devices: Vec::new(),
        obstacle: None,
    }
}

fn check(seen: &Seen, want: &[(&str, Verdict, &str)]) {
    let checks = libraries(&Config::default().worker, seen);
    for (name, verdict, part) in want {
        let found = checks.iter().find(|c| c.name == *name && c.what.contains(part) && c.verdict == *verdict);
        assert!(found.is_some(), "{name} {verdict:?} {part} in {checks:#?}");
    }
    let lacks_remedy = checks.iter().find(|c| c.verdict == Verdict::No && c.remedy.is_empty());
    assert_eq!(lacks_remedy, None, "every lack has its remedy");
}

#[test]
fn where_all_is_well_each_thing_is_named() {
    let seen = well();
    check(
        &seen,
        &[
            ("libdcgm", Verdict::Yes, "/lib/libdcgm.so.4, 4.6.0"),
            ("DCGM engine", Verdict::Yes, "embedded, 4.6.0/4.5.3"),
            ("DCGM modules", Verdict::Yes, "failed: sysmon; loaded: core; not_loaded: profiling (sysmon is"),
            ("DCGM profiling", Verdict::Yes, "all 2 GPUs"),
            ("libnvidia-ml", Verdict::Yes, "NVML 13"),
            ("NVML", Verdict::Yes, ""),
            ("GPUs", Verdict::Yes, "2: 2 × H100"),
            ("MIG", Verdict::Yes, "1 × 1g.10gb"),
        ],
    );
    assert!(libraries(&Config::default().worker, &seen).iter().all(|c| c.verdict != Verdict::No));
}

#[test]
fn each_lack_is_named_with_its_remedy() {
    let none = Seen {
        standings: vec![
            says("dcgm", false, "no_library", "cannot open libdcgm.so.4"),
            says("nvml", false, "no_library", "cannot open libnvidia-ml.so.1"),
        ],
        ..Seen::default()
    };
    check(
        &none,
        &[
            ("libdcgm", Verdict::No, "libdcgm.so.4"),
            ("DCGM engine", Verdict::No, "no library"),
            ("DCGM modules", Verdict::Unknown, "no engine"),
            ("DCGM profiling", Verdict::Unknown, "no engine"),
            ("libnvidia-ml", Verdict::No, "libnvidia-ml.so.1"),
            ("NVML", Verdict::No, "no library"),
            ("GPUs", Verdict::No, "neither DCGM nor NVML"),
            ("MIG", Verdict::Unknown, ""),
        ],
    );
    let mut seen = well();
    seen.standings[0] =
        Standing { library: "lib, 4.6.0".into(), ..says("dcgm", false, "engine_too_old", "-20") };
    seen.standings[1] = says("nvml", false, "no_driver", "lib: Driver/library version mismatch");
    seen.lines.clear();
    check(
        &seen,
        &[
            ("libdcgm", Verdict::Yes, "4.6.0"),
            ("DCGM engine", Verdict::No, "engine_too_old"),
            ("libnvidia-ml", Verdict::Yes, "mismatch"),
            ("NVML", Verdict::No, "mismatch"),
        ],
    );
    let nvml = libraries(&Config::default().worker, &seen).into_iter().find(|c| c.name == "NVML").unwrap();
    assert!(nvml.remedy.contains("restart the node") && nvml.remedy.contains("reload"), "{}", nvml.remedy);
}

#[test]
fn a_hang_is_unknown_and_never_no() {
    let hang = Seen { obstacle: Some("dcgmInit has not come back".into()), ..Seen::default() };
    let checks = libraries(&Config::default().worker, &hang);
    assert!(checks.iter().all(|c| c.verdict == Verdict::Unknown), "{checks:#?}");
    check(&hang, &[("libdcgm", Verdict::Unknown, "dcgmInit"), ("GPUs", Verdict::Unknown, "dcgmInit")]);
}

#[test]
fn lost_gpus_failed_modules_and_uneven_profiling_are_told_apart() {
    let mut seen = well();
    seen.lines[3]["state"] = json!(1);
    seen.lines[0]["capabilities"]["nameless"] = json!([{"id": 5, "lost": true}]);
    seen.lines[0]["capabilities"]["modules"][1]["state"] = json!("failed");
    seen.lines[0]["capabilities"]["profiling"][1] =
        json!({"device": "GPU-1", "state": "no", "reason": "not_permitted", "remedy": "run as root"});
    check(
        &seen,
        &[
            ("GPUs", Verdict::No, "2 of 3 lost: GPU-1, number 5 of the engine"),
            ("DCGM modules", Verdict::No, "failed: profiling, sysmon"),
            ("DCGM profiling", Verdict::Yes, "GPU-0"),
            ("DCGM profiling", Verdict::No, "GPU-1: not_permitted"),
        ],
    );
}

#[test]
fn the_agents_worker_says_why_it_does_not_run() {
    let of =
        |standing: Standing| worker_of_agent(&Seen { standings: vec![standing], ..Seen::default() }).verdict;
    assert_eq!(of(says("worker", true, "", "it runs")), Verdict::Yes);
    assert_eq!(of(says("worker", false, "disabled", "off")), Verdict::Off);
    assert_eq!(of(says("worker", false, "released", "let go")), Verdict::No);
    assert_eq!(worker_of_agent(&Seen::default()).verdict, Verdict::Unknown);
}

#[test]
fn while_the_libraries_hang_nobody_knows_of_gpus() {
    let slow = |source| says(source, false, "slow", "dlopen has not come back");
    let seen = Seen { standings: vec![slow("dcgm"), slow("nvml")], ..Seen::default() };
    check(&seen, &[("GPUs", Verdict::Unknown, "dcgm: dlopen has not come back")]);
}
