//! Attribution, told what it needs to know.

use super::pod_names::{Pod, PodUid};
use super::*;
use crate::model::driver_log::XidLine;
use crate::model::signal::AllocationSource;
use crate::model::signal::{GpuContext, GpuProcess, GpuProcesses};
use crate::model::{
    Cause, Confidence, DriverLine, Finding, Holder, LogOrigin, Severity, Stall, StallState, StartTicks, Tid,
    Victim, Xid, XidSource,
};

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
        device_by: None,
        call: None,
        victims: vec![Victim { pid: Pid(pid), tid: Tid(pid), caller: Some(caller) }],
        lock: None,
        holder: None,
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

fn asks(attributor: &mut Attributor, fact: &Fact) -> Vec<Ask> {
    let mut asks = Vec::new();
    attributor.asks(fact, &mut asks);
    asks
}

#[test]
fn the_cgroup_of_the_probe_outranks_that_of_proc() {
    let mut attributor = Attributor::default();
    let fact = stall_of(7, 100, 5);
    assert_eq!(asks(&mut attributor, &fact), [Ask::Cgroup(CgroupId(5), Pid(7)), Ask::Process(Pid(7))]);
    attributor.know_cgroup(CgroupId(5), MonoNs(1), Some(POD.into()));
    attributor.know_process(Pid(7), MonoNs(1), Known::Is(process(100, "python3", "/moved/elsewhere")));
    assert_eq!(asks(&mut attributor, &fact), [], "known by now");
    let attributed = attributor.attribute(fact);
    let found = attributed.processes[0].1.is().unwrap();
    assert_eq!((found.comm.as_deref(), found.cgroup.as_deref()), (Some("python3"), Some(POD)));
    assert_eq!(found.workload.pod_uid.as_deref(), Some("0a1b2c3d-1111-2222-3333-444455556666"));
}

#[test]
fn a_reused_pid_does_not_inherit_the_stall() {
    let mut attributor = Attributor::default();
    attributor.know_cgroup(CgroupId(5), MonoNs(1), Some(POD.into()));
    attributor.know_process(Pid(7), MonoNs(1), Known::Is(process(200, "innocent", "/other")));
    let fact = stall_of(7, 100, 5);
    assert_eq!(asks(&mut attributor, &fact), [Ask::Process(Pid(7))], "another start time is another process");
    let found = attributor.attribute(fact).processes[0].1.is().unwrap().clone();
    assert_eq!((found.comm.as_deref(), found.start), (Some("train"), Some(StartTicks(100))));
    assert_eq!(found.cgroup.as_deref(), Some(POD));
}

#[test]
fn a_process_that_ended_is_still_known() {
    let mut attributor = Attributor::default();
    attributor.know_process(Pid(7), MonoNs(1), Known::Is(process(100, "python3", POD)));
    attributor.know_process(Pid(7), MonoNs(2), Known::Gone);
    attributor.know_cgroup(CgroupId(5), MonoNs(1), None);
    let found = attributor.attribute(stall_of(7, 100, 5)).processes[0].1.is().unwrap().clone();
    assert_eq!(found.comm.as_deref(), Some("python3"));
    assert_eq!(found.cgroup.as_deref(), Some(POD), "the removed cgroup falls back on what /proc said");
}

fn xid_of(pid: u32, name: &str, at: MonoNs) -> Fact {
    let line = XidLine { code: 31, pid: Some(Pid(pid)), name: Some(name.into()), ..XidLine::default() };
    let line = DriverLine { kind: LineKind::Xid(line), raw: String::new(), origin: LogOrigin::default() };
    let word = || "unknown".to_owned();
    let xid = Xid {
        code: 31,
        pci: None,
        hw_id: None,
        name: word(),
        class: word(),
        severity: word(),
        action: word(),
        pid: Some(Pid(pid)),
        source: XidSource::KernelLog,
        line: Box::new(line),
    };
    let kind = FindingKind::Xid(xid);
    Fact::Finding(Box::new(Finding { id: "x".into(), at, severity: Severity::Warn, kind }))
}

/// A pid is used again after its process ended: the second bearer must not be taken for the first.
#[test]
fn a_line_of_the_log_is_not_put_to_a_former_bearer_of_its_pid() {
    let second = |s: u64| MonoNs(s * 1_000_000_000);
    let mut attributor = Attributor::default();
    attributor.know_process(Pid(7), second(1), Known::Is(process(100, "trainA", POD)));
    attributor.know_process(Pid(7), second(60), Known::Gone);
    let whose = |attributor: &mut Attributor, name: &str, at: MonoNs| {
        attributor.attribute(xid_of(7, name, at)).processes[0].1.clone()
    };
    assert!(whose(&mut attributor, "trainA", second(60)).is().is_some(), "it died of this error");
    assert_eq!(whose(&mut attributor, "otherB", second(60)), Known::Gone, "another name");
    attributor.know_process(Pid(7), second(5_000), Known::Gone);
    assert_eq!(whose(&mut attributor, "trainA", second(5_000)), Known::Gone, "too long ago");
}

