//! The agent's own numbers (`warpgauge.*`): counters and gauges that any stage may hold.
//!
//! In: increments, without a lock. Out: [`Telemetry::read`], which the exporters turn into series.
//! What can go wrong: a name that the metric catalogue lacks; a test finds it, and the exporter leaves it out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Attributes of a series: names are fixed, values are few.
pub type Attributes = Vec<(&'static str, String)>;

/// All of the agent's own series. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    series: Arc<Mutex<BTreeMap<Key, Arc<AtomicU64>>>>,
}

/// Name and attributes.
type Key = (&'static str, Attributes);

/// A number that only grows. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

/// A number that may fall. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Counter {
    /// Adds without a lock.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes over a count kept elsewhere (in a kernel map), which never falls.
    pub fn raise_to(&self, total: u64) {
        self.0.fetch_max(total, Ordering::Relaxed);
    }
}

impl Gauge {
    /// Sets without a lock.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Telemetry {
    /// The counter of these attributes, made at 0 when first asked for. Takes a lock: ask once, keep the handle.
    pub fn counter(&self, name: &'static str, attributes: &[(&'static str, &str)]) -> Counter {
        Counter(self.cell(name, attributes))
    }

    /// The gauge of these attributes, made at 0 when first asked for. Takes a lock: ask once, keep the handle.
    pub fn gauge(&self, name: &'static str, attributes: &[(&'static str, &str)]) -> Gauge {
        Gauge(self.cell(name, attributes))
    }

    /// Every series with its value, ordered by name and attributes.
    pub fn read(&self) -> Vec<(&'static str, Attributes, u64)> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |((name, attributes), cell): (&Key, &Arc<AtomicU64>)| {
            (*name, attributes.clone(), cell.load(Ordering::Relaxed))
        };
        series.iter().map(read).collect()
    }

    fn cell(&self, name: &'static str, attributes: &[(&'static str, &str)]) -> Arc<AtomicU64> {
        let key = (name, attributes.iter().map(|(k, v)| (*k, (*v).to_owned())).collect());
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(series.entry(key).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_one_series_share_its_value() {
        let telemetry = Telemetry::default();
        let dropped = telemetry.counter("warpgauge.signals.dropped", &[("place", "kmsg")]);
        dropped.add(2);
        telemetry.clone().counter("warpgauge.signals.dropped", &[("place", "kmsg")]).add(1);
        dropped.raise_to(2);
        let want = vec![("warpgauge.signals.dropped", vec![("place", "kmsg".to_owned())], 3)];
        assert_eq!(telemetry.read(), want);
    }
}
