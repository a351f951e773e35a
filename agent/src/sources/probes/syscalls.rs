//! Which system calls lead to the driver's functions, by their numbers on this architecture.
//!
//! In: the kind of a call that was seen at the driver's own function. Out: the system calls its thread may be in.
//! What can go wrong: a process of the other word length has other numbers; no NVIDIA library is built for it any more.

use warpgauge_ebpf::calls::kind;

/// What a thread may be in while it is in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syscalls<'a> {
    /// Any system call, or none: a page fault, a lock.
    Any,
    /// One of these.
    OneOf(&'a [u64]),
}

impl Default for Syscalls<'_> {
    fn default() -> Self {
        Self::OneOf(&[])
    }
}

const IOCTL: &[u64] = &[libc::SYS_ioctl as u64];
const MMAP: &[u64] = &[libc::SYS_mmap as u64];

#[cfg(target_arch = "x86_64")]
const OPEN: &[u64] = &[
    libc::SYS_open as u64,
    libc::SYS_openat as u64,
    libc::SYS_openat2 as u64,
    libc::SYS_creat as u64,
    libc::SYS_open_by_handle_at as u64,
];
#[cfg(not(target_arch = "x86_64"))]
const OPEN: &[u64] = &[libc::SYS_openat as u64, libc::SYS_openat2 as u64, libc::SYS_open_by_handle_at as u64];

#[cfg(target_arch = "x86_64")]
const POLL: &[u64] = &[
    libc::SYS_poll as u64,
    libc::SYS_ppoll as u64,
    libc::SYS_select as u64,
    libc::SYS_pselect6 as u64,
    libc::SYS_epoll_ctl as u64,
    libc::SYS_epoll_wait as u64,
    libc::SYS_epoll_pwait as u64,
    libc::SYS_epoll_pwait2 as u64,
    libc::SYS_io_uring_enter as u64,
];
#[cfg(not(target_arch = "x86_64"))]
const POLL: &[u64] = &[
    libc::SYS_ppoll as u64,
    libc::SYS_pselect6 as u64,
    libc::SYS_epoll_ctl as u64,
    libc::SYS_epoll_pwait as u64,
    libc::SYS_epoll_pwait2 as u64,
    libc::SYS_io_uring_enter as u64,
];

/// Those behind which a file's last reference mostly goes. Any other may be the one, too, where two threads race.
const CLOSE: &[u64] = &[
    libc::SYS_close as u64,
    libc::SYS_close_range as u64,
    libc::SYS_dup3 as u64,
    libc::SYS_munmap as u64,
    libc::SYS_mmap as u64,
    libc::SYS_mremap as u64,
    libc::SYS_ioctl as u64,
    libc::SYS_recvmsg as u64,
    libc::SYS_io_uring_enter as u64,
    libc::SYS_execve as u64,
    libc::SYS_execveat as u64,
    libc::SYS_exit as u64,
    libc::SYS_exit_group as u64,
    #[cfg(target_arch = "x86_64")]
    {
        libc::SYS_dup2 as u64
    },
];

/// The system calls that lead to a call of this kind. A file may be closed by anything that drops the last reference to
/// it, behind any system call, and by a thread that exits; where its end may be missed (`sure` is false), a thread that
/// is in something else for long has left it behind.
pub fn leading_to(kind: u32, sure: bool) -> Syscalls<'static> {
    match kind {
        kind::CLOSE if !sure => Syscalls::OneOf(CLOSE),
        kind::IOCTL | kind::RM | kind::REGISTER => Syscalls::OneOf(IOCTL),
        kind::OPEN => Syscalls::OneOf(OPEN),
        kind::MMAP => Syscalls::OneOf(MMAP),
        kind::POLL => Syscalls::OneOf(POLL),
        _ => Syscalls::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_system_calls() {
        let contains = |kind, number: i64| match leading_to(kind, true) {
            Syscalls::Any => None,
            Syscalls::OneOf(numbers) => Some(numbers.contains(&(number as u64))),
        };
        for (kind, number, want) in [
            (kind::IOCTL, libc::SYS_ioctl, Some(true)),
            (kind::IOCTL, libc::SYS_openat, Some(false)),
            (kind::RM, libc::SYS_ioctl, Some(true)),
            (kind::OPEN, libc::SYS_openat2, Some(true)),
            (kind::OPEN, libc::SYS_ioctl, Some(false)),
            (kind::MMAP, libc::SYS_mmap, Some(true)),
            (kind::POLL, libc::SYS_ppoll, Some(true)),
            (kind::POLL, libc::SYS_epoll_ctl, Some(true)),
            (kind::CLOSE, libc::SYS_close, None),
            (kind::CLOSE, libc::SYS_futex, None),
            (kind::FAULT, libc::SYS_read, None),
            (kind::LOCK, libc::SYS_ioctl, None),
            (kind::INIT, libc::SYS_openat, None),
        ] {
            assert_eq!(contains(kind, number), want, "{kind} {number}");
        }
        let Syscalls::OneOf(closing) = leading_to(kind::CLOSE, false) else {
            panic!("its end may be missed")
        };
        let contains =
            [libc::SYS_close, libc::SYS_munmap, libc::SYS_futex].map(|n| closing.contains(&(n as u64)));
        assert_eq!(contains, [true, true, false]);
    }

    /// The numbers of the kernel's own tables.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_numbers_are_those_of_x86_64() {
        assert_eq!((IOCTL, MMAP), ([16].as_slice(), [9].as_slice()));
        assert_eq!(OPEN, [2, 257, 437, 85, 304]);
        assert_eq!(POLL, [7, 271, 23, 270, 233, 232, 281, 441, 426]);
    }

    /// The numbers of the kernel's own tables.
    #[cfg(target_arch = "aarch64")]
    #[test]
    fn the_numbers_are_those_of_aarch64() {
        assert_eq!((IOCTL, MMAP), ([29].as_slice(), [222].as_slice()));
        assert_eq!(OPEN, [56, 437, 265]);
        assert_eq!(POLL, [73, 72, 21, 22, 441, 426]);
    }
}
