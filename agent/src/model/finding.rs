//! Findings: what the correlation concludes, before anybody knows whose it was.
//!
//! In: born in `correlate`. Out: attributed by `enrich`, then exported as log records and metrics.
//! A finding is emitted only when all evidence of its cause is there; the evidence travels with it.

use std::time::Duration;

use super::call::{LockWait, RmCall};
use super::{CallKind, Caller, DeviceNode, DriverLine, Holder, MonoNs, PciAddress, Pid, Tid, UseEvidence};

/// One conclusion.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Pairs the begin of an episode with its updates and its end; unique within a boot.
    pub id: String,
    /// When it was concluded.
    pub at: MonoNs,
    /// How loud it is.
    pub severity: Severity,
    /// What it is.
    pub kind: FindingKind,
}

/// What was concluded.
#[derive(Clone, Debug, PartialEq)]
pub enum FindingKind {
    /// A stall began, goes on or ended.
    Stall(Stall),
    /// The driver reported an error.
    Xid(Xid),
    /// A source or a device stopped to answer, or answers again.
    Status(Box<Status>),
}

/// Severity of a record; the names and numbers are OpenTelemetry's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names of the log data model")]
pub enum Severity {
    Info,
    Warn,
    Error,
    Fatal,
}

/// An episode in which a thread, or a device, was stuck.
#[derive(Clone, Debug, PartialEq)]
pub struct Stall {
    /// Begin, update or end.
    pub state: StallState,
    /// When it began.
    pub begin: MonoNs,
    /// Length so far, or in all. Unit: wall time.
    pub duration: Duration,
    /// What it is put down to.
    pub cause: Cause,
    /// How sure that is.
    pub confidence: Confidence,
    /// The device, where it is known.
    pub hw_id: Option<String>,
    /// How it is known that the victims use it; `None` where they are not what it is known by.
    pub device_by: Option<UseEvidence>,
    /// The driver call that is stuck.
    pub call: Option<StalledCall>,
    /// Who suffers.
    pub victims: Vec<Victim>,
    /// The lock that is waited for, where the cause is one.
    pub lock: Option<LockWait>,
    /// Who has it.
    pub holder: Option<Holder>,
    /// What was seen, one fact per entry.
    pub evidence: Vec<String>,
}

/// Where an episode is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallState {
    /// Past its threshold, and still going.
    Begin,
    /// Still going; sent once a minute.
    Update,
    /// Over; the length is exact.
    End,
    /// No longer watched (a lost return, the agent stopped): the length is a bound, not a measurement.
    Unobserved,
}

/// The call a stalled thread is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StalledCall {
    /// Kind of call.
    pub kind: CallKind,
    /// ioctl command; 0 for others.
    pub op: u32,
    /// The driver's short name.
    pub driver: Option<String>,
    /// Node, where known.
    pub device: Option<DeviceNode>,
    /// Name of the node, where the probe saw a path.
    pub node: Option<String>,
    /// The driver's function, for a call that is known by it.
    pub function: Option<String>,
    /// What the resource manager was asked for, where the probe sees it.
    pub rm: Option<RmCall>,
    /// `NV_STATUS`, once the resource manager answered. Trap: a call that returned 0 may have failed by it.
    pub status: Option<u32>,
    /// What it returned, once it did.
    pub ret: Option<i64>,
}

/// A thread that suffers from a stall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// What the probe knew of it.
    pub caller: Option<Caller>,
}

/// Why GPU time was lost; numbers are the rows of the cause table in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Row 1: a thread is inside the driver longer than its threshold.
    DriverCall,
    /// Row 2: a thread waits for one of the driver's locks, and it is known who has it.
    DriverLock,
    /// Row 18: the lock is of a process that has ended.
    DeadHolder,
    /// Row 19: a device is opened and brought up first, and not for the first time, or for very long.
    SlowOpen,
}

impl Cause {
    /// All causes that can be emitted.
    pub const ALL: &[Self] = &[Self::DriverCall, Self::DriverLock, Self::DeadHolder, Self::SlowOpen];

    /// `gpu.stall.cause` on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::DriverCall => "driver_call",
            Self::DriverLock => "driver_lock",
            Self::DeadHolder => "dead_holder",
            Self::SlowOpen => "slow_open",
        }
    }
}

/// How sure a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// The thread was seen inside the call.
    High,
    /// The entry is open, but the thread could not be looked at; or its process has so far done nothing but watch.
    Low,
}

impl Confidence {
    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
        }
    }
}

/// An error the driver reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Xid {
    /// The XID.
    pub code: u32,
    /// The GPU's address.
    pub pci: Option<PciAddress>,
    /// The GPU's `hw.id`, where the address is known.
    pub hw_id: Option<String>,
    /// The catalogue's short name; `unknown` for a code it lacks.
    pub name: String,
    /// The catalogue's class; `unknown` for a code it lacks.
    pub class: String,
    /// The catalogue's severity word, `info` for XID 154 going back to none; `unknown` for a code it lacks.
    pub severity: String,
    /// The catalogue's action; `unknown` for a code it lacks.
    pub action: String,
    /// The process the line names.
    pub pid: Option<Pid>,
    /// Who said so.
    pub source: XidSource,
    /// The line itself; what stands for it where the kernel log had none.
    pub line: Box<DriverLine>,
}

/// Who told of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XidSource {
    /// A line of the kernel log.
    KernelLog,
    /// A probe on the driver's function for errors alone: the driver may have been told not to print.
    DriverProbe,
}

impl XidSource {
    /// `gpu.xid.source` on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::KernelLog => "kernel_log",
            Self::DriverProbe => "driver_probe",
        }
    }
}

/// Whether a source of measurements, or a device, answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it is from now on.
    pub state: StatusState,
    /// The source, for an episode of a source: `dcgm` or `nvml`.
    pub source: Option<&'static str>,
    /// The device, or the one that a late call is about.
    pub hw_id: Option<String>,
    /// Why, in the source's own word.
    pub reason: Option<String>,
    /// The call that is late.
    pub call: Option<String>,
    /// When the episode began; of a late call, when the call began.
    pub since: MonoNs,
    /// When it ended; `None` while it lasts.
    pub end: Option<MonoNs>,
}

/// What a source or a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusState {
    /// It answers.
    Up,
    /// Alive, with a call that is late.
    Slow,
    /// Gone.
    Down,
    /// Let go of on purpose.
    Released,
    /// A device that does not answer any more.
    Lost,
    /// A device that is being reset.
    Resetting,
    /// A device that was taken away.
    Gone,
}

impl StatusState {
    /// `gpu.status.state` on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Slow => "slow",
            Self::Down => "down",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Resetting => "resetting",
            Self::Gone => "gone",
        }
    }
}

impl Status {
    /// Who it is about: the source, else the device.
    pub fn of(&self) -> &str {
        self.source.or(self.hw_id.as_deref()).unwrap_or("?")
    }
}
