//! The table of series: cumulative values by key, bounded in number.
//!
//! In: updates by key, with the time of their sample. Out: points. A series may ask for an explicit zero before its
//! first value; the zero keeps its time until it is settled, so that it survives a collector that is away. A series
//! whose workload got a name later ends under the old attributes, and goes on under the new ones from 0 at that moment:
//! added up they count everything once.
//! What can go wrong: too many series; updates beyond the limit are refused and counted per metric.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::catalog::{self, Metric};
use super::point::{Point, Value};
use super::series_key::Key;
use super::whose::Whose;
use crate::model::{MonoNs, WallAnchor, WallNs};
use crate::telemetry::{Attributes, Counter, Telemetry};

/// How many series may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of one metric.
    pub per_metric: usize,
    /// Of all metrics together.
    pub total: usize,
}

impl Default for Limits {
    /// About 2 MiB of histograms at most.
    fn default() -> Self {
        Self { per_metric: 2_000, total: 6_000 }
    }
}

/// All series but the agent's own.
#[derive(Debug)]
pub struct Table {
    series: HashMap<(&'static str, Key), Series>,
    held: HashMap<&'static str, usize>,
    refused: HashMap<&'static str, Counter>,
    limits: Limits,
    telemetry: Telemetry,
    made: u64,
    /// Series under attributes that they have no more, by the generation of their last point.
    former: Vec<(u64, Series)>,
    /// Generation up to which zeros and last points arrived.
    settled: u64,
    /// Times of the two latest collections.
    collected: WallNs,
    collected_before: WallNs,
}

#[derive(Debug)]
struct Series {
    metric: &'static Metric,
    order: (usize, u64),
    attributes: Arc<Attributes>,
    start: WallNs,
    value: Value,
    zero: Zero,
    /// From the next point on.
    renamed: Option<Arc<Attributes>>,
    /// Time of the latest sample since the latest collection; `None` where there was none.
    sampled: Option<MonoNs>,
    /// Time of the latest point.
    last: WallNs,
}

/// The explicit zero that goes before the first value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zero {
    /// Not needed, or settled.
    Done,
    /// Wanted; its time is set by the first collection.
    Wanted,
    /// On its way since the batch of this generation.
    Pending(u64),
}

