//! Points about the agent itself: its telemetry, its processor time and its memory.
//!
//! In: the telemetry's numbers and /proc/self. Out: points in the catalogue's order.
//! What can go wrong: a name that the catalogue lacks is left out; /proc cannot be read, then those two are absent.

use std::sync::Arc;
use std::time::Duration;

use super::catalog::{self, Kind};
use super::point::{Point, Value};
use crate::host::{HostRoot, process_usage};
use crate::model::WallNs;
use crate::telemetry::{Attributes, Telemetry};

pub use crate::host::process_usage::Usage;

/// Reads what this process uses; `None` where /proc does not tell.
pub fn usage(host: &HostRoot) -> Option<Usage> {
    process_usage::read(&host.proc("self"))
}

/// What the counters held when their series began anew: the counters themselves only grow.
#[derive(Debug, Default)]
pub struct Before(Vec<(&'static str, Arc<Attributes>, u64)>);

impl Before {
    /// The series begin anew after these points.
    pub fn add(&mut self, points: &[Point]) {
        for point in points.iter().filter(|point| point.metric.kind == Kind::Counter) {
            let (Value::Count(n) | Value::Nanos(n)) = point.value else { continue };
            match self
                .0
                .iter_mut()
                .find(|(name, of, _)| *name == point.metric.name && *of == point.attributes)
            {
                Some((.., before)) => *before = before.saturating_add(n),
                None => self.0.push((point.metric.name, Arc::clone(&point.attributes), n)),
            }
        }
    }

    fn since(&self, metric: &str, attributes: &Attributes, value: Value) -> Value {
        let before = self.0.iter().find(|(name, of, _)| *name == metric && **of == *attributes);
        match (before, value) {
            (Some((.., before)), Value::Count(n)) => Value::Count(n.saturating_sub(*before)),
            (Some((.., before)), Value::Nanos(n)) => Value::Nanos(n.saturating_sub(*before)),
            (_, value) => value,
        }
    }
}

/// All points about the agent as of `now`; counters began at `start`, with what they held `before`.
pub fn points(
    telemetry: &Telemetry,
    usage: Option<Usage>,
    before: &Before,
    start: WallNs,
    now: WallNs,
) -> Vec<Point> {
    let counted = telemetry.read().into_iter().map(|(name, attributes, n)| {
        // They hold whole numbers: one in seconds counts nanoseconds, and a utilization is in billionths.
        let billionths = catalog::find(name).is_some_and(|(_, metric)| metric.unit == "s")
            || name.ends_with(".utilization");
        (name, attributes, if billionths { Value::Nanos(n) } else { Value::Count(n) })
    });
    let nanos = |d: Duration| Value::Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    let mode = |mode: &str| vec![("cpu.mode", mode.to_owned())];
    let used = usage.into_iter().flat_map(|usage| {
        [
            ("warpgauge.process.cpu.time", mode("user"), nanos(usage.user)),
            ("warpgauge.process.cpu.time", mode("system"), nanos(usage.system)),
            ("warpgauge.process.memory.usage", Attributes::new(), Value::Count(usage.resident)),
        ]
    });
    let mut points: Vec<_> = counted
        .chain(used)
        .filter_map(|(name, attributes, value)| {
            let (order, metric) = catalog::find(name)?;
            let start = (metric.kind == Kind::Counter).then_some(start);
            let value = before.since(name, &attributes, value);
            Some((order, Point { metric, attributes: Arc::new(attributes), start, at: now, value }))
        })
        .collect();
    points.sort_by_key(|(order, _)| *order);
    points.into_iter().map(|(_, point)| point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_catalogue_leave_and_in_its_order() {
        let telemetry = Telemetry::default();
        telemetry.counter("warpgauge.state.errors", &[]).add(3);
        telemetry.counter("warpgauge.kmsg.records", &[]).add(9);
        telemetry.counter("warpgauge.not.in.the.catalogue", &[]).add(1);
        telemetry.counter("warpgauge.worker.cpu.time", &[("cpu.mode", "user")]).add(7);
        telemetry.gauge("warpgauge.source.up", &[("source", "kmsg")]).set(1);
        let points = points(&telemetry, None, &Before::default(), WallNs(5), WallNs(9));
        let seen: Vec<_> = points.iter().map(|p| (p.metric.name, p.start, p.value.clone())).collect();
        let want = vec![
            ("warpgauge.source.up", None, Value::Count(1)),
            ("warpgauge.kmsg.records", Some(WallNs(5)), Value::Count(9)),
            ("warpgauge.state.errors", Some(WallNs(5)), Value::Count(3)),
            ("warpgauge.worker.cpu.time", Some(WallNs(5)), Value::Nanos(7)),
        ];
        assert_eq!(seen, want);
    }
}