#[test]
fn a_cgroup_that_was_not_found_is_looked_for_again_later() {
    let mut attributor = Attributor::default();
    attributor.know_process(Pid(7), MonoNs(1), Known::Is(process(100, "train", "/x")));
    attributor.know_cgroup(CgroupId(5), MonoNs(1), None);
    assert_eq!(asks(&mut attributor, &stall_of(7, 100, 5)), []);
    let mut late = stall_of(7, 100, 5);
    if let Fact::Finding(finding) = &mut late {
        finding.at = MonoNs(11_000_000_000);
    }
    assert_eq!(asks(&mut attributor, &late), [Ask::Cgroup(CgroupId(5), Pid(7))]);
}

#[test]
fn processes_of_a_device_are_asked_for_now_and_then() {
    let list = |seconds: u64| {
        let of = |pid| GpuProcess {
            pid: Pid(pid),
            memory: None,
            sm_utilization: None,
            context: GpuContext::Compute,
        };
        let processes = Box::new(GpuProcesses { hw_id: "GPU-1".into(), processes: vec![of(7), of(8)] });
        Fact::Reading(Signal::Processes { at: MonoNs(seconds * 1_000_000_000), processes })
    };
    let mut attributor = Attributor::default();
    let both = [Ask::Process(Pid(7)), Ask::Process(Pid(8))];
    assert_eq!(asks(&mut attributor, &list(1)), both);
    attributor.know_process(Pid(7), MonoNs(1_000_000_000), Known::Is(process(100, "python3", POD)));
    attributor.know_process(Pid(8), MonoNs(1_000_000_000), Known::Denied);
    assert_eq!(asks(&mut attributor, &list(10)), []);
    assert_eq!(asks(&mut attributor, &list(11)), both, "a pid may be another process by now");
    let attributed = attributor.attribute(list(2));
    let (pid, known) = &attributed.processes[0];
    let pod = known.is().and_then(|process| process.workload.pod_uid.as_deref());
    assert_eq!((pid, pod), (&Pid(7), Some("0a1b2c3d-1111-2222-3333-444455556666")));
    assert_eq!(attributed.processes[1], (Pid(8), Known::Denied));
}

#[test]
fn the_holder_of_a_lock_is_somebody_elses_process() {
    let mut fact = stall_of(7, 100, 5);
    let Fact::Finding(finding) = &mut fact else { panic!("a finding") };
    let FindingKind::Stall(stall) = &mut finding.kind else { panic!("a stall") };
    let caller = Caller { comm: "smi".into(), start: StartTicks(200), cgroup: CgroupId(6) };
    stall.holder =
        Some(Holder { pid: Pid(9), tid: Tid(9), caller: Some(caller), since: MonoNs(0), exclusive: true });
    let mut attributor = Attributor::default();
    let want = [
        Ask::Cgroup(CgroupId(5), Pid(7)),
        Ask::Process(Pid(7)),
        Ask::Cgroup(CgroupId(6), Pid(9)),
        Ask::Process(Pid(9)),
    ];
    assert_eq!(asks(&mut attributor, &fact), want);
    attributor.know_cgroup(CgroupId(6), MonoNs(1), Some(POD.into()));
    let attributed = attributor.attribute(fact);
    let pids: Vec<u32> = attributed.processes.iter().map(|(pid, _)| pid.0).collect();
    assert_eq!(pids, [7, 9]);
    let holder = attributed.processes[1].1.is().unwrap();
    assert_eq!((holder.comm.as_deref(), holder.cgroup.as_deref()), (Some("smi"), Some(POD)));
}

#[test]
fn a_process_that_runs_another_program_stays_in_its_cgroup() {
    let mut attributor = Attributor::default();
    let exec = Process {
        start: Some(StartTicks(100)),
        comm: Some("python3".into()),
        cgroup_id: Some(CgroupId(5)),
        ..Process::default()
    };
    let fact = Fact::Reading(Signal::Process { at: MonoNs(1), pid: Pid(7), process: Some(Box::new(exec)) });
    assert_eq!(asks(&mut attributor, &fact), [Ask::Cgroup(CgroupId(5), Pid(7))]);
    attributor.know_cgroup(CgroupId(5), MonoNs(1), Some(POD.into()));
    attributor.attribute(fact);
    let attributed = attributor.attribute(xid_of(7, "python3", MonoNs(2)));
    let found = attributed.processes[0].1.is().unwrap();
    assert_eq!((found.comm.as_deref(), found.cgroup.as_deref()), (Some("python3"), Some(POD)));
}

const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

/// The pod `ml/train-0` of [`UID`], with its container of sixty-four times `a`.
fn train_0() -> Listing {
    let uid = PodUid::parse(UID).unwrap();
    let pod =
        Pod { uid: UID.into(), namespace: "ml".into(), name: "train-0".into(), made_ns: 0, lives: false };
    let id = ContainerId::parse(&"a".repeat(64)).unwrap();
    let container = Container { namespace: "ml".into(), pod: "train-0".into(), name: "main".into() };
    Listing { pods: Some(vec![(uid, pod)]), containers: Some(vec![(id, container)]) }
}

