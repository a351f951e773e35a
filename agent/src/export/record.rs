//! Log records of findings, as no protocol writes them yet.
//!
//! In: attributed findings. Out: [`Record`]s with a `log.record.uid` that is the same whenever the record is sent again.
//! A record's time minus its `gpu.stall.duration` is always the moment the stall began.
//! What can go wrong: a process is not known; the record then says why (`warpgauge.attribution.reason`).

use std::time::Duration;

use super::status_record;
use super::whose::process_of;
use crate::model::operation::Majors;
use crate::model::{
    Attributed, Finding, FindingKind, Known, LineKind, Pid, Process, Severity, Stall, StallState, WallAnchor,
    WallNs, Xid, rm,
};

/// The event that tells of the gap before this run.
pub const GAP_EVENT: &str = "warpgauge.restart";

/// One log record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// `gpu.stall`, `gpu.xid`, `gpu.status` or `warpgauge.restart`.
    pub event_name: &'static str,
    /// How loud it is.
    pub severity: Severity,
    /// When it happened.
    pub time: WallNs,
    /// When this agent made the record.
    pub observed: WallNs,
    /// One sentence for people.
    pub body: String,
    /// Everything that is known, one name once; `log.record.uid` is among them.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// Sequence number in the kernel log, where it came from there: such a record can be read again.
    pub seq: Option<u64>,
}

/// The value of a record's attribute.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Attribute {
    Text(String),
    Int(i64),
    Double(f64),
    Bool(bool),
    List(Vec<String>),
}

type Attributes = Vec<(&'static str, Attribute)>;

/// Makes records of one boot.
#[derive(Clone, Debug)]
pub struct Recorder {
    boot_id: String,
}

/// The previous run ended without notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When it was last known to run.
    pub last_seen: WallNs,
    /// The machine was started again since.
    pub rebooted: bool,
}

impl Recorder {
    /// Records carry this boot id, as /proc/sys/kernel/random/boot_id prints it.
    pub fn new(boot_id: impl Into<String>) -> Self {
        Self { boot_id: boot_id.into() }
    }

    /// The record of a finding; `now` is the time of making it.
    pub fn finding(
        &self,
        finding: &Finding,
        fact: &Attributed<impl Sized>,
        majors: &Majors,
        now: WallAnchor,
    ) -> Record {
        match &finding.kind {
            FindingKind::Stall(stall) => self.stall(finding, stall, fact, majors, now),
            FindingKind::Xid(xid) => self.xid(finding, xid, fact, now),
            FindingKind::Status(status) => status_record::of(&self.boot_id, finding, status, now),
        }
    }

    /// The record of a gap between two runs.
    pub fn gap(&self, gap: &Gap, now: WallAnchor) -> Record {
        let length = Duration::from_nanos(now.wall.0.saturating_sub(gap.last_seen.0));
        let what = if gap.rebooted { "the machine was restarted" } else { "the agent was killed" };
        let attributes = vec![
            ("warpgauge.restart.reason", text(if gap.rebooted { "reboot" } else { "killed" })),
            ("warpgauge.restart.gap", Attribute::Double(length.as_secs_f64())),
            ("log.record.uid", text(format!("{}:restart:{}", self.boot_id, now.mono.0))),
        ];
        let seconds = length.as_secs_f64();
        let body = format!("{what}: {seconds:.1} s without observation; what was only in memory is lost");
        let (event_name, severity) = (GAP_EVENT, Severity::Warn);
        Record { event_name, severity, time: now.wall, observed: now.wall, body, attributes, seq: None }
    }

