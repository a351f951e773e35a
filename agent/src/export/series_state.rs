//! One series of the table: its value, its times, the explicit zero before its first value.
//!
//! In: when a collection is. Out: points. Nothing can go wrong: a sample that came late has the collection's time.

use std::sync::Arc;

use super::catalog::{self, Metric};
use super::point::{Point, Value};
use super::series_key::Key;
use crate::model::{MonoNs, WallAnchor, WallNs};
use crate::telemetry::Attributes;

/// A cumulative value or a level, with what its points say besides it.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) metric: &'static Metric,
    pub(super) order: (usize, u64),
    pub(super) attributes: Arc<Attributes>,
    pub(super) start: WallNs,
    pub(super) value: Value,
    pub(super) zero: Zero,
    /// From the next point on.
    pub(super) renamed: Option<Arc<Attributes>>,
    /// Time of the latest sample since the latest collection; `None` where there was none.
    pub(super) sampled: Option<MonoNs>,
    /// Time of the latest point.
    pub(super) last: WallNs,
}

/// The explicit zero that goes before the first value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zero {
    /// Not needed, or settled.
    Done,
    /// Wanted; its time is set by the first collection.
    Wanted,
    /// On its way since the batch of this generation.
    Pending(u64),
}

impl Zero {
    pub(super) fn of_new(metric: &str, key: &Key) -> Self {
        let wanted = ZERO_FIRST.contains(&metric) && !key.is_old() || key.is_failure();
        if wanted { Self::Wanted } else { Self::Done }
    }
}

/// Metrics whose new series begin with an explicit zero, since what they count is rare: `increase()` would miss the
/// first one, which is often the only one.
const ZERO_FIRST: &[&str] = &[
    catalog::XID_ERRORS.name,
    catalog::XID_BY_CODE.name,
    catalog::STALL_COUNT.name,
    catalog::STALL_TIME.name,
];

/// When a collection is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collection {
    /// Turns the samples' times into wall times.
    pub(super) now: WallAnchor,
    /// Its own time on the points' clock.
    pub(super) at: WallNs,
    /// The one before it.
    pub(super) before: WallNs,
    /// Later than any point of a series of the same name that has ended, in this run or the one before.
    pub(super) earliest_zero: WallNs,
    /// To the one after it. Unit: ns.
    pub(super) interval: u64,
    pub(super) generation: u64,
}

impl Series {
    pub(super) fn is_level(&self) -> bool {
        self.metric.kind == catalog::Kind::Gauge
    }

    /// Goes on to the next point. See [`super::series::Table::collect`] for its time.
    pub(super) fn advance(&mut self, collection: Collection) {
        let Collection { now, at, before, earliest_zero, interval, generation } = collection;
        // A sample from before the series' previous point, or the previous collection, came late: its own time
        // would squeeze points into one moment, which receivers of millisecond resolution refuse.
        let floor = if self.zero == Zero::Wanted { before } else { self.last };
        let own = self.sampled.take().map(|sampled| now.wall(sampled));
        let sampled = own.filter(|own| *own > floor).unwrap_or(at);
        if self.zero == Zero::Wanted {
            self.zero = Zero::Pending(generation);
            self.start = WallNs(sampled.0.saturating_sub(interval).max(earliest_zero.0).min(at.0));
            self.last = self.start;
        }
        self.last = WallNs(sampled.0.max(self.last.0.saturating_add(1)).min(at.0));
    }

    pub(super) fn point(&self, at: WallNs) -> Point {
        let start = (!self.is_level()).then_some(self.start);
        let attributes = Arc::clone(&self.attributes);
        Point { metric: self.metric, attributes, start, at, value: self.value.clone() }
    }

    /// The zero, while it is on its way.
    pub(super) fn pending_zero(&self) -> Option<(u64, Point)> {
        let Zero::Pending(since) = self.zero else { return None };
        Some((since, Point { value: self.value.zero(), ..self.point(self.start) }))
    }

    /// There is no series any more.
    pub(super) fn ending(&self, at: WallNs) -> Point {
        Point { value: Value::End, ..self.point(at) }
    }

    /// Goes on under other attributes from where it is, and returns what it was: a sum counts from 0 again, which the
    /// next collection tells, a level is what it is.
    pub(super) fn go_on_as(&mut self, attributes: Arc<Attributes>, generation: u64) -> Self {
        let (value, zero) = if self.is_level() {
            (self.value.clone(), Zero::Done)
        } else {
            (self.value.zero(), Zero::Pending(generation + 1))
        };
        let (metric, order, last) = (self.metric, self.order, self.last);
        let (renamed, sampled) = (None, None);
        let next = Self { metric, order, attributes, start: last, value, zero, renamed, sampled, last };
        std::mem::replace(self, next)
    }
}
