//! What calls into the driver add up to, since the previous reading.
//!
//! In: differences of the kernel programs' running sums. Out: the contents of their [`super::Signal`]s.
//! What can go wrong: nothing; each says by `last` when its process is gone and its counts are complete.

use std::time::Duration;

use super::lock::LockMode;
use super::{CgroupId, LatencyDelta, Pid};

/// Calls into the resource manager (RM) of one process, operation and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RmCalls {
    /// The process; it may be gone by now.
    pub pid: Pid,
    /// Its cgroup when it made the calls, taken in the probe.
    pub cgroup: CgroupId,
    /// The escape: which kind of call. Source: the low 8 bits of the ioctl command, without the wrapper for large blocks.
    pub escape: u32,
    /// The control command or the class of the allocation; 0 for other escapes.
    pub code: u32,
    /// `NV_STATUS`; `None` where the call's parameters have none that is known.
    pub status: Option<u32>,
    /// Calls that came back.
    pub calls: u64,
    /// Time inside RM.
    pub time: Duration,
    /// The process is gone and its counts are complete.
    pub last: bool,
}

/// Waits of one process for one lock that were not over at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaits {
    /// The process; it may be gone by now.
    pub pid: Pid,
    /// Its cgroup when it waited, taken in the probe.
    pub cgroup: CgroupId,
    /// The lock's name.
    pub lock: String,
    /// How it wanted the lock.
    pub mode: LockMode,
    /// The waits. Trap: those shorter than 10 µs are not among them.
    pub waits: LatencyDelta,
    /// The process is gone and its counts are complete.
    pub last: bool,
}

/// Work of unified memory. It runs in threads of the kernel for whoever needs it: it is the node's, nobody's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UvmWork {
    /// What was done.
    pub kind: UvmWorkKind,
    /// How often and for how long.
    pub latency: LatencyDelta,
}

/// Kinds of work of unified memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UvmWorkKind {
    /// A batch of page faults of a GPU was served.
    Service,
    /// Pages were moved out of a GPU's memory.
    Eviction,
}

/// Where threads of a process were while they did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// The process.
    pub pid: Pid,
    /// Why they left the processor.
    pub reason: OffCpuReason,
    /// How often.
    pub times: u64,
    /// Until they were woken.
    pub waited: Duration,
    /// From there until they ran.
    pub queued: Duration,
    /// The process is gone or no longer followed, and its counts are complete.
    pub last: bool,
}

/// Why a thread left the processor: the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OffCpuReason {
    /// It waits for one of the driver's locks.
    DriverLock,
    /// It is in a page fault on managed memory.
    Fault,
    /// It is in a call into the driver.
    DriverCall,
    /// It could have gone on, and another thread was given the processor.
    Preempted,
    /// It waits and cannot be interrupted (state D): mostly for a disk.
    Uninterruptible,
    /// It waits for anything else (state S).
    Sleep,
}

impl OffCpuReason {
    /// All of them, in the order of the kernel programs' numbers.
    pub const ALL: [Self; 6] = [
        Self::DriverLock,
        Self::Fault,
        Self::DriverCall,
        Self::Preempted,
        Self::Uninterruptible,
        Self::Sleep,
    ];

    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::DriverLock => "driver_lock",
            Self::Fault => "fault",
            Self::DriverCall => "driver_call",
            Self::Preempted => "preempted",
            Self::Uninterruptible => "uninterruptible",
            Self::Sleep => "sleep",
        }
    }
}
