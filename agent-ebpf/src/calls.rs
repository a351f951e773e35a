//! Calls in flight, and the event a slow one leaves behind.
//!
//! In: the syscall tracepoints and the driver's functions. Out: [`InFlight`] entries the agent scans while a call hangs, [`SlowCall`] events.
//! What can go wrong: a return may be missed, then an entry stays; the agent finds out and removes it.
//! All numbers are as the kernel holds them; texts are NUL-padded bytes that a workload chose.

/// Whose entry: calls nest by layer, so a thread has at most one entry per layer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InFlightKey {
    /// Thread.
    pub tid: u32,
    /// One of [`layer`].
    pub layer: u32,
}

/// A call that has begun.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// When it began. Clock: monotonic.
    pub enter_ns: u64,
    /// Cgroup of the chosen hierarchy; 0 where it could not be read.
    pub cgroup: u64,
    /// When the process began. Clock: boot time.
    pub start_ns: u64,
    /// Process.
    pub tgid: u32,
    /// Device number in the kernel's form; 0 while an `open` has not returned.
    pub dev: u32,
    /// The ioctl command, all 32 bits; 0 for other calls.
    pub op: u32,
    /// One of [`kind`].
    pub kind: u32,
    /// Number of the system call on this architecture.
    pub syscall: u32,
    /// Its file-descriptor argument; [`NO_FD`] for an open.
    pub fd: u32,
    /// Bits of [`flags`].
    pub flags: u32,
    /// What RM was asked for, once it was; see [`crate::rm`].
    pub rm: Rm,
    /// The lock, or the parameters (the kernel's copy; with [`flags::RM_BLOCK`] the process's own), by its address; 0 for
    /// calls that have none.
    pub object: u64,
    /// Name of the thread.
    pub comm: [u8; 16],
    /// For an open: the path behind the last `/` of the watched prefix, such as `nvidia0`.
    pub node: [u8; NODE_LEN],
}

/// What RM is asked for within a call, and what it said. All 0 while it was not asked.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rm {
    /// The escape: the low 8 bits of the ioctl command, without the wrapper for large parameter blocks; 0 = none.
    pub escape: u32,
    /// The control command of an `RM_CONTROL`, the class of an `RM_ALLOC`; 0 for other escapes.
    pub code: u32,
    /// `NV_STATUS`, once RM has answered; [`Rm::UNANSWERED`] before, and where the escape's block has none.
    pub status: u32,
}

impl Rm {
    /// RM has not answered (yet).
    pub const UNANSWERED: u32 = u32::MAX;

    /// Whether RM was asked and refused. Warnings (from 0x10000 on) are no failures.
    #[inline(always)]
    pub const fn failed(&self) -> bool {
        self.escape != 0 && self.status != 0 && self.status < 0x1_0000
    }
}

impl InFlight {
    /// The end of such a call is not seen: where the entry comes from the driver's own function and the end from the
    /// system call's, the driver closes a file after that has returned.
    #[inline(always)]
    pub const fn is_open_ended(&self) -> bool {
        self.kind == kind::CLOSE && self.syscall == ANY_SYSCALL && self.flags & flags::SURE_RETURN == 0
    }
}

/// Room for a node's name; long enough for `nvidia-caps/nvidia-cap1`.
pub const NODE_LEN: usize = 24;

/// The descriptor of a call that has none.
pub const NO_FD: u32 = u32::MAX;

/// A call of at least the slow threshold has ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowCall {
    /// Which entry it was.
    pub key: InFlightKey,
    /// When it ended. Clock: monotonic.
    pub end_ns: u64,
    /// What it returned.
    pub ret: i64,
    /// The entry, with the device filled in for an open.
    pub call: InFlight,
}

const _: () = assert!(size_of::<InFlightKey>() == 8);
const _: () = assert!(size_of::<InFlight>() == 3 * 8 + 7 * 4 + 3 * 4 + 8 + 16 + NODE_LEN);
const _: () = assert!(size_of::<SlowCall>() == 24 + size_of::<InFlight>());

