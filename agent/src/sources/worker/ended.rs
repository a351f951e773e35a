//! How a worker ended, and what is said of its sources then.
//!
//! In: nothing. Out: [`Why`] and [`Ended`], which a session gives, and [`Restarts`], where the source books them.
//! Nothing can go wrong.

use super::states::Without;
use crate::telemetry::{Counter, Telemetry};

/// There is no worker: it ended by itself.
pub(super) const ENDED: Without = Without::of(
    "down",
    "the worker process ended; a new one is started",
    "look at the lines before this one and at the kernel log; a vendor's library may have crashed",
);
/// No fault yet: a former agent's worker that was told to end with it, and has not.
pub(super) const HELD: Without = Without::of(
    "held",
    "another worker has the driver and is ending",
    "nothing yet; if it stays, another agent with the same state directory may run on this node",
);
const CRASH_LOOP: Without = Without::of(
    "crash_loop",
    "the worker process ends again and again; the next one is started later",
    "look at the lines before this one; a vendor's library may crash: try another engine, or worker.dcgm: false",
);
const TOO_BIG: Without = Without::of(
    "memory",
    "the worker has far outgrown its memory budget again and was ended",
    "raise worker.memory_limit, watch fewer fields, or update the vendor's libraries",
);
const HUNG: Without = Without::of(
    "hung",
    "a call did not come back for a minute, and the worker was ended for it",
    "look at the kernel log for XIDs and hung tasks; the GPU may need a reset",
);
const GARBAGE: Without = Without::of(
    "protocol",
    "the worker said what cannot be, and was ended for it",
    "start the agent again, its program may have been replaced on the disk; if it stays, report it",
);

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// By itself.
    Crashed,
    /// The agent stops.
    Stopped,
    /// The driver is released.
    Released,
    /// Above its memory budget; a new one may start at once.
    Replaced,
    /// Far above its memory budget.
    TooBig,
    /// A call did not come back for a minute.
    Hung,
    /// It said what cannot be.
    Protocol,
    /// Another worker has the driver.
    Held(u32),
}

impl Why {
    /// What is said while the next one has to wait for it.
    pub(super) fn waiting(self) -> Without {
        match self {
            Self::TooBig | Self::Replaced => TOO_BIG,
            Self::Hung => HUNG,
            Self::Protocol => GARBAGE,
            Self::Held(_) => HELD,
            Self::Crashed | Self::Stopped | Self::Released => CRASH_LOOP,
        }
    }
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) why: Why,
    /// It is still there: it hangs in the kernel.
    pub(super) abandoned: bool,
}

/// Where ends are counted, by their reason.
#[derive(Debug)]
pub(super) struct Restarts {
    crashed: Counter,
    hung: Counter,
    memory: Counter,
    protocol: Counter,
    /// It did not even begin.
    pub(super) start: Counter,
}

impl Restarts {
    pub(super) fn new(telemetry: &Telemetry) -> Self {
        let restarts = |reason| telemetry.counter("warpgauge.worker.restarts", &[("reason", reason)]);
        Self {
            crashed: restarts("crashed"),
            hung: restarts("hung"),
            memory: restarts("memory"),
            protocol: restarts("protocol"),
            start: restarts("start"),
        }
    }

    /// Where an end is counted; one that was asked for is not.
    pub(super) fn of(&self, why: Why) -> Option<&Counter> {
        match why {
            Why::Stopped | Why::Released | Why::Held(_) => None,
            Why::Crashed => Some(&self.crashed),
            Why::Replaced | Why::TooBig => Some(&self.memory),
            Why::Hung => Some(&self.hung),
            Why::Protocol => Some(&self.protocol),
        }
    }
}
