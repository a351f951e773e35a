//! The one table of metrics: what is exported, in which unit, and what it means.
//!
//! In: nothing. Out: [`CATALOG`], from which the exporters take name, unit and kind, and `docs/metrics.md` is made.
//! A series whose name is not in it is not exported.

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// OTLP name.
    pub name: &'static str,
    /// Kind of its points.
    pub kind: Kind,
    /// UCUM unit.
    pub unit: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Attributes its points may have.
    pub attributes: &'static [&'static str],
}

/// Kind of a metric's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Monotonic cumulative sum.
    Counter,
    /// Value at a time.
    Gauge,
    /// Cumulative exponential histogram of scale 0.
    ExponentialHistogram,
}

/// All metrics, in the order of the documentation.
pub const CATALOG: &[Metric] = &[];
