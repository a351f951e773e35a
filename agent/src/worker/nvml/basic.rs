//! The basic field set: what NVML gives under the DCGM ids that mean the same.
//!
//! In: NVML's units. Out: DCGM's. What can go wrong: a query of one device takes more than a second, three times in a row.
//! It is halved until the slow field is alone, and that one is left out for ten minutes, of that device only.

use std::collections::BTreeMap;
use std::time::Duration;

use dcgm_ffi::field_table;

use super::driver::{Place, Query};
use crate::model::MonoNs;

/// A query that takes longer is not worth its fields.
pub(super) const TOO_SLOW: Duration = Duration::from_secs(1);
const LEFT_OUT: Duration = Duration::from_secs(600);
/// A query that is slow once may have waited for another one.
const STRIKES: u32 = 3;

/// Read through NVML's field values, whose ids the field table has: energy, violations, ECC, retired pages and row
/// remaps.
const BY_VALUE: [u16; 19] =
    [156, 240, 241, 242, 243, 244, 245, 246, 247, 310, 311, 312, 313, 391, 392, 393, 394, 395, 396];
/// What DCGM reads another way: memory temperature, power at the moment, pages retired for single-bit errors.
/// Source: `nvml.h`, `NVML_FI_DEV_MEMORY_TEMP`, `_POWER_INSTANT`, `_RETIRED_SBE`.
const OWN: [(u16, u32); 3] = [(140, 82), (157, 186), (390, 29)];
/// What the driver wants done with the GPU, 0 for nothing: DCGM's field and NVML's.
pub(super) const RECOVERY: (u16, u32) = (1523, 230);

/// Which queries are made of one device.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    queries: Vec<Query>,
    strikes: BTreeMap<Query, u32>,
    /// When everything is as at first again; `None` while it is.
    until: Option<MonoNs>,
}

impl Default for Plan {
    fn default() -> Self {
        let by_value = BY_VALUE.iter().filter_map(|id| Some((*id, field_table::by_id(*id)?.nvml_field?)));
        let queries = vec![
            Query::Temperature,
            Query::Power,
            Query::Utilization,
            Query::Encoder,
            Query::Decoder,
            Query::SmClock,
            Query::MemoryClock,
            Query::EventReasons,
            Query::Memory,
            Query::PState,
            Query::PcieReplays,
            Query::Values(by_value.chain(OWN).collect()),
        ];
        Self { queries, strikes: BTreeMap::new(), until: None }
    }
}

impl Plan {
    /// The queries for a device. A GPU with MIG devices has its memory told by them; a MIG device has nothing else of
    /// its own.
    pub(super) fn of(&self, place: Place, is_parted: bool) -> impl Iterator<Item = &Query> {
        let fits = move |query: &&Query| match place {
            Place::Gpu(_) => !is_parted || **query != Query::Memory,
            Place::Mig(..) => **query == Query::Memory,
        };
        self.queries.iter().filter(fits)
    }

    /// It was slow the last time.
    pub(super) fn is_suspect(&self, query: &Query) -> bool {
        self.strikes.contains_key(query)
    }

    /// A query was fast enough.
    pub(super) fn fast(&mut self, query: &Query) {
        self.strikes.remove(query);
    }

    /// A query took too long: the third time it is halved, or left out; answers with the fields that are left out.
    pub(super) fn slow(&mut self, query: &Query, now: MonoNs) -> Option<Vec<u16>> {
        let place = self.queries.iter().position(|q| q == query)?;
        let strikes = self.strikes.entry(query.clone()).or_default();
        *strikes += 1;
        // A half of what was slow is known to hold something slow, or not to.
        if *strikes < STRIKES && self.until.is_none() {
            return None;
        }
        self.strikes.remove(query);
        self.until = Some(now.after(LEFT_OUT));
        self.queries.remove(place);
        match query {
            Query::Values(ids) if ids.len() > 1 => {
                let (a, b) = ids.split_at(ids.len().div_ceil(2));
                self.queries.extend([Query::Values(a.to_vec()), Query::Values(b.to_vec())]);
                None
            }
            single => Some(single.fields()),
        }
    }

    /// Takes in again what was left out for long enough, and joins what was halved.
    pub(super) fn forgive(&mut self, now: MonoNs) {
        if self.until.is_some_and(|until| now >= until) {
            *self = Self::default();
        }
    }
}

impl Query {
    /// The DCGM fields it gives.
    pub(super) fn fields(&self) -> Vec<u16> {
        match self {
            Self::Temperature => vec![150],
            Self::Power => vec![155],
            Self::Utilization => vec![203, 204],
            Self::Encoder => vec![206],
            Self::Decoder => vec![207],
            Self::SmClock => vec![100],
            Self::MemoryClock => vec![101],
            Self::EventReasons => vec![112],
            Self::Memory => vec![250, 251, 252, 253, 254],
            Self::PState => vec![190],
            Self::PcieReplays => vec![202],
            Self::Values(ids) => ids.iter().map(|(id, _)| *id).collect(),
        }
    }

    /// The function behind it.
    pub(super) fn call(&self) -> &'static str {
        match self {
            Self::Temperature => "nvmlDeviceGetTemperature",
            Self::Power => "nvmlDeviceGetPowerUsage",
            Self::Utilization => "nvmlDeviceGetUtilizationRates",
            Self::Encoder => "nvmlDeviceGetEncoderUtilization",
            Self::Decoder => "nvmlDeviceGetDecoderUtilization",
            Self::SmClock | Self::MemoryClock => "nvmlDeviceGetClockInfo",
            Self::EventReasons => "nvmlDeviceGetCurrentClocksThrottleReasons",
            Self::Memory => "nvmlDeviceGetMemoryInfo_v2",
            Self::PState => "nvmlDeviceGetPerformanceState",
            Self::PcieReplays => "nvmlDeviceGetPcieReplayCounter",
            Self::Values(_) => "nvmlDeviceGetFieldValues",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_set_is_one_of_dcgms() {
        let mut fields: Vec<u16> = Plan::default().queries.iter().flat_map(Query::fields).collect();
        fields.sort_unstable();
        let mut want = vec![
            100, 101, 112, 140, 150, 155, 157, 190, 202, 390, 203, 204, 206, 207, 250, 251, 252, 253, 254,
        ];
        want.extend(BY_VALUE);
        want.sort_unstable();
        assert_eq!(fields, want, "each has its NVML field in the table");
        assert!(fields.iter().all(|id| field_table::by_id(*id).is_some()));
        assert_eq!(field_table::by_id(RECOVERY.0).unwrap().nvml_field, Some(RECOVERY.1));
    }

    #[test]
    fn the_slow_field_is_found_and_left_out() {
        let mut plan = Plan::default();
        let now = MonoNs(1);
        let slow_one = |plan: &Plan| {
            let has = |query: &&Query| query.fields().contains(&245);
            plan.queries.iter().find(has).cloned()
        };
        let mut rounds = 0;
        let out = loop {
            rounds += 1;
            let query = slow_one(&plan).unwrap();
            if let Some(out) = plan.slow(&query, now) {
                break out;
            }
        };
        assert_eq!((out, rounds), (vec![245], 8), "22 values, halved after the third time");
        assert_eq!(slow_one(&plan), None);
        let left: usize = plan.queries.iter().map(|query| query.fields().len()).sum();
        assert_eq!(left, 37);
        plan.forgive(now.after(LEFT_OUT));
        assert_eq!(plan.queries, Plan::default().queries, "joined again");
    }
}