/// Values of [`InFlight::kind`].
#[expect(missing_docs, reason = "the first five are named after the system calls")]
pub mod kind {
    pub const IOCTL: u32 = 1;
    pub const OPEN: u32 = 2;
    pub const CLOSE: u32 = 3;
    pub const MMAP: u32 = 4;
    pub const POLL: u32 = 5;
    /// A CPU page fault on managed memory, in its victim.
    pub const FAULT: u32 = 6;
    /// A wait for one of RM's locks: [`InFlight::op`] is one of [`crate::lock::mode`].
    pub const LOCK: u32 = 7;
    /// `rm_ioctl`: the part of an ioctl that RM itself handles.
    pub const RM: u32 = 8;
    /// `rm_init_adapter`: a GPU is being brought up.
    pub const INIT: u32 = 9;
    /// A UVM ioctl that ties the process to a GPU; the GPU's UUID is in [`InFlight::node`].
    pub const REGISTER: u32 = 10;
    /// UVM serves faults of a GPU, in a kernel thread: never anybody's own doing.
    pub const SERVICE: u32 = 11;
    /// UVM moves pages out of a GPU's memory.
    pub const EVICT: u32 = 12;
}

/// [`InFlight::syscall`] of a call seen at the driver's own function: what system call led there is not known.
pub const ANY_SYSCALL: u32 = u32::MAX;

/// Values of [`InFlightKey::layer`], outermost first.
#[expect(missing_docs, reason = "named after the layers")]
pub mod layer {
    pub const SYSCALL: u32 = 0;
    pub const FAULT: u32 = 1;
    pub const DRIVER: u32 = 2;
    /// Pages are moved out within a call into the driver, a fault, or the service of one.
    pub const EVICT: u32 = 3;
    pub const LOCK: u32 = 4;

    /// All of them.
    pub const ALL: [u32; 5] = [SYSCALL, FAULT, DRIVER, EVICT, LOCK];
}

/// Bits of [`InFlight::flags`].
pub mod flags {
    /// The thread is exiting: it was seen to while it was in the call, or began the call (a close) after.
    pub const DYING: u32 = 1;
    /// An open whose path could not be read at entry: only the returned descriptor tells whether it matters.
    pub const PATH_UNREAD: u32 = 2;
    /// The end is seen at the driver's own function, and every one of them: an entry without one is really inside.
    pub const SURE_RETURN: u32 = 4;
    /// The thread is one of the kernel's own.
    pub const KERNEL_THREAD: u32 = 8;
    /// An ioctl whose request and answer are read from the process's own block, since RM's function is not watched.
    pub const RM_BLOCK: u32 = 16;
}

/// Major of a device number (the kernel keeps 12 + 20 bits).
pub const fn major(dev: u32) -> u32 {
    dev >> 20
}

/// Minor of a device number.
pub const fn minor(dev: u32) -> u32 {
    dev & 0xf_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rm_has_failed_only_with_an_error() {
        for (escape, status, want) in [
            (0, 0x0f, false),
            (0x2a, 0, false),
            (0x2a, 0x0f, true),
            (0x2b, 0xffff, true),
            (0x2b, 0x1_0005, false),
            (0x2b, Rm::UNANSWERED, false),
        ] {
            assert_eq!(Rm { escape, code: 1, status }.failed(), want, "{escape:#x} {status:#x}");
        }
    }

    #[test]
    fn only_a_close_without_a_sure_return_is_open_ended() {
        let of = |kind, syscall, flags| InFlight { kind, syscall, flags, ..InFlight::default() };
        assert!(of(kind::CLOSE, ANY_SYSCALL, flags::DYING).is_open_ended());
        assert!(!of(kind::CLOSE, ANY_SYSCALL, flags::SURE_RETURN).is_open_ended());
        assert!(!of(kind::CLOSE, 3, 0).is_open_ended());
        assert!(!of(kind::IOCTL, ANY_SYSCALL, 0).is_open_ended());
    }

    #[test]
    fn device_numbers_split_as_the_kernel_packs_them() {
        let nvidiactl = 195 << 20 | 255;
        assert_eq!((major(nvidiactl), minor(nvidiactl)), (195, 255));
        assert_eq!((major(u32::MAX), minor(u32::MAX)), (4095, 0xf_ffff));
    }
}
