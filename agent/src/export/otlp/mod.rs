//! OTLP over gRPC: pushes records and metrics to a collector.
//!
//! In: neutral records and batches of points. Out: requests on two connections, so that neither waits for the other.
//! Built on the protocol's own messages, since the SDK's instruments cannot carry a point's own time.
//! What can go wrong: see the two senders; a configuration that cannot work is an [`OtlpError`] at start.

pub mod channel;
pub mod encode;
#[cfg(test)]
pub(crate) mod fake_collector;
pub mod log_sender;
pub mod metric_sender;
pub mod queue;
pub mod reach;
pub mod resource;
pub mod retry;
pub mod spool;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::time::Instant;

pub use channel::{Connector, OtlpError};
pub use log_sender::Left;
pub use spool::Spool;

use super::point::Batch;
use super::record::Record;
use super::session::GapSettled;
use crate::model::Delivery;
use crate::telemetry::Telemetry;

/// The semantic conventions whose names are used.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
/// The longest wait between two tries once the agent is stopping.
const HURRY: Duration = Duration::from_millis(250);

/// What both senders need.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where to.
    pub connector: Arc<Connector>,
    /// Who sends.
    pub resource: Resource,
    /// How waits grow.
    pub policy: retry::Policy,
    /// Whom to tell of settled kernel-log records.
    pub delivery: Arc<Delivery>,
    /// Whom to tell that the record of the gap is settled.
    pub gap: GapSettled,
    /// Where undelivered records wait for the next run.
    pub spool: Option<Spool>,
    /// Where to count.
    pub telemetry: Telemetry,
    /// Says once that nobody answers.
    pub reach: reach::Reach,
}

/// The exporter.
#[derive(Debug)]
pub struct Otlp {
    logs: log_sender::LogSender,
    metrics: metric_sender::MetricSender,
}

impl Otlp {
    /// Starts both senders. The collector need not be there.
    ///
    /// # Errors
    /// [`OtlpError`], for a configuration that cannot work.
    pub fn start(setup: Setup) -> Result<Self, OtlpError> {
        let logs = log_sender::LogSender::start(setup.clone())?;
        let metrics = metric_sender::MetricSender::start(setup)?;
        Ok(Self { logs, metrics })
    }

    /// A sender has ended, though it was not told to: a panic. What it had is kept by [`Self::finish`].
    pub fn is_dead(&self) -> bool {
        self.logs.is_dead() || self.metrics.is_dead()
    }

    /// Takes a record; never waits.
    pub fn emit(&self, record: &Record) {
        self.logs.emit(record);
    }

    /// Takes the newest batch of points; never waits.
    pub fn offer(&self, batch: Batch) {
        self.metrics.offer(batch);
    }

    /// The zeros of all batches up to this generation need no more sending.
    pub fn zeros_settled(&self) -> u64 {
        self.metrics.zeros_settled()
    }

    /// Ends in order: the records first, then the points that `last` makes once it is known what became of them.
    /// `meanwhile` goes on beside the points. Whoever hangs, it takes until the deadline at most.
    pub async fn finish(
        self,
        deadline: Instant,
        last: impl FnOnce() -> Batch,
        meanwhile: impl AsyncFnOnce(Left),
    ) -> Left {
        let left = self.logs.finish(part(deadline, 0.6), part(deadline, 0.8)).await;
        self.metrics.offer(last());
        tokio::join!(self.metrics.finish(deadline), meanwhile(left));
        left
    }
}

/// The moment when this share of the time until the deadline is over.
pub fn part(deadline: Instant, share: f64) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now).mul_f64(share)
}

/// Attributes as a Resource.
pub fn resource(attributes: &[(String, String)]) -> Resource {
    let attributes = attributes.iter().map(|(name, value)| encode::text_pair(name, value)).collect();
    Resource { attributes, ..Resource::default() }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "warpgauge".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    }
}
