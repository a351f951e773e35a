//! Whose energy it was: a device's energy shared out among workloads by how much of its multiprocessors they used.
//!
//! In: readings of a device's energy counter, and the lists of who used it how much since the list before. Out:
//! [`Share`]s. Between two readings each workload gets the increase times its mean use in that time; what nobody used,
//! or what is not known to be somebody's, is nobody's. Readings and lists may come at different intervals.
//! A pure core. What can go wrong: more workloads between two readings than [`Accounts::MOST`]; they are refused and
//! counted. A device without an energy counter has no shares, and [`Accounts::absence`] says why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::cell::Steps;
use crate::export::places::Refusal;
use crate::export::whose::Whose;
use crate::export::workload_catalog::ENERGY;
use crate::model::{Absence, Field, MonoNs, Origin, Reading, SampleValue};
use crate::telemetry::{Counter, Telemetry};

/// The energy counter. Unit: mJ. Source: `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION`, NVML's field of the same number.
pub const COUNTER: Field = Field::Dcgm(156);

/// A workload's part of a device's energy.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The device.
    pub hw_id: Arc<str>,
    /// The workload.
    pub whose: Whose,
    /// The energy. Unit: J. Not negative.
    pub joules: f64,
    /// When it had been used.
    pub at: MonoNs,
}

/// The accounts of all devices.
#[derive(Debug)]
pub struct Accounts {
    devices: BTreeMap<Arc<str>, Account>,
    /// Not yet fetched.
    shares: Vec<Share>,
    telemetry: Telemetry,
    refused: Option<Counter>,
}

#[derive(Debug)]
struct Account {
    since: MonoNs,
    /// The reading up to which all is shared out, or why there is none.
    counter: Result<Counted, Absence>,
    /// The first reading without a lack since.
    began: MonoNs,
    /// Seconds of use since then.
    used: BTreeMap<Whose, f64>,
    /// There was a list since then.
    is_listed: bool,
    lists: Steps,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    millijoules: f64,
    at: MonoNs,
    origin: Origin,
}

impl Accounts {
    /// Workloads of one device between two readings.
    pub const MOST: usize = 1_024;
    /// Devices: 16 boards with 8 instances each fit.
    const DEVICES_MAX: usize = 512;
    /// Within this time of its begin a counter may be read for the first time.
    const BEGIN: Duration = Duration::from_secs(60);

    /// Nothing is known.
    pub fn new(telemetry: &Telemetry) -> Self {
        Self { devices: BTreeMap::new(), shares: Vec::new(), telemetry: telemetry.clone(), refused: None }
    }

    /// The list of a device: how much each workload used since the list before. Range: 0 to 1 each.
    pub fn list<'a>(
        &mut self,
        hw_id: &Arc<str>,
        uses: impl Iterator<Item = (&'a Whose, Option<f64>)> + Clone,
        at: MonoNs,
    ) {
        let Some(account) = Self::of(&mut self.devices, hw_id, at) else { return };
        account.is_listed = true;
        // After a gap nobody knows for how long it was so: it counts as long as the step before.
        let Some((step, _)) = account.lists.step(at) else { return };
        // Of a time before the counter was read, no energy is known.
        let known = at.since(account.began).filter(|_| account.counter.is_ok()).unwrap_or_default();
        let step = Duration::from_nanos(step).min(known);
        let used = uses.filter_map(|(whose, sm)| Some((whose, sm.filter(|sm| *sm > 0.0)?)));
        let all: f64 = used.clone().map(|(_, sm)| sm).sum();
        let seconds = step.as_secs_f64() / all.max(1.0);
        let mut refused = 0;
        for (whose, sm) in used.filter(|_| !step.is_zero()) {
            if let Some(before) = account.used.get_mut(whose) {
                *before += sm * seconds;
            } else if account.used.len() < Self::MOST {
                account.used.insert(whose.clone(), sm * seconds);
            } else {
                refused += 1;
            }
        }
        if refused > 0 {
            let attributes = [("metric", ENERGY.name), ("reason", Refusal::Limit.name())];
            let counter = || self.telemetry.counter("warpgauge.series.refused", &attributes);
            self.refused.get_or_insert_with(counter).add(refused);
        }
    }

