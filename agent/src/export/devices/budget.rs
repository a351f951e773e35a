//! How many series of devices there may be.
//!
//! In: a metric's name. Out: whether there is room for one more of its series; refusals are counted per metric.
//! `gpu.allocation.info` has room of its own: it has as many series as pods have devices, whatever else is measured.
//! Nothing can go wrong.

use std::collections::HashMap;

use crate::export::device_catalog::ALLOCATION;
use crate::export::places::Refusal;
use crate::export::series::Limits;
use crate::telemetry::{Counter, Telemetry};

/// Allocations that may stand: 5,000 pods with a device each fit, and so do 8 boards × 7 instances × 4 replicas many
/// times. At about 1 kB each, 8 MB at most, and 0.2 MB for those 224 replicas.
pub const ALLOCATIONS_MAX: usize = 8_192;

/// Series held and refused, by metric.
#[derive(Debug)]
pub struct Budget {
    held: HashMap<&'static str, usize>,
    /// Without those that have room of their own.
    total: usize,
    /// How many series were given back so far: whoever was refused may try again when it has changed.
    freed: u64,
    limits: Limits,
    refused: HashMap<&'static str, Counter>,
    telemetry: Telemetry,
}

impl Budget {
    /// Nothing held.
    pub fn new(limits: Limits, telemetry: Telemetry) -> Self {
        Self { held: HashMap::new(), total: 0, freed: 0, limits, refused: HashMap::new(), telemetry }
    }

    /// Room for one more series, or a counted refusal.
    pub fn take(&mut self, metric: &'static str) -> bool {
        if !self.has_room(metric) {
            let attributes = [("metric", metric), ("reason", Refusal::Limit.name())];
            let counter = || self.telemetry.counter("warpgauge.series.refused", &attributes);
            self.refused.entry(metric).or_insert_with(counter).add(1);
            return false;
        }
        self.grow(metric, 1);
        true
    }

    /// Whether there is room for one more series.
    pub fn has_room(&self, metric: &'static str) -> bool {
        let held = self.held.get(metric).copied().unwrap_or_default();
        if has_own_room(metric) {
            return held < ALLOCATIONS_MAX;
        }
        held < self.limits.per_metric && self.total < self.limits.total
    }

    /// A field of several series has `by` more of them.
    pub fn grow(&mut self, metric: &'static str, by: usize) {
        let held = self.held.entry(metric).or_default();
        *held = held.saturating_add(by);
        if !has_own_room(metric) {
            self.total = self.total.saturating_add(by);
        }
    }

    /// A series ended.
    pub fn give_back(&mut self, metric: &'static str) {
        self.shrink(metric, 1);
    }

    /// A field of `by` series ended.
    pub fn shrink(&mut self, metric: &'static str, by: usize) {
        if let Some(held) = self.held.get_mut(metric) {
            let by = by.min(*held);
            *held -= by;
            if !has_own_room(metric) {
                self.total = self.total.saturating_sub(by);
            }
            self.freed += by as u64;
        }
    }

    /// Changes when series were given back.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// Publishes how many there are.
    pub fn publish(&self) {
        for (metric, held) in &self.held {
            self.telemetry.gauge("warpgauge.series", &[("metric", metric)]).set(*held as u64);
        }
    }
}

fn has_own_room(metric: &str) -> bool {
    metric == ALLOCATION.name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_take_no_room_from_what_is_measured() {
        let mut budget = Budget::new(Limits { per_metric: 1, total: 1 }, Telemetry::default());
        let taken = (0..=ALLOCATIONS_MAX).filter(|_| budget.take(ALLOCATION.name)).count();
        assert_eq!(taken, ALLOCATIONS_MAX);
        assert!(budget.take("a") && !budget.take("b"));
        budget.give_back(ALLOCATION.name);
        assert!(budget.take(ALLOCATION.name) && !budget.take("b"));
    }

    #[test]
    fn refusals_are_counted_per_metric() {
        let telemetry = Telemetry::default();
        let mut budget = Budget::new(Limits { per_metric: 2, total: 3 }, telemetry.clone());
        let taken: Vec<bool> = ["a", "a", "a", "b", "b"].into_iter().map(|m| budget.take(m)).collect();
        assert_eq!(taken, [true, true, false, true, false]);
        let refused =
            |m| telemetry.counter("warpgauge.series.refused", &[("metric", m), ("reason", "limit")]).get();
        assert_eq!((refused("a"), refused("b")), (1, 1));
        budget.give_back("a");
        assert!(budget.take("b"));
    }
}
