//! An attempt to unload a kernel module whose name begins with [`PREFIX`].
//!
//! In: the tracepoint of `delete_module`. Out: one [`Unload`] event per attempt of somebody who may do it.
//! What can go wrong: the name's page may not be in memory; such an attempt is counted, since nobody knows its module.

/// Beginning of the names of the driver's modules. In-tree modules of other purpose have it too: user space decides.
pub const PREFIX: &[u8] = b"nvidia";

/// Room for a module's name, with its end; the kernel's own limit is 56.
pub const NAME_LEN: usize = 64;

/// An attempt, seen before the kernel has looked at it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unload {
    /// When it was made. Clock: monotonic.
    pub at_ns: u64,
    /// The process.
    pub tgid: u32,
    /// No meaning; makes the padding visible.
    pub reserved: u32,
    /// Name of the thread.
    pub comm: [u8; 16],
    /// The module, as the caller wrote it, NUL-terminated; what stands behind its end has no meaning.
    pub module: [u8; NAME_LEN],
}

const _: () = assert!(size_of::<Unload>() == 8 + 2 * 4 + 16 + NAME_LEN);
