//! State changes on their way into the pipeline: kept until they are delivered, only the latest of each thing.
//!
//! In: signals that are said once. Out: the same, first come first served, but for those that a later one replaced.
//! Pure. A lost one would be lost for good: who says it counts it as said.
//! What can go wrong: more things than are kept; the surplus is refused and counted.

use std::collections::BTreeMap;

use crate::model::signal::{DeviceState, Subsystem};
use crate::model::{Pid, Signal, UseEvidence};

/// Things that are kept; a full node has some 500 devices and some thousand processes on them.
pub const KEPT_MAX: usize = 16_384;

/// What a signal is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    Driver,
    Source(String),
    Gpu(String),
    GpuState(String),
    /// The place of the subsystem among all.
    Health(String, Option<usize>),
    Uses(Pid, String, UseEvidence),
}

impl About {
    /// `None`: a value, which the next one makes good for.
    fn of(signal: &Signal) -> Option<Self> {
        Some(match signal {
            Signal::Driver { .. } => Self::Driver,
            Signal::Source { source, .. } => Self::Source(source.name.clone()),
            Signal::Gpu { gpu, .. } => Self::Gpu(gpu.hw_id.clone()),
            Signal::GpuState { hw_id, .. } => Self::GpuState(hw_id.clone()),
            Signal::Health { hw_id, subsystem, .. } => {
                Self::Health(hw_id.clone(), Subsystem::ALL.iter().position(|s| s == subsystem))
            }
            Signal::Uses { uses, .. } => Self::Uses(uses.pid, uses.hw_id.clone(), uses.evidence),
            _ => return None,
        })
    }
}

/// What is on its way.
#[derive(Debug, Default)]
pub struct Undelivered {
    last: u64,
    order: BTreeMap<u64, Signal>,
    places: BTreeMap<About, u64>,
}

impl Undelivered {
    /// Takes a state change; gives back what is none.
    pub fn put(&mut self, signal: Signal) -> Put {
        let Some(about) = About::of(&signal) else { return Put::Value(signal) };
        if let Signal::GpuState { hw_id, state: DeviceState::Gone, .. } = &signal {
            // Its identity is of no use any more; one that is told later has to come after this.
            self.remove(&About::Gpu(hw_id.clone()));
        }
        // An identity keeps its place: what refers to it comes after it. A state moves to the end.
        let place = self.remove(&about).filter(|_| matches!(about, About::Gpu(_)));
        if self.order.len() >= KEPT_MAX {
            return Put::Full;
        }
        let place = place.unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        self.places.insert(about, place);
        self.order.insert(place, signal);
        Put::Kept
    }

    /// What is to be delivered next.
    pub fn first(&self) -> Option<&Signal> {
        self.order.first_key_value().map(|(_, signal)| signal)
    }

    /// [`Self::first`] was delivered.
    pub fn delivered(&mut self) {
        if let Some(about) = self.order.pop_first().and_then(|(_, signal)| About::of(&signal)) {
            self.places.remove(&about);
        }
    }

    /// Nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn remove(&mut self, about: &About) -> Option<u64> {
        let place = self.places.remove(about)?;
        self.order.remove(&place).map(|_| place)
    }
}

/// What became of a signal.
#[derive(Debug, PartialEq)]
pub enum Put {
    /// It is on its way.
    Kept,
    /// It is no state change.
    Value(Signal),
    /// There is no room.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MonoNs;
    use crate::model::signal::{Gpu, SourceState, Uses};

    fn gpu(index: u32) -> Signal {
        let gpu = Gpu {
            hw_id: "GPU-1".to_owned(),
            index: Some(index),
            minor: None,
            pci: None,
            model: None,
            parent: None,
            details: Box::default(),
        };
        Signal::Gpu { at: MonoNs(0), gpu }
    }

    fn is(state: DeviceState) -> Signal {
        Signal::GpuState { at: MonoNs(0), hw_id: "GPU-1".to_owned(), state }
    }

    fn source(name: &str, up: bool) -> Signal {
        let source = SourceState { name: name.to_owned(), up, reason: None, late: None };
        Signal::Source { at: MonoNs(0), source }
    }

    #[test]
    fn the_latest_of_each_thing_is_kept_and_an_identity_comes_before_what_refers_to_it() {
        use DeviceState::{Gone, Lost, Ok};
        let check = |put: &[Signal], want: &[Signal]| {
            let mut kept = Undelivered::default();
            put.iter().for_each(|signal| assert_eq!(kept.put(signal.clone()), Put::Kept));
            let mut out = Vec::new();
            while let Some(signal) = kept.first() {
                out.push(signal.clone());
                kept.delivered();
            }
            assert_eq!(out, want);
            assert!(kept.is_empty() && kept.places.is_empty());
        };
        let flaps = [source("dcgm", true), source("nvml", true), source("dcgm", false)];
        check(&flaps, &[source("nvml", true), source("dcgm", false)]);
        check(&[gpu(0), is(Lost), gpu(1)], &[gpu(1), is(Lost)]);
        check(&[gpu(0), is(Gone), gpu(1)], &[is(Gone), gpu(1)]);
        check(&[gpu(0), is(Gone), gpu(1), is(Lost), is(Ok)], &[gpu(1), is(Ok)]);
    }

    #[test]
    fn values_are_not_kept_and_the_rest_is_bounded() {
        let mut kept = Undelivered::default();
        let tick = Signal::Tick { at: MonoNs(0) };
        assert_eq!(kept.put(tick.clone()), Put::Value(tick));
        let uses = |pid: usize, end| {
            let uses = Uses {
                pid: Pid(u32::try_from(pid).unwrap()),
                hw_id: "GPU-1".to_owned(),
                evidence: UseEvidence::Nvml,
                role: "workload".to_owned(),
                end,
            };
            Signal::Uses { at: MonoNs(0), uses }
        };
        for pid in 1..=KEPT_MAX {
            assert_eq!(kept.put(uses(pid, false)), Put::Kept);
        }
        assert_eq!(kept.put(uses(KEPT_MAX + 1, false)), Put::Full);
        assert_eq!(kept.put(uses(1, true)), Put::Kept, "what is known may change");
        assert_eq!(kept.first(), Some(&uses(2, false)));
    }
}