impl Zero {
    fn of_new(metric: &str, key: &Key) -> Self {
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

impl Table {
    /// An empty table that counts from `start`.
    pub fn new(start: WallNs, limits: Limits, telemetry: Telemetry) -> Self {
        Self {
            series: HashMap::new(),
            held: HashMap::new(),
            refused: HashMap::new(),
            limits,
            telemetry,
            made: 0,
            former: Vec::new(),
            settled: 0,
            collected: start,
            collected_before: start,
        }
    }

    /// Adds calls to a latency histogram.
    pub fn record(
        &mut self,
        metric: &'static Metric,
        key: Key,
        at: MonoNs,
        delta: &crate::model::LatencyDelta,
        attributes: impl FnOnce() -> Attributes,
    ) {
        let empty = || Value::Latency(Box::default());
        if let Some(Value::Latency(latency)) = self.value(metric, key, at, empty, attributes) {
            latency.add(delta);
        }
    }

    /// Adds to a counter; adding 0 makes the series exist.
    pub fn add(
        &mut self,
        metric: &'static Metric,
        key: Key,
        at: MonoNs,
        n: u64,
        attributes: impl FnOnce() -> Attributes,
    ) {
        if let Some(Value::Count(total)) = self.value(metric, key, at, || Value::Count(0), attributes) {
            *total = total.saturating_add(n);
        }
    }

    /// Adds to a counter of seconds.
    pub fn add_time(
        &mut self,
        metric: &'static Metric,
        key: Key,
        at: MonoNs,
        time: Duration,
        attributes: impl FnOnce() -> Attributes,
    ) {
        if let Some(Value::Nanos(total)) = self.value(metric, key, at, || Value::Nanos(0), attributes) {
            *total = total.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Moves a gauge up or down; it stops at 0.
    pub fn shift(
        &mut self,
        metric: &'static Metric,
        key: Key,
        at: MonoNs,
        by: i64,
        attributes: impl FnOnce() -> Attributes,
    ) {
        if let Some(Value::Count(now)) = self.value(metric, key, at, || Value::Count(0), attributes) {
            *now = now.saturating_add_signed(by);
        }
    }

    /// Ends every series whose workload is not to be kept; should it come back, it begins anew with a later start.
    pub fn retain(&mut self, keep: impl Fn(&Arc<Whose>) -> bool) {
        self.keep(|key| key.whose().is_none_or(&keep));
    }

    /// Removes the series of devices that are gone, which have been collected.
    pub fn end_devices(&mut self, gone: &BTreeSet<String>) {
        if !gone.is_empty() {
            self.keep(|key| key.device().is_none_or(|device| !gone.contains(device)));
        }
    }

    /// The workload has other names than those its series have. Those that no point was made of have them at once.
    pub fn rename(&mut self, whose: &Arc<Whose>) {
        for ((_, key), series) in &mut self.series {
            if key.whose() == Some(whose) {
                let attributes = Arc::new(whose.rename(&series.attributes));
                if series.last == series.start {
                    series.attributes = attributes;
                } else {
                    series.renamed = Some(attributes);
                }
            }
        }
    }

    fn keep(&mut self, keep: impl Fn(&Key) -> bool) {
        let held = &mut self.held;
        self.series.retain(|(name, key), _| {
            let kept = keep(key);
            if let (false, Some(n)) = (kept, held.get_mut(name)) {
                *n = n.saturating_sub(1);
            }
            kept
        });
    }

    /// The zeros of batches up to `generation` arrived, or were refused for good.
    pub fn settle_zeros(&mut self, generation: u64) {
        self.settled = self.settled.max(generation);
        for series in self.series.values_mut() {
            if matches!(series.zero, Zero::Pending(since) if since <= generation) {
                series.zero = Zero::Done;
            }
        }
    }

    /// One point per series, and the zeros not yet settled. `at` is the time of the collection on the points' clock,
    /// later than at the previous one; `now` turns the samples' times into wall times.
    ///
    /// A series with samples since the previous collection gets the time of the latest one, any other `at`, and so does
    /// one whose sample came late; no point is earlier than the one before it of its series, nor later than `at`. A zero
    /// lies one `interval` before the first point. The last points of renamed series are among the zeros until they are
    /// settled; then their series end.
    pub fn collect(
        &mut self,
        now: WallAnchor,
        at: WallNs,
        interval: Duration,
        generation: u64,
    ) -> (Vec<(u64, Point)>, Vec<Point>) {
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        // Later than any point of a series of the same name that has ended, in this run or the one before.
        let earliest_zero = self.collected_before.0.saturating_add(1);
        let mut all: Vec<&mut Series> = self.series.values_mut().collect();
        all.sort_unstable_by_key(|series| series.order);
        let (mut zeros, mut points) = (Vec::new(), Vec::with_capacity(all.len()));
        let settled = self.settled;
        self.former.retain(|(since, series)| {
            if let Zero::Pending(since) = series.zero {
                zeros.push((since, series.zero_point()));
            }
            let ends = *since <= settled || series.metric.kind == catalog::Kind::Gauge;
            let mut last = series.point(if ends { at } else { series.last });
            if ends {
                last.value = Value::End;
                points.push(last);
            } else {
                zeros.push((*since, last));
            }
            !ends
        });
        let (mut renamed, room) = (Vec::new(), self.limits.total.saturating_sub(self.former.len()));
        for series in all {
            // A sample from before the series' previous point, or the previous collection, came late: its own time
            // would squeeze points into one moment, which receivers of millisecond resolution refuse.
            let floor = if series.zero == Zero::Wanted { self.collected } else { series.last };
            let own = series.sampled.take().map(|sampled| now.wall(sampled));
            let sampled = own.filter(|own| *own > floor).unwrap_or(at);
            if series.zero == Zero::Wanted {
                series.zero = Zero::Pending(generation);
                series.start = WallNs(sampled.0.saturating_sub(interval).max(earliest_zero).min(at.0));
                series.last = series.start;
            }
            if let Zero::Pending(since) = series.zero {
                zeros.push((since, series.zero_point()));
            }
            series.last = WallNs(sampled.0.max(series.last.0.saturating_add(1)).min(at.0));
            points.push(series.point(series.last));
            // Where a collector is away for long, the names wait.
            if renamed.len() < room
                && let Some(attributes) = series.renamed.take()
            {
                renamed.push((generation, series.go_on_as(attributes, generation)));
            }
        }
        self.former.extend(renamed);
        (self.collected_before, self.collected) = (self.collected, at);
        for (name, held) in &self.held {
            self.telemetry.gauge("warpgauge.series", &[("metric", name)]).set(*held as u64);
        }
        (zeros, points)
    }

    /// Begins all series anew at `start`, which may lie before all points so far. What they held has been collected;
    /// gauges go on.
    pub fn restart(&mut self, start: WallNs) {
        for ((name, key), series) in &mut self.series {
            if series.metric.kind != catalog::Kind::Gauge {
                series.value = series.value.zero();
            }
            series.zero = Zero::of_new(name, key);
            (series.start, series.last, series.sampled) = (start, start, None);
        }
        // Their last points left.
        self.former.clear();
        (self.collected, self.collected_before) = (start, start);
    }

    fn value(
        &mut self,
        metric: &'static Metric,
        key: Key,
        at: MonoNs,
        empty: impl FnOnce() -> Value,
        attributes: impl FnOnce() -> Attributes,
    ) -> Option<&mut Value> {
        let key = (metric.name, key);
        if !self.series.contains_key(&key) && !self.room(metric.name) {
            let counter = || self.telemetry.counter("warpgauge.series.refused", &[("metric", metric.name)]);
            self.refused.entry(metric.name).or_insert_with(counter).add(1);
            return None;
        }
        let zero = Zero::of_new(metric.name, &key.1);
        let series = self.series.entry(key).or_insert_with(|| {
            self.made += 1;
            *self.held.entry(metric.name).or_default() += 1;
            Series {
                metric,
                order: (catalog::find(metric.name).map_or(usize::MAX, |(index, _)| index), self.made),
                attributes: Arc::new(attributes()),
                start: self.collected,
                value: empty(),
                zero,
                renamed: None,
                sampled: None,
                last: self.collected,
            }
        });
        series.sampled = series.sampled.max(Some(at));
        Some(&mut series.value)
    }

    fn room(&self, metric: &'static str) -> bool {
        self.series.len() < self.limits.total
            && self.held.get(metric).copied().unwrap_or(0) < self.limits.per_metric
    }
}

impl Series {
    fn point(&self, at: WallNs) -> Point {
        let start = (self.metric.kind != catalog::Kind::Gauge).then_some(self.start);
        let attributes = Arc::clone(&self.attributes);
        Point { metric: self.metric, attributes, start, at, value: self.value.clone() }
    }

    /// Goes on under other attributes from where it is, and returns what it was: a sum counts from 0 again, which the
    /// next collection tells, a level is what it is.
    fn go_on_as(&mut self, attributes: Arc<Attributes>, generation: u64) -> Self {
        let (value, zero) = match self.metric.kind {
            catalog::Kind::Gauge => (self.value.clone(), Zero::Done),
            _ => (self.value.zero(), Zero::Pending(generation + 1)),
        };
        let (metric, order, last) = (self.metric, self.order, self.last);
        let (renamed, sampled) = (None, None);
        let next = Self { metric, order, attributes, start: last, value, zero, renamed, sampled, last };
        std::mem::replace(self, next)
    }

    fn zero_point(&self) -> Point {
        Point { value: self.value.zero(), ..self.point(self.start) }
    }
}
