//! Ids that no device could be found for.
//!
//! In: each such id, whenever an answer has it. Out: whether it is worth looking up again, and a count of failures: once
//! when it has been unknown for long enough to be sure, and once a minute after that, whatever number of answers has it.
//! What can go wrong: ever new ids; beyond [`Misses::MOST`] they are looked up and counted each time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::MonoNs;
use crate::telemetry::{Counter, Telemetry};

/// Why an id could not be used. Also the order of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// No device of this name is on the node, as far as is known.
    UnknownDevice,
    /// The id has no known form.
    MalformedId,
}

/// Ids without a device.
#[derive(Debug)]
pub struct Misses {
    ids: BTreeMap<Box<str>, Miss>,
    /// Raised when devices come and go: then all are looked up again.
    generation: u64,
    due: Option<MonoNs>,
    unknown: Counter,
    malformed: Counter,
}

#[derive(Debug)]
struct Miss {
    why: Why,
    since: MonoNs,
    /// Latest look-up, and the devices it was among.
    looked: (MonoNs, u64),
    counted: Option<MonoNs>,
    /// In the latest answer.
    present: bool,
}

impl Misses {
    /// Ids remembered.
    pub const MOST: usize = 4_096;
    /// How long an id is known to be unknown.
    pub const REMEMBERED: Duration = Duration::from_secs(60);
    /// The kubelet may answer before the driver's library does, and a new MIG device is in its answer first.
    pub const GRACE: Duration = Duration::from_secs(10);

    /// Nothing is missing; failures are counted under `stage`.
    pub fn new(telemetry: &Telemetry, stage: &'static str) -> Self {
        let counter =
            |reason| telemetry.counter("warpgauge.mapping.failures", &[("stage", stage), ("reason", reason)]);
        let (unknown, malformed) = (counter("unknown_device"), counter("malformed_id"));
        Self { ids: BTreeMap::new(), generation: 0, due: None, unknown, malformed }
    }

    /// Devices came or went: what was unknown may be known.
    pub fn look_again(&mut self) {
        self.generation += 1;
    }

    /// A new answer is looked through.
    pub fn begin(&mut self) {
        self.ids.values_mut().for_each(|miss| miss.present = false);
    }

    /// Whether the id is known to be unknown.
    pub fn has(&mut self, id: &str, at: MonoNs) -> bool {
        let generation = self.generation;
        self.ids.get_mut(id).is_some_and(|miss| {
            let age = at.since(miss.looked.0).unwrap_or_default();
            let fresh = miss.looked.1 == generation && age < Self::REMEMBERED;
            miss.present |= fresh;
            fresh
        })
    }

    /// The id was looked up in vain.
    pub fn put(&mut self, id: &str, why: Why, at: MonoNs) {
        let (looked, full) = ((at, self.generation), self.ids.len() >= Self::MOST);
        match self.ids.get_mut(id) {
            Some(miss) => (miss.looked, miss.present, miss.why) = (looked, true, why),
            None if full => self.count(why),
            None => {
                let miss = Miss { why, since: at, looked, counted: None, present: true };
                self.ids.insert(id.into(), miss);
                let due = at.after(Self::GRACE);
                self.due = Some(self.due.map_or(due, |first| first.min(due)));
            }
        }
    }

    /// The answer was looked through: what it does not have is forgotten, later.
    pub fn finish(&mut self, at: MonoNs) {
        self.ids
            .retain(|_, miss| miss.present || at.since(miss.looked.0).unwrap_or_default() < Self::REMEMBERED);
    }

    /// Time passed.
    pub fn tick(&mut self, at: MonoNs) {
        if self.due.is_none_or(|due| at < due) {
            return;
        }
        let mut next: Option<MonoNs> = None;
        let mut counts = [0; 2];
        for miss in self.ids.values_mut().filter(|miss| miss.present) {
            let due = match miss.counted {
                None => miss.since.after(Self::GRACE),
                Some(counted) => counted.after(Self::REMEMBERED),
            };
            let due = if due <= at {
                miss.counted = Some(at);
                counts[usize::from(miss.why == Why::MalformedId)] += 1;
                at.after(Self::REMEMBERED)
            } else {
                due
            };
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        self.due = next;
        self.unknown.add(counts[0]);
        self.malformed.add(counts[1]);
    }

    /// Ids of the latest answer that have no device.
    pub fn present(&self) -> impl Iterator<Item = (&str, Why)> {
        self.ids.iter().filter(|(_, miss)| miss.present).map(|(id, miss)| (&**id, miss.why))
    }

    fn count(&self, why: Why) {
        match why {
            Why::UnknownDevice => self.unknown.add(1),
            Why::MalformedId => self.malformed.add(1),
        }
    }
}
