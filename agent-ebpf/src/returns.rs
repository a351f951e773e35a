//! What a return value says of a call, apart from its number.
//!
//! In: the value a system call left with. Out: whether it failed, and whether its command meant anything.
//! What can go wrong: a call that a signal interrupts may be begun again by the kernel. It then enters anew and is two
//! calls here, none of them failed; one that the kernel does not begin again ends with EINTR, which is not seen.

const EINVAL: i64 = -22;
const ENOTTY: i64 = -25;
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
/// may try any number of those, and must not fill the map with them.
#[inline(always)]
pub const fn counted_op(op: u32, ret: i64) -> u32 {
    if ret == ENOTTY || ret == EINVAL { 0 } else { op }
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
        for (ret, want) in [(0, 42), (-1, 42), (-5, 42), (-22, 0), (-25, 0), (-512, 42)] {
            assert_eq!(counted_op(42, ret), want, "{ret}");
        }
    }
}
