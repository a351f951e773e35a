//! RM calls: what an ioctl asked the resource manager for, and how that ended.
//!
//! In: `rm_ioctl(stack, state, file, escape, block, size)`, whose block is the kernel's own copy; or the command and the
//! argument of the ioctl, whose block is the process's. Out: sums by process, escape, code and status. An ioctl that returns 0 says nothing: the result is in the block.
//! Source of the numbers: the parameter structures in the open driver's `nvos.h`, the same from 515 to 595.

use crate::calls::{Rm, major, minor};

/// The escape whose block only says where the real one is: for blocks too large for a command's size.
const WRAPPER: u32 = 0xd3;

/// What a wrapper says. Source: `nv_ioctl_xfer_t` in `nv-ioctl.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrapper {
    /// The real escape.
    pub escape: u32,
    /// Unit: bytes.
    pub size: u32,
    /// Where the real block is.
    pub at: u64,
}

const _: () = assert!(size_of::<Wrapper>() == 16);

/// Parameters of an ioctl where the process has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The escape.
    pub escape: u32,
    /// Unit: bytes.
    pub size: u32,
    /// Address in the process.
    pub at: u64,
}

impl Block {
    /// By the command and the argument of an ioctl. The driver looks at the command's number and size alone.
    #[inline(always)]
    pub const fn of(command: u32, argument: u64) -> Self {
        Self { escape: command & 0xff, size: command >> 16 & 0x3fff, at: argument }
    }

    /// Whether a 32-bit word there is within it.
    #[inline(always)]
    pub const fn has(&self, at: u32) -> bool {
        self.size >= at + 4
    }
}

/// Whether the block of this escape is a [`Wrapper`].
#[inline(always)]
pub const fn is_wrapper(escape: u32) -> bool {
    escape == WRAPPER
}

/// The block that a wrapper stands for.
#[inline(always)]
pub const fn unwrapped(wrapper: Wrapper) -> Block {
    Block { escape: wrapper.escape & 0xff, size: wrapper.size, at: wrapper.at }
}

/// Whether an escape comes to RM. The others are done by the part of the driver in front of it: card info, version
/// check, attaching GPUs, interrupts, system parameters, NUMA, dmabuf, waiting for an open. Source: `nv.c`, 515 to 595.
#[inline(always)]
pub const fn reaches_rm(escape: u32) -> bool {
    !matches!(escape, 0xc8 | 0xd2 | 0xd4..=0xda)
}

/// The driver's own major: fixed in the kernel's list of devices.
pub const MAJOR: u32 = 195;

/// Whether ioctls on this device are RM's: those of the driver's own major, without that of the module for displays,
/// whose commands have other meanings. (UVM has a major of its own.) `dev`: in the kernel's form.
#[inline(always)]
pub const fn of_device(dev: u32) -> bool {
    const DISPLAYS: u32 = 254;
    major(dev) == MAJOR && minor(dev) != DISPLAYS
}

/// What RM said of a call: what its function gave back, where that is an error, since it then has not looked at the block
/// (a wrong size, a wrong device); else what stands there. `None`: the block has no status, or is unreadable.
#[inline(always)]
pub const fn answer(returned: u32, in_block: Option<u32>) -> u32 {
    match (returned, in_block) {
        (0, Some(status)) => answer_of(status),
        (0, None) => Rm::UNANSWERED,
        (error, _) => answer_of(error),
    }
}

/// A status as a process's own memory has it. Only numbers that may be one are kept: RM's errors, the general one and
/// the warnings; a process must not fill the map of sums with others. Source: `nvstatuscodes.h`.
#[inline(always)]
pub const fn answer_of(status: u32) -> u32 {
    match status {
        0..=0xff | 0xffff | 0x1_0000..=0x1_00ff => status,
        _ => Rm::UNANSWERED,
    }
}

/// `NV_ESC_RM_CONTROL`.
pub const CONTROL: u32 = 0x2a;
/// `NV_ESC_RM_ALLOC`.
pub const ALLOC: u32 = 0x2b;

/// Where the code of a block stands (the command of a control, the class of an allocation). Unit: bytes.
#[inline(always)]
pub const fn code_at(escape: u32) -> Option<u32> {
    match escape {
        CONTROL => Some(8),
        ALLOC => Some(12),
        _ => None,
    }
}

/// Where `NV_STATUS` of a block stands. Unit: bytes. `None` for escapes whose block has none that is known.
#[inline(always)]
pub const fn status_at(escape: u32, size: u32) -> Option<u32> {
    match (escape, size) {
        (CONTROL, _) => Some(28),
        // the newer block is 48 bytes long, the older 32
        (ALLOC, 48..) => Some(40),
        (ALLOC, 32..) => Some(28),
        (0x29, _) => Some(12), // free
        (0x34, _) => Some(24), // duplicate
        (0x41, _) => Some(48), // idle channels
        (0x4a, _) => Some(20), // memory of a video heap
        (0x4e, _) => Some(40), // map memory
        (0x57, _) => Some(56), // map memory for DMA
        _ => None,
    }
}

/// The code to sum a call under: 0 where RM refused it for what it was asked, whatever that was. A process may ask for
/// any number of codes, and must not fill the map with them. Source: `nvstatuscodes.h`.
#[inline(always)]
pub const fn counted_code(code: u32, status: u32) -> u32 {
    match status {
        0x1b // insufficient permissions
        | 0x1f // invalid argument
        | 0x22..=0x24 // invalid class, client, command
        | 0x26 // invalid device
        | 0x31 // invalid object
        | 0x33 // invalid object handle
        | 0x36 // invalid parent
        | 0x3a | 0x3b // invalid parameter structure, parameter
        | 0x56..=0x58 => 0, // not supported, object not found, objects do not match
        _ => code,
    }
}

