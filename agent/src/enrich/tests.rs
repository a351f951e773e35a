//! Attribution, told what it needs to know.

use super::*;
use crate::model::{Cause, Confidence, Finding, Severity, Stall, StallState, StartTicks, Tid, Victim};

const POD: &str = "/kubepods/besteffort/pod0a1b2c3d-1111-2222-3333-444455556666";

fn stall_of(pid: u32, start: u64, cgroup: u64) -> Fact {
    let caller = Caller { comm: "train".into(), start: StartTicks(start), cgroup: CgroupId(cgroup) };
    let stall = Stall {
        state: StallState::Begin,
        begin: MonoNs(0),
        duration: Duration::from_secs(1),
        cause: Cause::DriverCall,
        confidence: Confidence::High,
        hw_id: None,
        call: None,
        victims: vec![Victim { pid: Pid(pid), tid: Tid(pid), caller: Some(caller) }],
        evidence: vec![],
    };
    let kind = FindingKind::Stall(stall);
    Fact::Finding(Box::new(Finding { id: "s".into(), at: MonoNs(9), severity: Severity::Warn, kind }))
}

fn process(start: u64, comm: &str, cgroup: &str) -> Process {
    Process {
        start: Some(StartTicks(start)),
        comm: Some(comm.into()),
        cgroup_id: None,
        cgroup: Some(cgroup.into()),
        workload: cgroup::workload(cgroup),
    }
}

fn asks(attributor: &Attributor, fact: &Fact) -> Vec<Ask> {
    let mut asks = Vec::new();
    attributor.asks(fact, &mut asks);
    asks
}

#[test]
fn the_cgroup_of_the_probe_outranks_that_of_proc() {
    let mut attributor = Attributor::default();
    let fact = stall_of(7, 100, 5);
    assert_eq!(asks(&attributor, &fact), [Ask::Cgroup(CgroupId(5), Pid(7)), Ask::Process(Pid(7))]);
    attributor.know_cgroup(CgroupId(5), Some(POD.into()));
    attributor.know_process(Pid(7), MonoNs(1), Known::Is(process(100, "python3", "/moved/elsewhere")));
    assert_eq!(asks(&attributor, &fact), [], "known by now");
    let attributed = attributor.attribute(fact);
    let found = attributed.processes[0].1.is().unwrap();
    assert_eq!((found.comm.as_deref(), found.cgroup.as_deref()), (Some("python3"), Some(POD)));
    assert_eq!(found.workload.pod_uid.as_deref(), Some("0a1b2c3d-1111-2222-3333-444455556666"));
}

#[test]
fn a_reused_pid_does_not_inherit_the_stall() {
    let mut attributor = Attributor::default();
    attributor.know_cgroup(CgroupId(5), Some(POD.into()));
    attributor.know_process(Pid(7), MonoNs(1), Known::Is(process(200, "innocent", "/other")));
    let fact = stall_of(7, 100, 5);
    assert_eq!(asks(&attributor, &fact), [Ask::Process(Pid(7))], "another start time is another process");
    let found = attributor.attribute(fact).processes[0].1.is().unwrap().clone();
    assert_eq!((found.comm.as_deref(), found.start), (Some("train"), Some(StartTicks(100))));
    assert_eq!(found.cgroup.as_deref(), Some(POD));
}

#[test]
fn a_process_that_ended_is_still_known() {
    let mut attributor = Attributor::default();
    attributor.know_process(Pid(7), MonoNs(1), Known::Is(process(100, "python3", POD)));
    attributor.know_process(Pid(7), MonoNs(2), Known::Gone);
    attributor.know_cgroup(CgroupId(5), None);
    let found = attributor.attribute(stall_of(7, 100, 5)).processes[0].1.is().unwrap().clone();
    assert_eq!(found.comm.as_deref(), Some("python3"));
    assert_eq!(found.cgroup.as_deref(), Some(POD), "the removed cgroup falls back on what /proc said");
}
