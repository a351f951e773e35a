//! Driver calls in progress, and what a thread is doing while it is in one.
//!
//! In: the probes' in-flight records and ring-buffer events, or `call` and `thread` lines of a replay.
//! Out: [`Call`] and [`ThreadState`] inside [`super::Signal`].
//! What can go wrong: a return may be lost (a tracepoint program can be skipped); only [`Inside::Outside`] proves it.

use super::{CgroupId, DeviceNode, Pid, StartTicks, Tid};

/// One edge of one call into the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The calling process.
    pub pid: Pid,
    /// The calling thread.
    pub tid: Tid,
    /// What kind of call.
    pub kind: CallKind,
    /// The ioctl command as called (all 32 bits), or its number alone in a replay; 0 for other calls.
    pub op: u32,
    /// The driver's short name: `nvidia`, `uvm`; `None` for a device that is watched by configuration.
    pub driver: Option<String>,
    /// The node called; `None` while an `open` has not returned.
    pub device: Option<DeviceNode>,
    /// For an `open`: the path's last part, such as `nvidia0`.
    pub node: Option<String>,
    /// The kernel function, for [`CallKind::Driver`].
    pub function: Option<String>,
    /// RM command and class, where the probe sees them.
    pub rm: Option<RmCall>,
    /// The lock waited for, for [`CallKind::Lock`].
    pub lock: Option<LockWait>,
    /// Entry or return.
    pub edge: Edge,
    /// What the probe knew of the caller at entry.
    pub caller: Option<Caller>,
}

/// The calling thread, as the kernel program saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The thread's name (`comm`, at most 15 bytes). Source: `bpf_get_current_comm`.
    pub comm: String,
    /// When the process began; guards against a reused pid.
    pub start: StartTicks,
    /// The cgroup of the chosen hierarchy at the time of the call.
    pub cgroup: CgroupId,
}

/// Which way into the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKind {
    /// `ioctl(2)`.
    Ioctl,
    /// `open(2)` and its relatives.
    Open,
    /// `close(2)`: the driver's release function.
    Close,
    /// `mmap(2)`.
    Mmap,
    /// `poll(2)` and its relatives.
    Poll,
    /// A page fault on driver memory.
    Fault,
    /// Waiting for one of the driver's locks.
    Lock,
    /// A function of the driver by name.
    Driver,
}

/// Calls nest: a thread may be in one call of each layer at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names of the layers, outermost first")]
pub enum Layer {
    Syscall,
    Fault,
    Driver,
    Lock,
}

impl Layer {
    /// All layers, outermost first.
    pub const ALL: [Self; 4] = [Self::Syscall, Self::Fault, Self::Driver, Self::Lock];
}

impl CallKind {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Ioctl,
        Self::Open,
        Self::Close,
        Self::Mmap,
        Self::Poll,
        Self::Fault,
        Self::Lock,
        Self::Driver,
    ];

    /// The layer the kind belongs to.
    pub fn layer(self) -> Layer {
        match self {
            Self::Ioctl | Self::Open | Self::Close | Self::Mmap | Self::Poll => Layer::Syscall,
            Self::Fault => Layer::Fault,
            Self::Driver => Layer::Driver,
            Self::Lock => Layer::Lock,
        }
    }

    /// The name on the wire and in replay files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ioctl => "ioctl",
            Self::Open => "open",
            Self::Close => "close",
            Self::Mmap => "mmap",
            Self::Poll => "poll",
            Self::Fault => "fault",
            Self::Lock => "lock",
            Self::Driver => "driver",
        }
    }

    /// The inverse of [`Self::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

/// What RM was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmCall {
    /// Control command; its top 16 bits are the class.
    pub cmd: Option<u32>,
    /// Class of an allocation.
    pub class: Option<u32>,
}

/// A wait for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// The lock's name, which is its identity: `rm_api`, `lock-N`; in a replay whatever the file calls it.
    pub lock: String,
    /// Write (exclusive) or read (shared).
    pub exclusive: bool,
}

/// Which end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The thread went in.
    Enter,
    /// The thread came out.
    Exit {
        /// What the system call returned, where seen.
        ret: Option<i64>,
        /// NV_STATUS, where seen.
        status: Option<u32>,
        /// No return was seen; the thread was found outside, so the true end lies before this time.
        lost: bool,
    },
    /// A lock was let go. Only recordings tell it: live, [`super::LockHolders`] tell who has one.
    Release,
}

/// Whether a thread is still in the call that its in-flight entry says it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Seen inside.
    Inside,
    /// Seen outside: the return was lost.
    Outside,
    /// Cannot be told; the entry stays.
    Unknown,
}

/// What a thread is doing.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadState {
    /// State letter of /proc (R, S, D, T, t, Z, X, I), where it could be read.
    pub state: Option<char>,
    /// What it waits for: `driver`, `power_lock`, `disk`, `net`, `futex`, `pipe`, `cpu`, `frozen`, `none`.
    pub wait: Option<String>,
    /// It is the thread that launches work on the GPU.
    pub launcher: bool,
    /// Whether it is inside its call.
    pub inside: Inside,
    /// User time. Unit: seconds since the thread began.
    pub utime: Option<f64>,
    /// System time. Unit: seconds since the thread began.
    pub stime: Option<f64>,
}