    fn stall(
        &self,
        finding: &Finding,
        stall: &Stall,
        fact: &Attributed<impl Sized>,
        majors: &Majors,
        now: WallAnchor,
    ) -> Record {
        let state = state_name(stall.state);
        let mut attributes = vec![
            ("gpu.stall.id", text(&finding.id)),
            ("gpu.stall.state", text(state)),
            ("gpu.stall.cause", text(stall.cause.name())),
            ("gpu.stall.duration", Attribute::Double(stall.duration.as_secs_f64())),
            ("gpu.stall.confidence", text(stall.confidence.name())),
            ("gpu.stall.evidence", Attribute::List(stall.evidence.clone())),
        ];
        put(&mut attributes, "hw.id", stall.hw_id.as_ref());
        if let Some(call) = &stall.call {
            attributes.push(("gpu.driver.call", text(call.kind.name())));
            put(&mut attributes, "gpu.driver.device", call.device);
            put(&mut attributes, "gpu.driver.node", call.node.as_deref().map(node_path));
            put(&mut attributes, "gpu.driver.operation", majors.operation(call.kind, call.op, call.device));
            put(&mut attributes, "gpu.driver.function", call.function.as_ref());
            let asked = call.rm.and_then(|rm| rm.cmd.map(rm::control).or_else(|| rm.class.map(rm::class)));
            put(&mut attributes, "gpu.driver.rm.operation", asked);
            put(&mut attributes, "gpu.driver.rm.status", call.status.map(rm::status));
            attributes.extend(call.ret.map(|ret| ("gpu.driver.return", Attribute::Int(ret))));
        }
        put_lock(&mut attributes, stall, fact);
        let mut who = String::from("a thread");
        if let Some(victim) = stall.victims.first() {
            let known = process_of(fact, victim.pid);
            attributes.push(("thread.id", Attribute::Int(i64::from(victim.tid.0))));
            put(&mut attributes, "thread.name", victim.caller.as_ref().map(|caller| &caller.comm));
            put_process(&mut attributes, victim.pid, known);
            let comm = known.is().and_then(|process| process.comm.as_deref());
            who = format!("{} ({})", comm.unwrap_or("process"), victim.pid.0);
        }
        if stall.victims.len() > 1 {
            attributes.push(("gpu.stall.victims", Attribute::Int(stall.victims.len() as i64)));
        }
        let moment = match stall.state {
            StallState::Update => format!(":update:{}", finding.at.0),
            StallState::Begin | StallState::End | StallState::Unobserved => format!(":{state}"),
        };
        attributes.push(("log.record.uid", text(format!("{}:{}{moment}", self.boot_id, finding.id))));
        let time = now.wall(stall.begin.after(stall.duration));
        let body = format!("{who} {}", stall_sentence(stall));
        let (event_name, severity, observed) = ("gpu.stall", finding.severity, now.wall);
        Record { event_name, severity, time, observed, body, attributes, seq: None }
    }

    fn xid(&self, finding: &Finding, xid: &Xid, fact: &Attributed<impl Sized>, now: WallAnchor) -> Record {
        let origin = &xid.line.origin;
        let mut attributes = vec![
            ("gpu.xid.code", Attribute::Int(i64::from(xid.code))),
            ("gpu.xid.name", text(&xid.name)),
            ("gpu.xid.class", text(&xid.class)),
            ("gpu.xid.severity", text(&xid.severity)),
            ("gpu.xid.action", text(&xid.action)),
            ("gpu.xid.source", text(xid.source.name())),
            ("gpu.xid.backlog", Attribute::Bool(origin.backlog)),
            ("gpu.xid.text", text(&xid.line.raw)),
        ];
        put(&mut attributes, "hw.id", xid.hw_id.as_ref());
        put(&mut attributes, "gpu.pci.address", xid.pci);
        let LineKind::Xid(line) = &xid.line.kind;
        let mut number = |name, value: Option<u32>| {
            attributes.extend(value.map(|n| (name, Attribute::Int(i64::from(n)))));
        };
        number("gpu.mig.gpu_instance.id", line.gpu_instance);
        number("gpu.mig.compute_instance.id", line.compute_instance);
        number("gpu.xid.cause.code", line.cause_code);
        if let Some(pid) = xid.pid {
            let known = process_of(fact, pid);
            put_process(&mut attributes, pid, known);
            // The line's own word for the process is better than none; the process may be gone.
            if known.is().is_none_or(|process| process.comm.is_none()) {
                put(&mut attributes, "process.executable.name", line.name.as_ref());
            }
        }
        let uid = match origin.seq {
            Some(seq) => format!("{}:{seq}", self.boot_id),
            None => format!("{}:{}", self.boot_id, finding.id),
        };
        attributes.push(("log.record.uid", text(uid)));
        let (event_name, severity, time) = ("gpu.xid", finding.severity, now.wall(finding.at));
        let body = xid.line.raw.clone();
        Record { event_name, severity, time, observed: now.wall, body, attributes, seq: origin.seq }
    }
}

