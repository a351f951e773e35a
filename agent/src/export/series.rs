//! The table of series: cumulative values by key, bounded in number.
//!
//! In: updates by key, with the time of their sample. Out: points. A series may ask for an explicit zero before its
//! first value; the zero keeps its time until it is settled, so that it survives a collector that is away. A series
//! whose workload got a name later ends under the old attributes, and goes on under the new ones from 0 at that moment:
//! added up they count everything once. A series whose workload or device is over ends by OTLP's "no recorded value": a
//! level at once, a sum when its last value has arrived, so that a collector that is away misses nothing.
//! What can go wrong: too many series; updates beyond the limit are refused and counted per metric and reason.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::catalog::{self, Metric};
use super::places::{Places, Refusal};
use super::point::{Point, Value};
use super::series_key::Key;
use super::series_state::{Collection, Series, Zero};
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
    series: HashMap<Id, Series>,
    places: Places,
    refused: HashMap<(&'static str, Refusal), Counter>,
    limits: Limits,
    telemetry: Telemetry,
    made: u64,
    /// Series that go on under other attributes, and sums that are over: they end when their last point has arrived.
    former: Vec<Former>,
    /// Sums that are over since the latest collection.
    leaving: Vec<(Id, Series)>,
    /// Series that end in the next batch.
    ended: Vec<(Id, Series)>,
    /// Generation up to which zeros and last points arrived.
    settled: u64,
    /// Times of the two latest collections.
    collected: WallNs,
    collected_before: WallNs,
}

/// What waits until its last point has arrived.
#[derive(Debug)]
struct Former {
    /// Generation of the last point.
    since: u64,
    id: Id,
    series: Series,
    /// Its workload is over; until it ends it has its place, so that those that wait are bounded.
    has_place: bool,
}

/// Metric and key.
type Id = (&'static str, Key);

impl Table {
    /// An empty table that counts from `start`.
    pub fn new(start: WallNs, limits: Limits, telemetry: Telemetry) -> Self {
        Self {
            series: HashMap::new(),
            places: Places::new(limits),
            refused: HashMap::new(),
            limits,
            telemetry,
            made: 0,
            former: Vec::new(),
            leaving: Vec::new(),
            ended: Vec::new(),
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

    /// Adds to a counter that is not of whole numbers; `by` is not negative.
    pub fn add_part(
        &mut self,
        metric: &'static Metric,
        key: Key,
        at: MonoNs,
        by: f64,
        attributes: impl FnOnce() -> Attributes,
    ) {
        if let Some(Value::Double(total)) = self.value(metric, key, at, || Value::Double(0.0), attributes) {
            *total += by;
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
        let is_over = |key: &Key| key.whose().is_some_and(|whose| !keep(whose));
        let levels = self.take_out(|key, series| series.is_level() && is_over(key));
        self.ended.extend(levels);
        self.leaving.extend(self.series.extract_if(|(_, key), _| is_over(key)));
    }

    /// Ends the levels of workloads that are over: nothing is left to be at any level.
    pub fn end_levels(&mut self, is_over: impl Fn(&Arc<Whose>) -> bool) {
        let over = self.take_out(|key, series| series.is_level() && key.whose().is_some_and(&is_over));
        self.ended.extend(over);
    }

    /// Ends the series of devices that are gone, which have been collected.
    pub fn end_devices(&mut self, gone: &BTreeSet<String>) {
        if !gone.is_empty() {
            let over = self.take_out(|key, _| key.device().is_some_and(|device| gone.contains(device)));
            self.ended.extend(over);
        }
    }

    /// Nobody is to be told of series that are over.
    pub fn forget_ends(&mut self) {
        self.ended.clear();
        let former = self.former.drain(..).filter(|former| former.has_place).map(|former| former.id);
        for (metric, key) in former.chain(self.leaving.drain(..).map(|(id, _)| id)) {
            self.places.give_back(metric, key.whose());
        }
    }

    /// Most of the places are taken.
    pub fn is_crowded(&self) -> bool {
        self.places.is_crowded()
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

    fn take_out(&mut self, is_over: impl Fn(&Key, &Series) -> bool) -> Vec<(Id, Series)> {
        let over: Vec<_> = self.series.extract_if(|(_, key), series| is_over(key, series)).collect();
        for ((metric, key), _) in &over {
            self.places.give_back(metric, key.whose());
        }
        over
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
    /// lies one `interval` before the first point. The last points of renamed series, and of sums whose workload is over,
    /// are among the zeros until they are settled; then their series end.
    pub fn collect(
        &mut self,
        now: WallAnchor,
        at: WallNs,
        interval: Duration,
        generation: u64,
    ) -> (Vec<(u64, Point)>, Vec<Point>) {
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let earliest_zero = WallNs(self.collected_before.0.saturating_add(1));
        let before = self.collected;
        let collection = Collection { now, at, before, earliest_zero, interval, generation };
        let (mut zeros, mut points) = (Vec::new(), Vec::with_capacity(self.series.len()));
        let Self { series: held, places, former, settled, .. } = self;
        // One that came back goes on under the same name.
        let mut end = |id: &Id, series: &Series| {
            if held.get(id).is_none_or(|back| back.attributes != series.attributes) {
                points.push((series.order, series.ending(at)));
            }
        };
        self.ended.drain(..).for_each(|(id, series)| end(&id, &series));
        former.extend(self.leaving.drain(..).map(|(id, mut series)| {
            series.advance(collection);
            Former { since: generation, id, series, has_place: true }
        }));
        former.retain(|Former { since, id, series, has_place }| {
            zeros.extend(series.pending_zero());
            let ends = since <= settled || series.is_level();
            if ends {
                end(id, series);
            } else {
                zeros.push((*since, series.point(series.last)));
            }
            if ends && *has_place {
                places.give_back(id.0, id.1.whose());
            }
            !ends
        });
        let (mut renamed, room) = (Vec::new(), self.limits.total.saturating_sub(former.len()));
        let mut all: Vec<(&Id, &mut Series)> = held.iter_mut().collect();
        all.sort_unstable_by_key(|(_, series)| series.order);
        for (id, series) in all {
            series.advance(collection);
            zeros.extend(series.pending_zero());
            points.push((series.order, series.point(series.last)));
            // Where a collector is away for long, the names wait.
            if renamed.len() < room
                && let Some(attributes) = series.renamed.take()
            {
                let series = series.go_on_as(attributes, generation);
                renamed.push(Former { since: generation, id: id.clone(), series, has_place: false });
            }
        }
        self.former.extend(renamed);
        (self.collected_before, self.collected) = (self.collected, at);
        for (name, held) in self.places.held() {
            self.telemetry.gauge("warpgauge.series", &[("metric", name)]).set(held as u64);
        }
        points.sort_by_key(|(order, _)| *order); // long runs are in order already
        (zeros, points.into_iter().map(|(_, point)| point).collect())
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
        self.forget_ends(); // their last points left
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
        if !self.series.contains_key(&key)
            && let Err(refusal) = self.places.take(metric.name, key.1.whose())
        {
            self.refuse(metric.name, refusal);
            return None;
        }
        let zero = Zero::of_new(metric.name, &key.1);
        let series = self.series.entry(key).or_insert_with(|| {
            self.made += 1;
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

    fn refuse(&mut self, metric: &'static str, refusal: Refusal) {
        let attributes = [("metric", metric), ("reason", refusal.name())];
        let counter = || self.telemetry.counter("warpgauge.series.refused", &attributes);
        self.refused.entry((metric, refusal)).or_insert_with(counter).add(1);
    }
}
