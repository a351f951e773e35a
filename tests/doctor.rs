//! `warpgauge doctor` on simulated nodes: well, without anything, hung, with a lost GPU, with an old engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::node::Node;

/// What the doctor must not take longer than, whatever hangs.
const LIMIT: Duration = Duration::from_secs(10);
const VENDOR: [&str; 9] = [
    "worker",
    "libdcgm",
    "DCGM engine",
    "DCGM modules",
    "DCGM profiling",
    "libnvidia-ml",
    "NVML",
    "GPUs",
    "MIG",
];

/// Checks by name: state, what, remedy.
type Checks = BTreeMap<String, (String, String, String)>;

fn doctor(node: &Node, worker: &str, more: &[&str]) -> (Checks, Option<i32>) {
    // The limit is for what hangs in a library, not for a disk that is busy with the build before: folders are made here.
    assert!(node.command(&["doctor", "--worker", "off"], worker).output().is_ok());
    let begun = Instant::now();
    let out = node.command(&[&["doctor", "--json"], more].concat(), worker).output().unwrap();
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    let text = String::from_utf8(out.stdout).unwrap();
    let checks = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let of = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        (of("check"), (of("state"), of("what"), of("remedy")))
    });
    (checks.collect(), out.status.code())
}

fn check(checks: &Checks, want: &[(&str, &str, &str)]) {
    for (name, state, part) in want {
        assert!(checks.contains_key(*name), "no {name} in {checks:#?}");
        let found = &checks[*name];
        assert_eq!((found.0.as_str(), found.1.contains(part)), (*state, true), "{name}: {found:?}");
        assert!(found.0 != "no" || !found.2.is_empty(), "{name} has no remedy");
    }
}

#[test]
fn where_all_is_well_no_vendor_check_says_no() {
    let node = Node::new("doctor-well", "h100x4");
    let (checks, _) = doctor(&node, "engine: embedded", &[]);
    for name in VENDOR {
        let (state, what, _) = &checks[name];
        assert_eq!(state, if name == "MIG" { "off" } else { "yes" }, "{name}: {what}");
    }
    check(
        &checks,
        &[
            ("libdcgm", "yes", "libdcgm_sim.so, 4.6.0"),
            ("DCGM engine", "yes", "embedded, 4.6.0"),
            ("DCGM profiling", "yes", "all 4 GPUs"),
            ("libnvidia-ml", "yes", "driver 570.86.15"),
            ("GPUs", "yes", "4 × NVIDIA H100 80GB HBM3"),
            ("control socket", "off", "no agent runs here"),
        ],
    );
}

