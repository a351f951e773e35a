//! Tests of the records: findings in, attributes out.
//!
//! In: hand-made findings. Out: assertions on the records. What can go wrong is what is tested.

use super::*;
use crate::export::samples::{self, NOW};
use crate::model::Workload;

fn record(fact: &Attributed<Finding>) -> Record {
    Recorder::new("boot").finding(&fact.item, fact, &Majors::new(None), NOW)
}

fn get<'a>(record: &'a Record, name: &str) -> Option<&'a Attribute> {
    let mut found = record.attributes.iter().filter(|(n, _)| *n == name).map(|(_, value)| value);
    let first = found.next();
    assert_eq!(found.next(), None, "{name} is there twice");
    first
}

#[test]
fn a_stall_says_what_whose_and_for_how_long() {
    let record = record(&samples::stall(StallState::Begin));
    assert_eq!((record.event_name, record.severity), ("gpu.stall", Severity::Warn));
    assert_eq!(record.time, WallNs(NOW.wall.0 - 500_000_000), "97 s + 2.5 s");
    assert_eq!((record.observed, record.seq), (NOW.wall, None));
    assert_eq!(record.body, "python3 (77) has been inside the GPU driver for 2.5 s");
    for (name, want) in [
        ("gpu.stall.id", text("stall-1")),
        ("gpu.stall.state", text("begin")),
        ("gpu.stall.cause", text("driver_call")),
        ("gpu.stall.duration", Attribute::Double(2.5)),
        ("gpu.stall.confidence", text("high")),
        ("gpu.stall.evidence", Attribute::List(vec!["in the call for 2.5 s".into(), "state D".into()])),
        ("gpu.driver.call", text("ioctl")),
        ("gpu.driver.device", text("195:255")),
        ("gpu.driver.node", text("/dev/nvidiactl")),
        ("gpu.driver.operation", text("NV_ESC_RM_CONTROL")),
        ("process.pid", Attribute::Int(77)),
        ("thread.id", Attribute::Int(78)),
        ("thread.name", text("worker-0")),
        ("process.executable.name", text("python3")),
        ("process.linux.cgroup", text("/kubepods.slice/pod.slice/c.scope")),
        ("container.id", text("ab12")),
        ("k8s.pod.uid", text("6f1c")),
        ("log.record.uid", text("boot:stall-1:begin")),
    ] {
        assert_eq!(get(&record, name), Some(&want), "{name}");
    }
    assert_eq!(get(&record, "hw.id"), None);
    assert_eq!(get(&record, "warpgauge.attribution.reason"), None);
}

#[test]
fn a_wait_for_a_lock_names_the_holder_and_its_pod() {
    let fact = samples::lock_stall();
    let record = record(&fact);
    for (name, want) in [
        ("gpu.stall.cause", text("driver_lock")),
        ("gpu.driver.lock.name", text("rm_api")),
        ("gpu.driver.lock.mode", text("write")),
        ("gpu.driver.rm.operation", text("NV2080_CTRL_CMD_GPU_GET_GID_INFO")),
        ("gpu.driver.rm.status", text("NV_ERR_TIMEOUT")),
        ("process.pid", Attribute::Int(77)),
        ("k8s.pod.uid", text("6f1c")),
        ("gpu.stall.holder.pid", Attribute::Int(99)),
        ("gpu.stall.holder.thread.id", Attribute::Int(100)),
        ("gpu.stall.holder.thread.name", text("nvidia-smi")),
        ("gpu.stall.holder.duration", Attribute::Double(3.5)),
        ("gpu.stall.holder.pod.uid", text("7a2d")),
    ] {
        assert_eq!(get(&record, name), Some(&want), "{name}");
    }
    let unknown = Attributed { processes: vec![(Pid(99), Known::Denied)], ..fact };
    let record = Recorder::new("boot").finding(&unknown.item, &unknown, &Majors::new(None), NOW);
    assert_eq!(get(&record, "gpu.stall.holder.attribution.reason"), Some(&text("denied")));
}

