//! Calls in flight, and the event a slow one leaves behind.
//!
//! In: the syscall tracepoints. Out: [`InFlight`] entries the agent scans while a call hangs, [`SlowCall`] events.
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
    /// No meaning; makes the padding visible.
    pub reserved: u32,
    /// Name of the thread.
    pub comm: [u8; 16],
    /// For an open: the path behind the last `/` of the watched prefix, such as `nvidia0`.
    pub node: [u8; NODE_LEN],
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
const _: () = assert!(size_of::<InFlight>() == 3 * 8 + 8 * 4 + 16 + NODE_LEN);
const _: () = assert!(size_of::<SlowCall>() == 24 + size_of::<InFlight>());

/// Values of [`InFlight::kind`].
#[expect(missing_docs, reason = "named after the system calls")]
pub mod kind {
    pub const IOCTL: u32 = 1;
    pub const OPEN: u32 = 2;
    pub const CLOSE: u32 = 3;
    pub const MMAP: u32 = 4;
}

/// Values of [`InFlightKey::layer`], outermost first.
#[expect(missing_docs, reason = "named after the layers")]
pub mod layer {
    pub const SYSCALL: u32 = 0;
    pub const FAULT: u32 = 1;
    pub const DRIVER: u32 = 2;
    pub const LOCK: u32 = 3;
}

/// Bits of [`InFlight::flags`].
pub mod flags {
    /// The thread was seen exiting while it was in the call.
    pub const DYING: u32 = 1;
    /// An open whose path could not be read at entry: only the returned descriptor tells whether it matters.
    pub const PATH_UNREAD: u32 = 2;
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
    fn device_numbers_split_as_the_kernel_packs_them() {
        let nvidiactl = 195 << 20 | 255;
        assert_eq!((major(nvidiactl), minor(nvidiactl)), (195, 255));
        assert_eq!((major(u32::MAX), minor(u32::MAX)), (4095, 0xf_ffff));
    }
}
