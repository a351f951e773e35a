//! What a return value says of a call, apart from its number; and what a command is counted as.
//!
//! In: the value a system call left with, its device and command. Out: whether it failed, the command to count it under.
//! What can go wrong: a call that a signal interrupts may be begun again by the kernel. It then enters anew and is two
//! calls here, none of them failed; one that the kernel does not begin again ends with EINTR, which is not seen.

use crate::calls::major;
use crate::rm::{MAJOR, of_device};

/// `nvidia` copies the block before it looks at the command's number: a bad pointer is refused whatever that was.
const EFAULT: i64 = -14;
/// UVM's answer to any command while the driver goes to sleep.
const EAGAIN: i64 = -11;
/// UVM's and the driver's own answer to a command that they do not know; and that of other drivers, which may be watched.
const EINVAL: i64 = -22;
const ENOTTY: i64 = -25;
const ENOSYS: i64 = -38;

/// What user space never sees: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND and ERESTART_RESTARTBLOCK.
#[inline(always)]
const fn is_interrupted(ret: i64) -> bool {
    matches!(ret, -514..=-512 | -516)
}

/// Whether the call failed; a call that a signal interrupted did not.
#[inline(always)]
pub const fn failed(ret: i64) -> bool {
    ret < 0 && !is_interrupted(ret)
}

/// The command to count a call under: 0 for one that the driver does not know, or not with these arguments. A process
/// may try any number of those, and must not fill the map with them. Of commands of the driver's own devices only the
/// number is kept, by which they are named: it checks neither type nor direction, and accepts many sizes. The module for
/// displays checks neither either, and has one command. `dev`: in the kernel's form.
#[inline(always)]
pub const fn counted_op(dev: u32, op: u32, ret: i64) -> u32 {
    if matches!(ret, ENOTTY | EINVAL | EFAULT) {
        0
    } else if of_device(dev) {
        op & 0xff
    } else if matches!(ret, EAGAIN | ENOSYS) || major(dev) == MAJOR && !is_of_displays(op) {
        0
    } else {
        op
    }
}

/// Type `m`, to be read and written. Number and size are checked by the module.
#[inline(always)]
const fn is_of_displays(op: u32) -> bool {
    op >> 8 & 0xff == b'm' as u32 && op >> 30 == 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_calls_have_not_failed() {
        for (ret, want) in [
            (0, false),
            (7, false),
            (-1, true),
            (-511, true),
            (-512, false),
            (-513, false),
            (-514, false),
            (-515, true),
            (-516, false),
            (-517, true),
        ] {
            assert_eq!(failed(ret), want, "{ret}");
        }
    }

    #[test]
    fn commands_that_nobody_knows_are_counted_as_one() {
        for (ret, want) in
            [(0, 42), (-1, 42), (-5, 42), (-14, 0), (-22, 0), (-25, 0), (-11, 0), (-38, 0), (-512, 42)]
        {
            assert_eq!(counted_op(508 << 20, 42, ret), want, "{ret}");
        }
    }

    #[test]
    fn what_a_driver_does_not_check_does_not_count() {
        for (major, minor, op, want) in [
            (195, 255, 0xc020_462a, 0x2a),
            (195, 0, 0xdead_be2a, 0x2a),
            (195, 254, 0xc010_6d00, 0xc010_6d00),
            (195, 254, 0x4010_6d00, 0),
            (195, 254, 0xc010_7d00, 0),
            // UVM's commands are whole numbers, of which it refuses all that it does not know
            (508, 0, 0x3000_0001, 0x3000_0001),
            (4, 1, 0x5607, 0x5607),
        ] {
            assert_eq!(counted_op(major << 20 | minor, op, 0), want, "{major}:{minor} {op:#x}");
        }
        assert_eq!(counted_op(195 << 20 | 255, 0xc020_462a, -11), 0x2a, "one of few numbers");
        let mut of_any_bits =
            (0..=u16::MAX).map(|bits| counted_op(195 << 20 | 255, u32::from(bits) << 16, 0));
        assert!(of_any_bits.all(|op| op == 0));
    }
}
