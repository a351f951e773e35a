//! Points of metrics as no protocol writes them yet: what every exporter of metrics starts from.
//!
//! In: made by [`super::snapshot`]. Out: [`Batch`], one point per series in the catalogue's order.
//! Times are wall times, fixed when a series begins and when it is collected: a start time that was converted again for
//! each export would move by the jitter of the two clocks, which receivers take for a reset.

use std::collections::HashSet;
use std::sync::Arc;

use super::catalog::Metric;
use crate::model::WallNs;
use crate::model::units::{LatencyDelta, SLOTS};
use crate::telemetry::Attributes;

/// One point of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The metric, from the catalogue.
    pub metric: &'static Metric,
    /// The series within the metric.
    pub attributes: Arc<Attributes>,
    /// Since when a cumulative value has been counted; gauges have none.
    pub start: Option<WallNs>,
    /// The time the value is of.
    pub at: WallNs,
    /// The value.
    pub value: Value,
}

/// A point's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// Seconds, counted in nanoseconds so that adding is exact.
    Nanos(u64),
    /// Latencies.
    Latency(Box<Latency>),
    /// A whole number, possibly negative.
    Whole(i64),
    /// A number.
    Double(f64),
    /// The series ends here: OTLP's "no recorded value", by which a receiver does not go on with the last one.
    End,
}

impl Value {
    /// Nothing, of the same kind.
    pub fn zero(&self) -> Self {
        match self {
            Self::Count(_) => Self::Count(0),
            Self::Nanos(_) => Self::Nanos(0),
            Self::Latency(_) => Self::Latency(Box::default()),
            Self::Whole(_) => Self::Whole(0),
            Self::Double(_) => Self::Double(0.0),
            Self::End => Self::End,
        }
    }
}

/// A latency histogram, cumulative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Calls per slot; slot *i* holds (2^(i−30), 2^(i−29)] seconds, the first all below and the last all above.
    pub slots: [u64; SLOTS],
    /// Sum of the durations. Unit: ns.
    pub sum_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { slots: [0; SLOTS], sum_ns: 0 }
    }
}

impl Latency {
    /// Adds what happened since the previous reading.
    pub fn add(&mut self, delta: &LatencyDelta) {
        for (total, new) in self.slots.iter_mut().zip(delta.slots) {
            *total = total.saturating_add(u64::from(new));
        }
        self.sum_ns = self.sum_ns.saturating_add(delta.sum_ns);
    }

    /// Calls in all slots together.
    pub fn count(&self) -> u64 {
        self.slots.iter().fold(0, |sum, &n| sum.saturating_add(n))
    }
}

/// What leaves at one metric interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Grows by one per batch.
    pub generation: u64,
    /// Explicit zeros that must arrive before any other point of their series does, each with the generation of the
    /// first batch it was in.
    pub zeros: Vec<(u64, Point)>,
    /// All series.
    pub points: Vec<Point>,
}

impl Batch {
    /// Ends of series that wait for a receiver that is away, at most.
    const ENDS_MAX: usize = 10_000;

    /// Takes over what an older batch did not get rid of and this one does not make up for: the ends of series that it
    /// says nothing of, since an end is told once. Answers how many.
    pub fn take_over_ends(&mut self, old: impl IntoIterator<Item = Point>) -> u64 {
        let mut ends: Vec<Point> = old.into_iter().filter(|point| point.value == Value::End).collect();
        if ends.is_empty() {
            return 0;
        }
        let told: HashSet<(&str, &Attributes)> = {
            let all = self.points.iter().chain(self.zeros.iter().map(|(_, zero)| zero));
            all.map(|point| (point.metric.name, &*point.attributes)).collect()
        };
        ends.retain(|end| !told.contains(&(end.metric.name, &*end.attributes)));
        ends.drain(..ends.len().saturating_sub(Self::ENDS_MAX));
        let taken = ends.len() as u64;
        ends.append(&mut self.points);
        self.points = ends;
        taken
    }

    /// Points in all.
    pub fn len(&self) -> u64 {
        (self.zeros.len() + self.points.len()) as u64
    }

    /// Nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::catalog;

    #[test]
    fn ends_that_never_left_are_told_unless_there_is_news_of_their_series() {
        let point = |name: &str, at, value| {
            let attributes = Arc::new(vec![("gpu.stall.cause", name.to_owned())]);
            Point { metric: &catalog::STALL_ACTIVE, attributes, start: None, at: WallNs(at), value }
        };
        let old = [
            point("back", 1, Value::End),
            point("gone", 1, Value::End),
            point("alive", 1, Value::Count(1)),
            point("zeroed", 1, Value::End),
        ];
        let points = vec![point("back", 2, Value::Count(1)), point("alive", 2, Value::Count(2))];
        let zeros = vec![(2, point("zeroed", 2, Value::Count(0)))];
        let mut batch = Batch { generation: 2, zeros, points: points.clone() };
        assert_eq!(batch.take_over_ends(old), 1);
        assert_eq!(
            batch.points,
            [vec![point("gone", 1, Value::End)], points].concat(),
            "in the order of time"
        );
        let many = (0..20_000).map(|n| point(&n.to_string(), n, Value::End));
        assert_eq!(batch.take_over_ends(many), Batch::ENDS_MAX as u64);
        assert_eq!(batch.points[0].at, WallNs(10_000), "the latest");
    }
}
