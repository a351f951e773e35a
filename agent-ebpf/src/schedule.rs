//! Where the threads of named processes spend the time in which they do not run. Armed on demand, for a bounded time.
//!
//! In: `sched_switch` and `sched_wakeup`. Out: sums by process and reason.
//! What can go wrong: a thread that slept since before it was armed is counted from the arming on only; a full map,
//! counted as a loss.

/// Why a thread left the processor. The first that applies; the layers are those of calls in flight.
pub mod reason {
    /// It waits for one of RM's locks.
    pub const DRIVER_LOCK: u32 = 0;
    /// It is in a page fault on managed memory.
    pub const FAULT: u32 = 1;
    /// It is in a call into the driver.
    pub const DRIVER_CALL: u32 = 2;
    /// It could have gone on, and another thread was given the processor.
    pub const PREEMPTED: u32 = 3;
    /// It waits and cannot be interrupted (state D): mostly for a disk.
    pub const UNINTERRUPTIBLE: u32 = 4;
    /// It waits for anything else (state S).
    pub const SLEEP: u32 = 5;
    /// How many there are.
    pub const COUNT: u32 = 6;
}

/// What is summed by.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffKey {
    /// Process.
    pub tgid: u32,
    /// One of [`reason`].
    pub reason: u32,
}

/// Sums; they only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffSum {
    /// How often.
    pub times: u64,
    /// Off the processor, until it was woken (for [`reason::PREEMPTED`] 0). Unit: ns.
    pub waited_ns: u64,
    /// Ready to run, until it ran. Unit: ns.
    pub queued_ns: u64,
}

/// A thread that is off the processor, by its number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Off {
    /// Since when. Clock: monotonic.
    pub since_ns: u64,
    /// When it was woken; 0 while it was not.
    pub woken_ns: u64,
    /// Process.
    pub tgid: u32,
    /// One of [`reason`].
    pub reason: u32,
}

const _: () = assert!(size_of::<OffKey>() == 8);
const _: () = assert!(size_of::<OffSum>() == 24);
const _: () = assert!(size_of::<Off>() == 24);
