//! What flows through the pipeline: signals, facts, findings and whose they are.
//!
//! In: nothing; every other stage builds on this one. Out: the types each stage takes and gives.
//! Progress is visible in the type: [`Signal`] → [`Fact`] → [`Attributed`]. No field is "filled in later".

pub mod attribution;
pub mod by_field;
pub mod call;
pub mod clock;
pub mod delivery;
pub mod driver_log;
pub mod driver_sums;
pub mod field_table;
pub mod finding;
pub mod gpu;
pub mod ids;
pub mod job_devices;
pub mod lock;
pub mod open_nodes;
pub mod operation;
pub mod plain;
pub mod pod_devices;
pub mod rm;
pub mod sample;
pub mod signal;
pub mod units;
pub mod use_evidence;

pub use attribution::{Attributed, Known, Process, Workload};
pub use call::{Call, CallKind, Caller, Edge, Inside, Layer, ThreadState};
pub use clock::{KmsgOffset, KmsgUs, MonoNs, WallAnchor, WallNs};
pub use delivery::Delivery;
pub use driver_log::{DriverLine, LineKind, LogOrigin, XidReport};
pub use driver_sums::{LockWaits, OffCpuReason, RmCalls, Scheduling, UvmWork, UvmWorkKind};
pub use finding::{
    Cause, Confidence, Finding, FindingKind, Severity, Stall, StallState, Status, Victim, Xid, XidSource,
};
pub use gpu::Gpu;
pub use ids::{CgroupId, DeviceNode, PciAddress, Pid, StartTicks, Tid};
pub use job_devices::{JobDevices, JobGrant};
pub use lock::{Holder, LockHolders, LockMode};
pub use open_nodes::{OpenNode, OpenNodes};
pub use pod_devices::{Grant, PodDevices};
pub use sample::{Absence, Field, HostField, Origin, Part, Reading, SampleValue, Samples, Subject};
pub use signal::{CallStats, ProcessRole, Signal, VendorCalls};
pub use units::LatencyDelta;
pub use use_evidence::UseEvidence;

/// What correlate gives on: signals pass through it, findings are born in it.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A signal that a later stage needs as it is.
    Reading(Signal),
    /// Something the correlation found out.
    Finding(Box<Finding>),
}
