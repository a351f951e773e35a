//! What tells series of one metric apart, and with what they end.
//!
//! In: what was counted of whom. Out: [`Key`]s. Names of workloads are no part of them. Nothing can go wrong.

use std::sync::Arc;

use super::whose::Whose;
use crate::model::operation::Operation;
use crate::model::{CallKind, Cause, DeviceNode, LockMode, OffCpuReason, Origin};

/// What tells one series of a metric from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// Calls of one workload to one operation of one device node.
    Call(Arc<Whose>, Option<DeviceNode>, CallKind, Option<Operation>),
    /// Calls of one workload into the resource manager, by operation and status.
    Rm(Arc<Whose>, Operation, Option<Operation>),
    /// Waits of one workload for one lock.
    Lock(Arc<Whose>, Box<str>, LockMode),
    /// Time of one workload off the processor; without a reason, ready to run.
    OffCpu(Arc<Whose>, Option<OffCpuReason>),
    /// What there is one of per node.
    Node,
    /// Time of one workload in the driver.
    DriverTime(Arc<Whose>),
    /// Energy of one device for one workload.
    Energy(Arc<Whose>, Arc<str>),
    /// Stalls of one workload by cause.
    Stall(Arc<Whose>, Cause),
    /// Calls of one function of a vendor's library, about one device or none.
    VendorCall(Origin, Box<str>, Option<Box<str>>),
    /// Errors of one device (`hw.id`, else PCI address) by class and, where counted, code; those that lay in the
    /// kernel log before the agent began to watch apart.
    Xid {
        /// The device.
        device: Arc<str>,
        /// The class.
        class: Box<str>,
        /// The code.
        code: Option<u32>,
        /// From before the agent began to watch.
        backlog: bool,
    },
}

impl Key {
    /// The workload whose end ends the series.
    pub fn whose(&self) -> Option<&Arc<Whose>> {
        match self {
            Self::Call(whose, ..)
            | Self::Rm(whose, ..)
            | Self::Lock(whose, ..)
            | Self::OffCpu(whose, _)
            | Self::DriverTime(whose)
            | Self::Energy(whose, _)
            | Self::Stall(whose, _) => Some(whose),
            Self::Xid { .. } | Self::VendorCall(..) | Self::Node => None,
        }
    }

    /// The device whose end ends the series.
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Xid { device, .. } | Self::Energy(_, device) => Some(device),
            Self::VendorCall(_, _, device) => device.as_deref(),
            Self::Call(..)
            | Self::Rm(..)
            | Self::Lock(..)
            | Self::OffCpu(..)
            | Self::DriverTime(_)
            | Self::Node
            | Self::Stall(..) => None,
        }
    }

    /// Failures are rare among the calls of a metric that counts all of them.
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Self::Rm(_, _, Some(status)) if *status != Operation::Named("NV_OK"))
    }

    /// What happened before anybody looked is not an increase of now.
    pub(super) fn is_old(&self) -> bool {
        matches!(self, Self::Xid { backlog: true, .. })
    }
}