/// Whether an allocation of this class makes its process a workload: compute engines of all architectures, and the
/// channels that feed them. A monitor allocates neither.
#[inline(always)]
pub const fn is_of_workload(class: u32) -> bool {
    matches!(
        class,
        0xc5c0
            | 0xc6c0
            | 0xc7c0
            | 0xc9c0
            | 0xcbc0
            | 0xcdc0
            | 0xcec0
            | 0xc46f
            | 0xc56f
            | 0xc86f
            | 0xc96f
            | 0xca6f
    )
}

/// What RM calls are summed by.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RmKey {
    /// Cgroup of the chosen hierarchy; 0 where it could not be read.
    pub cgroup: u64,
    /// Process.
    pub tgid: u32,
    /// See [`Rm::escape`](crate::calls::Rm::escape).
    pub escape: u32,
    /// See [`Rm::code`](crate::calls::Rm::code).
    pub code: u32,
    /// See [`Rm::status`](crate::calls::Rm::status).
    pub status: u32,
}

/// Sums; they only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmSum {
    /// Calls that came back.
    pub calls: u64,
    /// Time inside RM. Unit: ns.
    pub time_ns: u64,
}

const _: () = assert!(size_of::<RmKey>() == 24);
const _: () = assert!(size_of::<RmSum>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_both_ages_have_their_status() {
        for (escape, size, want) in [
            (CONTROL, 32, Some(28)),
            (ALLOC, 32, Some(28)),
            (ALLOC, 48, Some(40)),
            (ALLOC, 16, None),
            (0x29, 16, Some(12)),
            (0xc8, 72, None),
        ] {
            assert_eq!(status_at(escape, size), want, "{escape:#x} {size}");
        }
        assert_eq!([CONTROL, ALLOC, 0x29].map(code_at), [Some(8), Some(12), None]);
    }

    #[test]
    fn a_block_is_known_by_command_and_wrapper() {
        let block = Block::of(0xc030_462b, 0x7000);
        assert_eq!(block, Block { escape: ALLOC, size: 48, at: 0x7000 });
        assert_eq!([0, 44, 45, 48].map(|at| block.has(at)), [true, true, false, false]);
        assert!(!is_wrapper(block.escape) && is_wrapper(Block::of(0xc010_46d3, 0).escape));
        let real = unwrapped(Wrapper { escape: 0x2a, size: 20_000, at: 0x9000 });
        assert_eq!(real, Block { escape: CONTROL, size: 20_000, at: 0x9000 });
        // a number of more than the eight bits that the driver looks at; a size that is no room for a word
        assert_eq!(unwrapped(Wrapper { escape: 0x122, size: 2, at: 0 }).escape, 0x22);
        assert!(!Block { escape: 0, size: 2, at: 0 }.has(0));
    }

    #[test]
    fn what_the_driver_does_itself_does_not_come_to_rm() {
        // register-fd, OS events and the status of the driver do
        assert!([0x27, 0x29, CONTROL, ALLOC, 0x5f, 0xc9, 0xce, 0xcf, 0xd1].into_iter().all(reaches_rm));
        assert_eq!((0..=255).filter(|escape| !reaches_rm(*escape)).count(), 9);
    }

    #[test]
    fn only_the_drivers_own_devices_speak_to_rm() {
        for (major, minor, want) in [
            (195, 255, true),
            (195, 0, true),
            (195, 254, false),
            (4, 1, false),
            (508, 0, false),
            (0, 0, false),
        ] {
            assert_eq!(of_device(major << 20 | minor), want, "{major}:{minor}");
        }
    }

    #[test]
    fn no_process_can_make_up_many_statuses() {
        assert_eq!([0, 0x0f, 0x7a, 0xffff, 0x1_0005].map(answer_of), [0, 0x0f, 0x7a, 0xffff, 0x1_0005]);
        let invented = [0x100, 0xfffe, 0x1_0100, 0xdead_beef, u32::MAX];
        assert!(invented.into_iter().all(|status| answer_of(status) == Rm::UNANSWERED));
    }

    #[test]
    fn a_call_that_rm_refused_at_its_door_has_no_answer_in_its_block() {
        const INVALID_ARGUMENT: u32 = 0x1f;
        for (returned, in_block, want) in [
            (0, Some(0), 0),
            (0, Some(0x0f), 0x0f),
            // what the process had written there
            (INVALID_ARGUMENT, Some(0), INVALID_ARGUMENT),
            (INVALID_ARGUMENT, Some(0xdead_beef), INVALID_ARGUMENT),
            (INVALID_ARGUMENT, None, INVALID_ARGUMENT),
            (0, Some(0xdead_beef), Rm::UNANSWERED),
            (0, None, Rm::UNANSWERED),
        ] {
            assert_eq!(answer(returned, in_block), want, "{returned:#x} {in_block:x?}");
        }
    }

    #[test]
    fn codes_of_refused_requests_are_summed_as_one() {
        for (status, want) in [(0, 7), (0x0f, 7), (0x65, 7), (u32::MAX, 7), (0x24, 0), (0x33, 0), (0x56, 0)] {
            assert_eq!(counted_code(7, status), want, "{status:#x}");
        }
    }

    #[test]
    fn monitors_allocate_no_engine_and_no_channel() {
        assert!([0xc7c0, 0xcbc0, 0xc86f].into_iter().all(is_of_workload));
        assert!(![0x80, 0x2080, 0x41, 0x5].into_iter().any(is_of_workload));
    }
}