#[test]
fn names_stand_beside_the_uid() {
    let mut fact = samples::named(samples::lock_stall());
    let named = record(&fact);
    for (name, want) in [
        ("k8s.pod.uid", "6f1c"),
        ("k8s.namespace.name", "ml"),
        ("k8s.pod.name", "train-0"),
        ("k8s.container.name", "main"),
        ("gpu.stall.holder.pod.uid", "7a2d"),
        ("gpu.stall.holder.pod.name", "probe-7"),
        ("gpu.stall.holder.namespace.name", "ml"),
    ] {
        assert_eq!(get(&named, name), Some(&text(want)), "{name}");
    }
    let workload = Workload { systemd_unit: Some("x.service".into()), ..Workload::default() };
    let service = Process { cgroup: Some("/system.slice/x.service".into()), workload, ..Process::default() };
    fact.processes[0].1 = Known::Is(service);
    let of_a_service = record(&fact);
    assert_eq!(get(&of_a_service, "systemd.unit"), Some(&text("x.service")));
    assert_eq!(get(&of_a_service, "process.linux.cgroup"), Some(&text("/system.slice/x.service")));
    assert_eq!(get(&of_a_service, "k8s.pod.name"), None);
}

#[test]
fn each_record_of_a_stall_has_its_own_uid_and_the_same_one_again() {
    let uid = |state| get(&record(&samples::stall(state)), "log.record.uid").cloned();
    let (update, end) = (Some(text("boot:stall-1:update:99500000000")), Some(text("boot:stall-1:end")));
    assert_eq!((uid(StallState::Update), uid(StallState::End)), (update.clone(), end));
    assert_eq!(uid(StallState::Update), update);
}

#[test]
fn an_xid_carries_the_catalogues_words_and_the_line() {
    let record = record(&samples::xid(Some(901)));
    assert_eq!((record.event_name, record.severity, record.seq), ("gpu.xid", Severity::Fatal, Some(901)));
    assert_eq!(record.time, WallNs(NOW.wall.0 - 1_000_000_000));
    for (name, want) in [
        ("gpu.xid.code", Attribute::Int(79)),
        ("gpu.xid.class", text("bus")),
        ("gpu.xid.severity", text("fatal")),
        ("gpu.xid.action", text("reset")),
        ("gpu.pci.address", text("0000:3b:00.0")),
        ("hw.id", text("GPU-1")),
        ("gpu.mig.gpu_instance.id", Attribute::Int(1)),
        ("process.pid", Attribute::Int(77)),
        ("process.executable.name", text("python3")),
        ("k8s.pod.uid", text("6f1c")),
        ("gpu.xid.backlog", Attribute::Bool(false)),
        ("gpu.xid.text", text(record.body.clone())),
        ("log.record.uid", text("boot:901")),
    ] {
        assert_eq!(get(&record, name), Some(&want), "{name}");
    }
}

#[test]
fn an_unknown_process_says_why() {
    let mut fact = samples::xid(None);
    fact.processes = vec![(Pid(77), Known::Denied)];
    let record = record(&fact);
    assert_eq!(get(&record, "warpgauge.attribution.reason"), Some(&text("denied")));
    assert_eq!(get(&record, "process.executable.name"), Some(&text("python3")), "the line named it");
    assert_eq!(get(&record, "log.record.uid"), Some(&text("boot:xid-9")));
    assert_eq!(get(&record, "k8s.pod.uid"), None);
}

#[test]
fn a_gap_says_how_long_nobody_looked() {
    let gap = Gap { last_seen: WallNs(NOW.wall.0 - 30_000_000_000), rebooted: false };
    let record = Recorder::new("boot").gap(&gap, NOW);
    assert_eq!(get(&record, "warpgauge.restart.gap"), Some(&Attribute::Double(30.0)));
    assert_eq!(get(&record, "log.record.uid"), Some(&text("boot:restart:100000000000")));
}