#[test]
fn without_gpu_driver_and_libraries_each_lack_is_named() {
    let node = Node::new("doctor-none", "h100x4");
    let root = node.path().join("host");
    for dir in ["sys/bus/pci/devices", "dev", "proc"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    let path = |dir: &str| root.join(dir).to_string_lossy().into_owned();
    let (sys, dev, proc) = (path("sys"), path("dev"), path("proc"));
    let (checks, status) = doctor(
        &node,
        "dcgm_library: /nowhere/libdcgm.so.4\nnvml_library: /nowhere/libnvidia-ml.so.1",
        &["--host-sys", &sys, "--host-dev", &dev, "--host-proc", &proc],
    );
    assert_eq!(status, Some(1));
    check(
        &checks,
        &[
            ("driver", "no", "driver/nvidia/version"),
            ("PCI devices", "no", "no GPU of NVIDIA"),
            ("kernel module", "no", "module/nvidia"),
            ("device nodes", "no", "0 of GPUs"),
            ("libdcgm", "no", "/nowhere/libdcgm.so.4"),
            ("DCGM engine", "no", "no library"),
            ("DCGM profiling", "unknown", "no engine"),
            ("libnvidia-ml", "no", "/nowhere/libnvidia-ml.so.1"),
            ("NVML", "no", "no library"),
            ("GPUs", "no", "neither DCGM nor NVML"),
            ("worker", "yes", ""),
            ("run directory", "yes", "can be made"),
        ],
    );
}

#[test]
fn a_call_that_hangs_is_unknown_and_named_within_the_limit() {
    let text = "version: 1\ngpus:\n- count: 2\nfaults:\n- hang: {call: dcgmGetAllDevices}\n";
    let node = Node::of_text("doctor-hang", text);
    let (checks, _) = doctor(&node, "engine: embedded", &[]);
    check(
        &checks,
        &[
            ("worker", "unknown", "dcgmGetAllDevices has not come back"),
            ("libdcgm", "unknown", "dcgmGetAllDevices"),
            ("DCGM engine", "unknown", "dcgmGetAllDevices"),
            ("libnvidia-ml", "yes", "libnvml_sim.so"),
            ("NVML", "yes", ""),
        ],
    );
    assert!(!worker_lives(node.path()), "the doctor leaves no worker behind");
}

/// Whether the pid in the worker's lock lives.
fn worker_lives(dir: &Path) -> bool {
    let pid = std::fs::read_to_string(dir.join("state/worker.lock")).unwrap_or_default();
    !pid.trim().is_empty() && Path::new("/proc").join(pid.trim()).join("exe").exists()
}

#[test]
fn an_old_engine_and_a_missing_driver_have_their_remedies() {
    let node = Node::new("doctor-old", "fault-old-engine");
    let (checks, status) = doctor(&node, "engine: localhost:5555", &[]);
    check(
        &checks,
        &[
            ("libdcgm", "yes", "4.6.0"),
            ("DCGM engine", "no", "engine_too_old"),
            ("DCGM profiling", "unknown", "no engine"),
            ("NVML", "yes", ""),
            ("GPUs", "yes", "4"),
        ],
    );
    assert!(status == Some(1) && checks["DCGM engine"].2.contains("update the host engine"));
    let node = Node::new("doctor-no-driver", "fault-no-driver");
    let (checks, _) = doctor(&node, "engine: embedded", &[]);
    check(&checks, &[("NVML", "no", "no_driver"), ("GPUs", "no", "")]);
    assert!(checks["NVML"].2.contains("modprobe nvidia"), "{checks:#?}");
}

#[test]
fn a_running_agent_is_asked_and_names_the_lost_gpu() {
    let node = Node::new("doctor-agent", "h100x4");
    let agent = node.agent("engine: embedded").start();
    wait_for("the agent's sources", 20, || {
        let log = agent.log();
        let is_up = |name: &str| {
            log.lines()
                .any(|line| line.contains("A source is up") && line.contains(&format!("source=\"{name}\"")))
        };
        (is_up("dcgm") && is_up("nvml")).then_some(())
    });
    let (checks, _) = doctor(&node, "engine: embedded", &[]);
    check(
        &checks,
        &[
            ("control socket", "yes", "an agent answers"),
            ("worker", "yes", "under the agent"),
            ("state directory", "yes", "an agent uses it"),
            ("libdcgm", "yes", "libdcgm_sim.so, 4.6.0"),
            ("DCGM profiling", "yes", "all 4 GPUs"),
            ("GPUs", "yes", "4"),
        ],
    );
    node.now("lost: [1]\n");
    let lost = wait_for("the lost GPU", 15, || {
        let (checks, _) = doctor(&node, "engine: embedded", &[]);
        (checks["GPUs"].0 == "no").then_some(checks)
    });
    check(&lost, &[("GPUs", "no", "1 of 4 lost: GPU-00000000-0000-4000-8000-000000000001")]);
    assert!(agent.terminate().success());
}

#[test]
fn a_gpu_that_is_lost_before_anybody_asked_is_told_by_its_number() {
    let text = "version: 1\ngpus:\n- count: 3\nfaults:\n- lost: {gpu: 2}\n";
    let node = Node::of_text("doctor-lost", text);
    let (checks, status) = doctor(&node, "engine: embedded", &[]);
    assert_eq!(status, Some(1));
    check(&checks, &[("GPUs", "no", "1 of 3 lost")]);
}