fn names_of(fact: &Attributed<Fact>) -> [Option<&str>; 3] {
    let workload = &fact.processes[0].1.is().unwrap().workload;
    [&workload.namespace, &workload.pod, &workload.container].map(Option::as_deref)
}

#[test]
fn names_are_asked_for_when_they_are_lacking_and_used_from_then_on() {
    let second = |s: u64| MonoNs(s * 1_000_000_000);
    let mut attributor = Attributor::default();
    let path = format!("{POD}/{}", "a".repeat(64));
    attributor.know_cgroup(CgroupId(5), second(1), Some(path));
    let fact = || stall_of(7, 100, 5);
    let mut attributed = attributor.attribute(fact());
    assert_eq!(names_of(&attributed), [None; 3]);
    let who = (PodUid::parse(UID).unwrap(), ContainerId::parse(&"a".repeat(64)));
    let ask = |attributor: &mut Attributor, fact: &Attributed<Fact>, at| {
        let mut asks = Vec::new();
        attributor.name_asks(fact, at, &mut asks);
        asks
    };
    assert_eq!(ask(&mut attributor, &attributed, second(1)), [Ask::Names(Some(who))]);
    assert_eq!(ask(&mut attributor, &attributed, MonoNs(1_900_000_000)), [], "at most once a second");
    assert_eq!(ask(&mut attributor, &attributed, second(2)), [Ask::Names(Some(who))]);
    attributor.know_names(train_0());
    attributor.name(&mut attributed);
    let want = ["ml", "train-0", "main"].map(Some);
    assert_eq!((names_of(&attributed), ask(&mut attributor, &attributed, second(9))), (want, vec![]));
    assert_eq!(names_of(&attributor.attribute(fact())), want);
    attributor.know_names(Listing::default());
    attributor.know_names(Listing { pods: Some(vec![]), containers: Some(vec![]) });
    assert_eq!(names_of(&attributor.attribute(fact())), want, "what is said of it late has its names still");
}

#[test]
fn an_allocation_is_told_again_when_its_uid_becomes_known() {
    let second = |s: u64| MonoNs(s * 1_000_000_000);
    let mut attributor = Attributor::default();
    let allocation = Allocation {
        hw_id: "GPU-1".into(),
        pod_uid: None,
        pod: Some("train-0".into()),
        namespace: Some("ml".into()),
        container: Some("main".into()),
        job: None,
        how: AllocationSource::PodResources,
        shares: vec![],
        end: false,
    };
    let fact = |at| Fact::Reading(Signal::Allocation { at, allocation: Box::new(allocation.clone()) });
    let uid = |fact: &Attributed<Fact>| {
        let Fact::Reading(Signal::Allocation { at, allocation }) = &fact.item else { panic!("{fact:?}") };
        (*at, allocation.pod_uid.clone())
    };
    assert_eq!(uid(&attributor.attribute(fact(second(1)))), (second(1), None));
    let mut asks = Vec::new();
    attributor.uid_asks(second(1), &mut asks);
    attributor.uid_asks(second(1), &mut asks);
    assert_eq!(asks, [Ask::Names(None)]);
    attributor.know_names(train_0());
    let mut told = Vec::new();
    attributor.late(second(3), &mut told);
    attributor.late(second(4), &mut told);
    assert_eq!(told.iter().map(uid).collect::<Vec<_>>(), [(second(3), Some(UID.to_owned()))]);
    assert_eq!(uid(&attributor.attribute(fact(second(5)))), (second(5), Some(UID.to_owned())), "at once now");
}

#[test]
fn what_is_over_is_forgotten_and_what_is_quiet_is_asked_for() {
    let mut attributor = Attributor::default();
    let [gone, quiet, heard] = [5, 6, 7].map(CgroupId);
    for id in [gone, quiet, heard] {
        attributor.know_cgroup(id, MonoNs(1), Some(POD.into()));
    }
    attributor.know_process(Pid(7), MonoNs(1), Known::Is(process(100, "python3", POD)));
    // Whom it asks for, in order, and whether it knows the process.
    let mut asked = |seconds: u64| {
        let at = MonoNs(seconds * 1_000_000_000);
        attributor.ask_cgroup(heard, Pid(8), at, &mut Vec::new());
        let mut asks = Vec::new();
        attributor.uid_asks(at, &mut asks);
        let mut ids: Vec<CgroupId> = asks
            .iter()
            .map(|ask| match ask {
                Ask::Still(id) => *id,
                other => panic!("{other:?}"),
            })
            .collect();
        ids.sort();
        for id in &ids {
            assert_eq!(attributor.cgroup(*id), Some(POD));
            attributor.know_still(*id, at, *id == quiet);
        }
        (ids, attributor.processes.get(Pid(7)).is_some())
    };
    assert_eq!(asked(599), (vec![], true));
    assert_eq!(asked(620), (vec![], true), "not each time");
    assert_eq!(asked(700), (vec![gone, quiet], false), "a process that may be another one by now");
    assert_eq!(asked(1_200), (vec![], false));
    assert_eq!(asked(1_400), (vec![quiet], false));
    assert_eq!([gone, quiet, heard].map(|id| attributor.cgroup(id).is_some()), [false, true, true]);
}
