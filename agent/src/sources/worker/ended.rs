//! How a worker ended, and what is said of its sources then.
//!
//! In: nothing. Out: [`Why`] and [`Ended`], which a session gives, and [`Restarts`], where the source books them.
//! Nothing can go wrong.

use super::states::Without;
use crate::telemetry::{Counter, Telemetry};

/// There is no worker: it ended by itself.
pub(super) const ENDED: Without = Without {
    pid: 0,
    reason: "down",
    what: "the worker process ended; a new one is started",
    remedy: "look at the lines before this one and at the kernel log; a vendor's library may have crashed",
};

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
