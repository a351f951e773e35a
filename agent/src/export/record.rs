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
    Attributed, Finding, FindingKind, Known, LineKind, Pid, Process, Severity, Stall, StallState,
    UseEvidence, WallAnchor, WallNs, Xid, rm,
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
        put(&mut attributes, "gpu.device.evidence", stall.device_by.map(UseEvidence::name));
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
#[path = "record_tests.rs"]
mod tests;