/// `gpu.stall.state` on the wire.
pub fn state_name(state: StallState) -> &'static str {
    match state {
        StallState::Begin => "begin",
        StallState::Update => "update",
        StallState::End => "end",
        StallState::Unobserved => "unobserved",
    }
}

/// What happened, without who.
fn stall_sentence(stall: &Stall) -> String {
    let seconds = stall.duration.as_secs_f64();
    match stall.state {
        StallState::Begin | StallState::Update => {
            format!("has been inside the GPU driver for {seconds:.1} s")
        }
        StallState::End => format!("was inside the GPU driver for {seconds:.3} s"),
        StallState::Unobserved => {
            format!("was inside the GPU driver for up to {seconds:.1} s; its return was not seen")
        }
    }
}

/// The probe gives the last part of the path.
fn node_path(node: &str) -> String {
    if node.starts_with('/') { node.to_owned() } else { format!("/dev/{node}") }
}

fn text(value: impl Into<String>) -> Attribute {
    Attribute::Text(value.into())
}

fn put(attributes: &mut Attributes, name: &'static str, value: Option<impl ToString>) {
    attributes.extend(value.map(|value| (name, Attribute::Text(value.to_string()))));
}

fn put_process(attributes: &mut Attributes, pid: Pid, known: &Known<Process>) {
    attributes.push(("process.pid", Attribute::Int(i64::from(pid.0))));
    put(attributes, "warpgauge.attribution.reason", known.reason());
    let Some(process) = known.is() else { return };
    put(attributes, "process.executable.name", process.comm.as_ref());
    put(attributes, "process.linux.cgroup", process.cgroup.as_ref());
    let workload = &process.workload;
    put(attributes, "systemd.unit", workload.systemd_unit.as_ref());
    put(attributes, "container.id", workload.container_id.as_ref());
    put(attributes, "k8s.pod.uid", workload.pod_uid.as_ref());
    put(attributes, "k8s.namespace.name", workload.namespace.as_ref());
    put(attributes, "k8s.pod.name", workload.pod.as_ref());
    put(attributes, "k8s.container.name", workload.container.as_ref());
    put(attributes, "slurm.job.id", workload.slurm_job.as_ref());
    put(attributes, "slurm.step.id", workload.slurm_step.as_ref());
}

/// The lock a stall is put down to, and who has it: not the victim, and often the one to talk to.
fn put_lock(attributes: &mut Attributes, stall: &Stall, fact: &Attributed<impl Sized>) {
    if let Some(wait) = &stall.lock {
        attributes.push(("gpu.driver.lock.name", text(&wait.lock)));
        attributes.push(("gpu.driver.lock.mode", text(if wait.exclusive { "write" } else { "read" })));
    }
    let Some(holder) = &stall.holder else { return };
    attributes.push(("gpu.stall.holder.pid", Attribute::Int(i64::from(holder.pid.0))));
    attributes.push(("gpu.stall.holder.thread.id", Attribute::Int(i64::from(holder.tid.0))));
    let comm = holder.caller.as_ref().map(|caller| &caller.comm);
    put(attributes, "gpu.stall.holder.thread.name", comm);
    let held = stall.begin.after(stall.duration).since(holder.since);
    attributes.extend(held.map(|held| ("gpu.stall.holder.duration", Attribute::Double(held.as_secs_f64()))));
    let known = process_of(fact, holder.pid);
    put(attributes, "gpu.stall.holder.attribution.reason", known.reason());
    let Some(process) = known.is() else { return };
    put(attributes, "gpu.stall.holder.executable.name", process.comm.as_ref());
    put(attributes, "gpu.stall.holder.cgroup", process.cgroup.as_ref());
    let workload = &process.workload;
    put(attributes, "gpu.stall.holder.systemd.unit", workload.systemd_unit.as_ref());
    put(attributes, "gpu.stall.holder.container.id", workload.container_id.as_ref());
    put(attributes, "gpu.stall.holder.pod.uid", workload.pod_uid.as_ref());
    put(attributes, "gpu.stall.holder.pod.name", workload.pod.as_ref());
    put(attributes, "gpu.stall.holder.namespace.name", workload.namespace.as_ref());
    put(attributes, "gpu.stall.holder.slurm.job.id", workload.slurm_job.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::samples::{self, NOW};

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
}
