//! Things that happen once, told at once: who ties itself to a GPU, who ends, what the driver reports.
//!
//! In: driver functions and process tracepoints. Out: [`Event`]s through a ring buffer.
//! What can go wrong: a full ring buffer, counted; an unreadable argument, counted, and the event is not sent.

/// Room for a GPU's UUID (16 bytes), a PCI address as text (13) or another short value.
pub const BYTES: usize = 32;

/// One event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// When. Clock: monotonic.
    pub at_ns: u64,
    /// When the process began (clock: boot time); 0 where nobody's.
    pub start_ns: u64,
    /// Cgroup of the chosen hierarchy; 0 where it could not be read.
    pub cgroup: u64,
    /// Process; 0 where it is nobody's doing.
    pub tgid: u32,
    /// Thread; 0 where it is nobody's doing.
    pub tid: u32,
    /// One of [`what`].
    pub what: u32,
    /// XID, class, power state; 0 where there is none.
    pub code: u32,
    /// Name of the thread.
    pub comm: [u8; 16],
    /// UUID or PCI address; what stands behind its end is 0.
    pub bytes: [u8; BYTES],
}

const _: () = assert!(size_of::<Event>() == 3 * 8 + 4 * 4 + 16 + BYTES);

/// Values of [`Event::what`].
pub mod what {
    /// UVM registered the GPU (UUID) for the process: its context there begins.
    pub const REGISTER_GPU: u32 = 1;
    /// UVM registered the process's address space on the GPU (UUID).
    pub const REGISTER_VA_SPACE: u32 = 2;
    /// UVM registered a channel of the process on the GPU (UUID): the strongest evidence.
    pub const REGISTER_CHANNEL: u32 = 3;
    /// UVM let the GPU (UUID) go for the process.
    pub const UNREGISTER_GPU: u32 = 4;
    /// The process allocated a class (`code`) that only workloads allocate.
    pub const WORKLOAD: u32 = 5;
    /// The driver reports an XID (`code`) of the device at a PCI address (text, with the function digit). The running
    /// process has nothing to do with it.
    pub const XID: u32 = 6;
    /// A process that had called the driver has ended.
    pub const EXIT: u32 = 7;
    /// A process that had called the driver runs another program now.
    pub const EXEC: u32 = 8;
    /// The driver goes to sleep or wakes up: `code` is one of [`power`](super::power).
    pub const POWER: u32 = 9;
}

/// Values of [`Event::code`] for [`what::POWER`]. Source: `nv_power_state_t` in the open driver's `nv.h`.
#[expect(missing_docs, reason = "the driver's names")]
pub mod power {
    pub const HIBERNATE: u32 = 0;
    pub const STANDBY: u32 = 1;
    pub const RUNNING: u32 = 2;
}

/// A process that has called the driver; kept by its number until user space has heard of its end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownProcess {
    /// When it began. Clock: boot time. Another process under the same number begins a new entry.
    pub start_ns: u64,
    /// Bits of [`process`].
    pub flags: u32,
    /// No meaning; makes the padding visible.
    pub reserved: u32,
}

const _: () = assert!(size_of::<KnownProcess>() == 16);

/// Bits of [`KnownProcess::flags`].
pub mod process {
    /// [`what::WORKLOAD`](super::what::WORKLOAD) was told.
    pub const WORKLOAD: u32 = 1;
    /// [`what::EXIT`](super::what::EXIT) was told. (Two last threads that exit at once may tell it twice.)
    pub const EXITED: u32 = 2;
}
