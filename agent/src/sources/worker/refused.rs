//! What of the worker's reports is not believed, counted by reason.
//!
//! In: increments. Out: `warpgauge.worker.frames.dropped{reason}`. Nothing can go wrong.

use crate::telemetry::{Counter, Telemetry};

/// The counters.
#[derive(Clone, Debug)]
pub struct Refused {
    /// About a device that no inventory has.
    pub unknown_device: Counter,
    /// More than is kept.
    pub too_many: Counter,
    /// Something that cannot be.
    pub invalid: Counter,
    /// The worker's own queue had no room for values.
    pub values: Counter,
    /// The worker's own queue had no room for other reports.
    pub others: Counter,
    /// The pipeline took nothing for so long that no more changes could be kept.
    pub pipeline: Counter,
}

impl Refused {
    /// All at what they were.
    pub fn new(telemetry: &Telemetry) -> Self {
        let counter = |reason| telemetry.counter("warpgauge.worker.frames.dropped", &[("reason", reason)]);
        Self {
            unknown_device: counter("unknown_device"),
            too_many: counter("too_many"),
            invalid: counter("invalid"),
            values: counter("queue_full_values"),
            others: counter("queue_full"),
            pipeline: counter("pipeline_full"),
        }
    }
}
