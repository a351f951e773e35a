//! Whether a process may be a victim: workloads may, monitors and servers may not.
//!
//! In: what is said of a process's role, the call it is in. Out: how sure it is that the call is a workload's.
//! What can go wrong: that a process only watches is a guess from what it has not done so far: one that hangs on its way
//! to computing is believed, with less confidence. A name is whatever a process gives itself: one that is called like the
//! server of MPS is no victim, which is its own loss.

use crate::model::{Call, CallKind, Confidence, ProcessRole};

/// The first 15 bytes of `nvidia-cuda-mps-server` and of `nvidia-cuda-mps-control`: all that the kernel keeps of a name.
const MPS_COMM: &str = "nvidia-cuda-mps";

/// Whether a process of this name is the server, or the control program, of MPS.
pub(super) fn is_mps(comm: Option<&str>) -> bool {
    comm == Some(MPS_COMM)
}

/// What a process is, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may be a victim, for all that is known.
    #[default]
    Victim,
    /// It asks the driver, and has not allocated anything that computes *so far*: probably a monitor.
    Presumed,
    /// It is a monitor, or this agent.
    Bystander,
    /// It works for the clients of MPS; it allocates what workloads allocate, and is none.
    Server,
}

impl Standing {
    /// Who tells that a process uses a device says as what, too.
    pub(super) fn told_with_use(&mut self, role: &str) {
        *self = match (*self, role) {
            (Self::Server, _) | (_, "mps") => Self::Server,
            (_, "workload") => Self::Victim,
            _ => Self::Bystander,
        };
    }

    /// The role was concluded from what it asks the driver for. `uses`: it is known to use a device.
    pub(super) fn told(&mut self, role: ProcessRole, uses: bool) {
        *self = match (*self, role) {
            (Self::Server, _) | (_, ProcessRole::Mps) => Self::Server,
            (_, ProcessRole::Workload) => Self::Victim,
            (_, ProcessRole::Agent) => Self::Bystander,
            // who is known to use a device has said more by that than by its silence
            (standing, ProcessRole::Monitor) if uses => standing,
            (_, ProcessRole::Monitor) => Self::Presumed,
        };
    }

    /// It was met; `mps`: under the name of the server of MPS.
    pub(super) fn named(&mut self, mps: bool) {
        if mps {
            *self = Self::Server;
        } else if *self == Self::Presumed {
            // another program: that the former one has allocated nothing says nothing of it
            *self = Self::Victim;
        }
    }

    /// It has a context on a device: that says more than its silence.
    pub(super) fn listed(&mut self) {
        if *self == Self::Presumed {
            *self = Self::Victim;
        }
    }

    /// It runs another program.
    pub(super) fn exec(&mut self) {
        if matches!(self, Self::Presumed | Self::Server) {
            *self = Self::Victim;
        }
    }

    /// How sure it is that the caller of this call is somebody's workload; `None`: it is none. One that is only presumed
    /// to be a monitor is believed where no monitor spends its time.
    pub(super) fn as_victim(self, call: &Call) -> Option<Confidence> {
        match self {
            Self::Victim => Some(Confidence::High),
            Self::Presumed => is_on_the_way_to_computing(call).then_some(Confidence::Low),
            Self::Bystander | Self::Server => None,
        }
    }
}

/// Whether a process that only watches has no business there: opens, allocations of the resource manager, and all of
/// unified memory. What a monitor does over and over (`RM_CONTROL`, waits for its locks, `poll`) is not among it.
fn is_on_the_way_to_computing(call: &Call) -> bool {
    /// `NV_ESC_RM_ALLOC`.
    const ALLOC: u32 = 0x2b;
    let of = |driver: &str| call.driver.as_deref() == Some(driver);
    // behind the wrapper for large blocks only the class tells
    let allocates = || of("nvidia") && call.kind == CallKind::Ioctl && call.op & 0xff == ALLOC;
    call.kind == CallKind::Open
        || of("uvm")
        || call.rm.is_some_and(|asked| asked.class.is_some())
        || allocates()
}