    /// A reading of the energy counter.
    pub fn read(&mut self, hw_id: &Arc<str>, reading: &Reading, origin: Origin) {
        let shares = &mut self.shares;
        let Some(account) = Self::of(&mut self.devices, hw_id, reading.at) else { return };
        let millijoules = match reading.value {
            SampleValue::Int(n) => n as f64, // exact below 2^53 mJ, which are 285 years of 1 kW
            SampleValue::Number(n) => n,
            SampleValue::Text(_) => return,
            SampleValue::Absent(reason) => {
                // Another source's lack of it says nothing.
                if account.counter.is_ok_and(|counted| counted.origin != origin) {
                    return;
                }
                return account.lack(reason);
            }
        };
        let now = Counted { millijoules, at: reading.at, origin };
        let Ok(before) = account.counter else { return account.begin(now) };
        let Some(span) = now.at.since(before.at).filter(|span| !span.is_zero()) else { return };
        if millijoules < before.millijoules {
            return account.begin(now); // the device's counter began anew: how much was lost is not known
        }
        if !account.is_listed {
            return; // shared out with the next reading after a list
        }
        let joules = (millijoules - before.millijoules) / 1_000.0;
        let used = std::mem::take(&mut account.used);
        // A list may tell of a time before the reading before.
        let whole = used.values().sum::<f64>().max(span.as_secs_f64());
        // what is not known to be anybody's has its part, and nobody is told of it
        let known = used.into_iter().filter(|(whose, _)| *whose != Whose::default());
        shares.extend(known.map(|(whose, seconds)| {
            let hw_id = Arc::clone(hw_id);
            Share { hw_id, whose, joules: joules * seconds / whole, at: now.at }
        }));
        (account.counter, account.is_listed) = (Ok(now), false);
    }

    /// What was shared out since this was last asked.
    pub fn shares(&mut self) -> Vec<Share> {
        std::mem::take(&mut self.shares)
    }

    /// Why the device's energy is not shared out.
    pub fn absence(&self, hw_id: &str, is_instance: bool, now: MonoNs) -> Option<Absence> {
        let account = self.devices.get(hw_id)?;
        match account.counter {
            Ok(_) => None,
            // No library gives an instance a counter of its own, and not all say so.
            Err(Absence::Blank) if is_instance => Some(Absence::NotSupported),
            Err(Absence::Blank) if now.since(account.since).is_none_or(|age| age < Self::BEGIN) => None,
            Err(reason) => Some(reason),
        }
    }

    /// The device does not answer, or its counter's source does not.
    pub fn lose(&mut self, hw_id: &str, reason: Absence) {
        if let Some(account) = self.devices.get_mut(hw_id) {
            account.lack(reason);
        }
    }

    /// A source went down: what it counts meanwhile is nobody's.
    pub fn lose_source(&mut self, origin: Origin) {
        for account in self.devices.values_mut() {
            if account.counter.is_ok_and(|counted| counted.origin == origin) {
                account.lack(Absence::SourceDown);
            }
            if origin == Origin::Nvml {
                account.lists.pause(); // it tells of processes, too
            }
        }
    }

    /// The device is gone.
    pub fn forget(&mut self, hw_id: &str) {
        self.devices.remove(hw_id);
    }

    fn of<'a>(
        devices: &'a mut BTreeMap<Arc<str>, Account>,
        hw_id: &Arc<str>,
        at: MonoNs,
    ) -> Option<&'a mut Account> {
        if !devices.contains_key(hw_id) {
            if devices.len() >= Self::DEVICES_MAX {
                return None;
            }
            let (counter, used, lists) = (Err(Absence::Blank), BTreeMap::new(), Steps::default());
            let account = Account { since: at, counter, began: at, used, is_listed: false, lists };
            devices.insert(Arc::clone(hw_id), account);
        }
        devices.get_mut(hw_id)
    }
}

impl Account {
    /// Counts from this reading on.
    fn begin(&mut self, now: Counted) {
        self.used.clear();
        (self.counter, self.began, self.is_listed) = (Ok(now), now.at, false);
    }

    fn lack(&mut self, reason: Absence) {
        self.used.clear();
        (self.counter, self.is_listed) = (Err(reason), false);
    }
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod tests;
