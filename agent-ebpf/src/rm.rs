//! RM calls: what an ioctl asked the resource manager for, and how that ended.
//!
//! In: `rm_ioctl(stack, state, file, escape, block, size)`, whose block is the kernel's own copy. Out: sums by process,
//! escape, code and status. An ioctl that returns 0 says nothing: the result is in the block.
//! Source of the numbers: the parameter structures in the open driver's `nvos.h`, the same from 515 to 595.

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
