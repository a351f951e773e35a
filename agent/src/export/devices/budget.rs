//! How many series of devices there may be.
//!
//! In: a metric's name. Out: whether there is room for one more of its series; refusals are counted per metric.
//! Nothing can go wrong.

use std::collections::HashMap;

use crate::export::series::Limits;
use crate::telemetry::{Counter, Telemetry};

/// Series held and refused, by metric.
#[derive(Debug)]
pub struct Budget {
    held: HashMap<&'static str, usize>,
    total: usize,
    limits: Limits,
    refused: HashMap<&'static str, Counter>,
    telemetry: Telemetry,
}

impl Budget {
    /// Nothing held.
    pub fn new(limits: Limits, telemetry: Telemetry) -> Self {
        Self { held: HashMap::new(), total: 0, limits, refused: HashMap::new(), telemetry }
    }

    /// Room for one more series, or a counted refusal.
    pub fn take(&mut self, metric: &'static str) -> bool {
        let held = self.held.entry(metric).or_default();
        if *held >= self.limits.per_metric || self.total >= self.limits.total {
            let counter = || self.telemetry.counter("warpgauge.series.refused", &[("metric", metric)]);
            self.refused.entry(metric).or_insert_with(counter).add(1);
            return false;
        }
        *held += 1;
        self.total += 1;
        true
    }

    /// A series ended.
    pub fn give_back(&mut self, metric: &'static str) {
        if let Some(held) = self.held.get_mut(metric).filter(|held| **held > 0) {
            *held -= 1;
            self.total = self.total.saturating_sub(1);
        }
    }

    /// Publishes how many there are.
    pub fn publish(&self) {
        for (metric, held) in &self.held {
            self.telemetry.gauge("warpgauge.series", &[("metric", metric)]).set(*held as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_per_metric() {
        let telemetry = Telemetry::default();
        let mut budget = Budget::new(Limits { per_metric: 2, total: 3 }, telemetry.clone());
        let taken: Vec<bool> = ["a", "a", "a", "b", "b"].into_iter().map(|m| budget.take(m)).collect();
        assert_eq!(taken, [true, true, false, true, false]);
        let refused = |m| telemetry.counter("warpgauge.series.refused", &[("metric", m)]).get();
        assert_eq!((refused("a"), refused("b")), (1, 1));
        budget.give_back("a");
        assert!(budget.take("b"));
    }
}
