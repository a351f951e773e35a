//! RM's locks: who waits for one, and who has it.
//!
//! In: the driver's `os_acquire_*` and `os_release_*`. Out: waits, as calls in flight of layer
//! [`LOCK`](crate::calls::layer::LOCK), and [`Held`] entries that tell a victim from its holder.
//! What can go wrong: a mutex may be let go by another thread than the one that took it; the entry stays until somebody
//! else takes the mutex, or its thread ends. Trap: the semaphore of a GPU lock is no lock but a call to those who wait.
//! It begins at 0, whoever finds the GPU free never touches it, and it is raised only if somebody waits (`core/locks.c` of
//! the open driver, 515 to 595): who comes out of it may have the GPU, but was never seen to let go, so it has no holder.
//! Trap: `os_cond_acquire_rwlock_*` of 525 to 595 say the opposite of what they did, so they tell nobody's holding and are
//! not probed.

/// Values of [`InFlight::op`](crate::calls::InFlight::op) and [`Held::mode`].
#[expect(missing_docs, reason = "named after the driver's functions")]
pub mod mode {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const MUTEX: u32 = 2;
    /// Waited for, never held: there is no [`Held`](super::Held) of this mode.
    pub const SEMAPHORE: u32 = 3;
    /// A mutex that was taken at the first try or not at all (`os_cond_acquire_mutex`): never waited for.
    pub const TRIED: u32 = 4;
}

/// Waits shorter than this are not counted: an uncontended lock is taken faster, and most are. Unit: ns.
pub const SHORTEST_WAIT_NS: u64 = 10_000;

/// A lock, and a thread that has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldKey {
    /// Address of the lock. Never leaves the agent: it would tell where the kernel's memory is.
    pub lock: u64,
    /// Thread.
    pub tid: u32,
    /// No meaning; makes the padding visible.
    pub reserved: u32,
}

/// Since when, and whose thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// When it was taken. Clock: monotonic.
    pub since_ns: u64,
    /// When the process began. Clock: boot time.
    pub start_ns: u64,
    /// Cgroup of the chosen hierarchy; 0 where it could not be read.
    pub cgroup: u64,
    /// Process.
    pub tgid: u32,
    /// One of [`mode`].
    pub mode: u32,
    /// Name of the thread.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<HeldKey>() == 16);
const _: () = assert!(size_of::<Held>() == 3 * 8 + 2 * 4 + 16);

/// The number a lock goes by in a [`HistogramKey`](crate::histogram::HistogramKey): 32 bits of its address. Locks are
/// at least 8 bytes apart, and the same number for two locks within 32 GiB cannot be.
#[inline(always)]
pub const fn number(lock: u64) -> u32 {
    (lock >> 3) as u32
}
