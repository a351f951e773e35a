//! Numbers of the system calls whose returns end a call that began at the driver's own function.
//!
//! In: the kind of the call and the number of a system call. Out: whether the one can end the other.
//! What can go wrong: an architecture without a table; the object does not compile for it.

use crate::calls::kind;

/// The numbers of one architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the system calls")]
pub struct Numbers {
    pub ioctl: u32,
    /// Where the call exists.
    pub open: Option<u32>,
    pub openat: u32,
    pub openat2: u32,
    pub close: u32,
    pub mmap: u32,
}

/// Of x86_64.
pub const X86_64: Numbers =
    Numbers { ioctl: 16, open: Some(2), openat: 257, openat2: 437, close: 3, mmap: 9 };

/// Of aarch64.
pub const AARCH64: Numbers =
    Numbers { ioctl: 29, open: None, openat: 56, openat2: 437, close: 57, mmap: 222 };

impl Numbers {
    /// Whether the return of this system call can be the end of a call of this kind.
    #[inline(always)]
    pub const fn ends(&self, kind: u32, syscall: u32) -> bool {
        match kind {
            kind::IOCTL => syscall == self.ioctl,
            kind::OPEN => {
                syscall == self.openat
                    || syscall == self.openat2
                    || matches!(self.open, Some(open) if syscall == open)
            }
            kind::CLOSE => syscall == self.close,
            kind::MMAP => syscall == self.mmap,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_ended_by_its_own_system_calls_only() {
        for (kind, x86, arm) in [
            (kind::IOCTL, &[16][..], &[29][..]),
            (kind::OPEN, &[2, 257, 437], &[56, 437]),
            (kind::CLOSE, &[3], &[57]),
            (kind::MMAP, &[9], &[222]),
            (kind::POLL, &[], &[]),
            (kind::RM, &[], &[]),
        ] {
            for (numbers, want) in [(X86_64, x86), (AARCH64, arm)] {
                let ending = (0..512).filter(|syscall| numbers.ends(kind, *syscall));
                assert!(ending.eq(want.iter().copied()), "{kind} {numbers:?}");
            }
        }
    }

    #[cfg(all(feature = "user", any(target_arch = "x86_64", target_arch = "aarch64")))]
    #[test]
    fn the_numbers_are_the_c_librarys() {
        #[cfg(target_arch = "x86_64")]
        let (numbers, open) = (X86_64, Some(libc::SYS_open));
        #[cfg(target_arch = "aarch64")]
        let (numbers, open) = (AARCH64, None);
        let of_libc = Numbers {
            ioctl: libc::SYS_ioctl as u32,
            open: open.map(|number: libc::c_long| number as u32),
            openat: libc::SYS_openat as u32,
            openat2: libc::SYS_openat2 as u32,
            close: libc::SYS_close as u32,
            mmap: libc::SYS_mmap as u32,
        };
        assert_eq!(numbers, of_libc);
    }
}
