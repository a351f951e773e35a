//! Findings for the tests of the exporters.
//!
//! In: nothing. Out: one stall, one XID and one status with everything filled in, to be changed where a test needs it.
//! Nothing can go wrong.

use std::time::Duration;

use crate::model::call::{LockWait, RmCall};
use crate::model::driver_log::XidLine;
use crate::model::finding::StalledCall;
use crate::model::finding::StatusState;
use crate::model::{
    Attributed, CallKind, Caller, Cause, CgroupId, Confidence, DeviceNode, DriverLine, Finding, FindingKind,
    Holder, Known, LineKind, LogOrigin, MonoNs, PciAddress, Pid, Process, Severity, Stall, StallState,
    StartTicks, Status, Tid, Victim, WallAnchor, WallNs, Workload, Xid, XidSource,
};

/// 100 s after boot it was 2023-11-14T22:13:20Z.
pub(crate) const NOW: WallAnchor =
    WallAnchor { mono: MonoNs(100_000_000_000), wall: WallNs(1_700_000_000_000_000_000) };

/// A process in a container of a pod.
pub(crate) fn trainer() -> Process {
    Process {
        start: Some(StartTicks(5)),
        comm: Some("python3".into()),
        cgroup_id: Some(CgroupId(9)),
        cgroup: Some("/kubepods.slice/pod.slice/c.scope".into()),
        workload: Workload {
            container_id: Some("ab12".into()),
            pod_uid: Some("6f1c".into()),
            ..Workload::default()
        },
    }
}

/// A finding about process 77, which is [`trainer`].
pub(crate) fn about_77(finding: Finding) -> Attributed<Finding> {
    Attributed { item: finding, processes: vec![(Pid(77), Known::Is(trainer()))] }
}

/// Process 77 is in the container `main` of the pod `ml/train-0`, process 99 in the pod `ml/probe-7`.
pub(crate) fn named(mut fact: Attributed<Finding>) -> Attributed<Finding> {
    let name = |name: &str| Some(name.to_owned());
    for (pid, known) in &mut fact.processes {
        let Known::Is(process) = known else { continue };
        let workload = &mut process.workload;
        (workload.namespace, workload.pod, workload.container) = (name("ml"), name("train-0"), name("main"));
        if *pid == Pid(99) {
            (workload.pod, workload.container) = (name("probe-7"), None);
        }
    }
    fact
}

/// A stall of 2.5 s that began 97 s after boot.
pub(crate) fn stall(state: StallState) -> Attributed<Finding> {
    let caller = Caller { comm: "worker-0".into(), start: StartTicks(5), cgroup: CgroupId(9) };
    let stall = Stall {
        state,
        begin: MonoNs(97_000_000_000),
        duration: Duration::from_millis(2_500),
        cause: Cause::DriverCall,
        confidence: Confidence::High,
        hw_id: None,
        device_by: None,
        call: Some(StalledCall {
            kind: CallKind::Ioctl,
            op: 0xc020_462a,
            driver: Some("nvidia".into()),
            device: Some(DeviceNode { major: 195, minor: 255 }),
            node: Some("nvidiactl".into()),
            function: None,
            rm: None,
            status: None,
            ret: None,
        }),
        victims: vec![Victim { pid: Pid(77), tid: Tid(78), caller: Some(caller) }],
        lock: None,
        holder: None,
        evidence: vec!["in the call for 2.5 s".into(), "state D".into()],
    };
    let (id, at) = ("stall-1".to_owned(), MonoNs(99_500_000_000));
    about_77(Finding { id, at, severity: Severity::Warn, kind: FindingKind::Stall(stall) })
}

/// The same stall, put down to process 99, which has the lock since 96 s after boot.
pub(crate) fn lock_stall() -> Attributed<Finding> {
    let mut fact = stall(StallState::Begin);
    let FindingKind::Stall(stall) = &mut fact.item.kind else { return fact };
    let caller = Caller { comm: "nvidia-smi".into(), start: StartTicks(6), cgroup: CgroupId(10) };
    stall.cause = Cause::DriverLock;
    stall.lock = Some(LockWait { lock: "rm_api".into(), exclusive: true });
    stall.holder = Some(Holder {
        pid: Pid(99),
        tid: Tid(100),
        caller: Some(caller),
        since: MonoNs(96_000_000_000),
        exclusive: true,
    });
    if let Some(call) = &mut stall.call {
        call.rm = Some(RmCall { cmd: Some(0x2080_014a), class: None });
        call.status = Some(0x65);
    }
    let workload = Workload { pod_uid: Some("7a2d".into()), ..Workload::default() };
    let smi = Process { comm: Some("nvidia-smi".into()), workload, ..Process::default() };
    fact.processes.push((Pid(99), Known::Is(smi)));
    fact
}

/// XID 79 of the process, record `seq` of the kernel log, 99 s after boot.
pub(crate) fn xid(seq: Option<u64>) -> Attributed<Finding> {
    let raw = "NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=python3, GPU has fallen off the bus.".to_owned();
    let pci = PciAddress::parse("0000:3b:00");
    let line = XidLine {
        code: 79,
        pci,
        gpu_instance: Some(1),
        pid: Some(Pid(77)),
        name: Some("python3".into()),
        ..XidLine::default()
    };
    let origin = LogOrigin { seq, level: Some(4), backlog: false };
    let xid = Xid {
        code: 79,
        pci,
        hw_id: Some("GPU-1".into()),
        name: "fallen off the bus".into(),
        class: "bus".into(),
        severity: "fatal".into(),
        action: "reset".into(),
        source: XidSource::KernelLog,
        pid: Some(Pid(77)),
        line: Box::new(DriverLine { kind: LineKind::Xid(line), raw, origin }),
    };
    let (id, at) = ("xid-9".to_owned(), MonoNs(99_000_000_000));
    about_77(Finding { id, at, severity: Severity::Fatal, kind: FindingKind::Xid(xid) })
}

/// An engine that is slow since 95 s after boot, told 98 s after boot; or its end 1.5 s later.
pub(crate) fn status(over: bool) -> Attributed<Finding> {
    let at = MonoNs(if over { 99_500_000_000 } else { 98_000_000_000 });
    let status = Status {
        state: if over { StatusState::Up } else { StatusState::Slow },
        source: Some("dcgm"),
        hw_id: Some("GPU-1".into()),
        reason: Some("slow".into()),
        call: Some("dcgmUpdateAllFields".into()),
        since: MonoNs(95_000_000_000),
        end: over.then_some(at),
    };
    let (id, kind) = ("status-1".to_owned(), FindingKind::Status(Box::new(status)));
    Attributed { item: Finding { id, at, severity: Severity::Warn, kind }, processes: Vec::new() }
}
