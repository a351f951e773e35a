//! Lines of the kernel log that concern the GPU driver.
//!
//! In: what `sources::kmsg::xid` recognised. Out: the input of the XID engine.
//! Unknown codes pass through as numbers; a line whose code is damaged may yield what is left of it, or nothing.

use super::{PciAddress, Pid};

/// One recognised line.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverLine {
    /// What the line says.
    pub kind: LineKind,
    /// The whole message, without its prefix, control characters stripped.
    pub raw: String,
    /// Where it was read.
    pub origin: LogOrigin,
}

/// An error as the driver's own function was told of it. Source: a probe on `nv_report_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XidReport {
    /// The device, with its function.
    pub pci: Option<PciAddress>,
    /// The XID.
    pub code: u32,
}

/// The place of a line in the kernel's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOrigin {
    /// /dev/kmsg sequence number; unique within a boot.
    pub seq: Option<u64>,
    /// Log level 0 to 7; the driver prints most XIDs at the default level, 4.
    pub level: Option<u8>,
    /// The line was in the buffer before the agent first started on this boot.
    pub backlog: bool,
}

/// The kinds of lines, by what they carry.
#[derive(Clone, Debug, PartialEq)]
pub enum LineKind {
    /// `Xid (PCI:…): N, …`.
    Xid(XidLine),
}

/// The parts of an XID line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XidLine {
    /// The XID.
    pub code: u32,
    /// The GPU's address.
    pub pci: Option<PciAddress>,
    /// MIG: GPU instance.
    pub gpu_instance: Option<u32>,
    /// MIG: compute instance.
    pub compute_instance: Option<u32>,
    /// The process the driver names: usually the creator of the channel in error. Trap: for 119 the one that waited.
    pub pid: Option<Pid>,
    /// That process's name.
    pub name: Option<String>,
    /// Channel: hexadecimal digits as printed, without `0x`.
    pub channel: Option<String>,
    /// Graphics processing cluster.
    pub gpc: Option<u32>,
    /// Texture processing cluster.
    pub tpc: Option<u32>,
    /// Streaming multiprocessor.
    pub sm: Option<u32>,
    /// NVLink number; −1 where the driver prints none.
    pub link: Option<i32>,
    /// Unit of an NVLink 5 error.
    pub sub: Option<String>,
    /// Fatal or not, where the line says so.
    pub fatal: Option<bool>,
    /// XID 154: recovery action before.
    pub recovery_from: Option<String>,
    /// XID 154: recovery action after.
    pub recovery_to: Option<String>,
    /// XID 154: the driver's number of the action after; 0 is none. The words for one number differ by branch.
    pub recovery_value: Option<u32>,
    /// XID 45: the XID that caused it.
    pub cause_code: Option<u32>,
    /// The rest of the message.
    pub text: String,
}
