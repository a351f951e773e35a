//! Finished calls: from the histogram map's running totals to what was added since the reading before.
//!
//! In: the map's entries, and which processes still live. Out: [`Signal::CallStats`], and keys to delete.
//! What can go wrong: slots wrap at 32 bits, so differences wrap too; a process may end between two readings. Its keys
//! are read once more after its end is known, then deleted: the map never fills with the dead.

use std::collections::{BTreeMap, HashMap};

use warpgauge_ebpf::histogram::{Histogram, HistogramKey};

use crate::model::{CallStats, CgroupId, LatencyDelta, MonoNs, Pid, Signal, StartTicks};

use super::call_signal::{call_kind, device};

/// Whether a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It does, since then.
    Alive(StartTicks),
    /// It does not.
    Gone,
    /// It may not be looked at, or procfs shows other processes than the kernel's numbers mean.
    Unknown,
}

/// Where nobody can tell whether a process lives, a key that did not change for so many readings is given up: five
/// minutes at the default interval. A process that calls again after that begins a new key; a call that ends in the very
/// moment of the deletion is not counted.
const GIVEN_UP_AFTER: u32 = 300;

/// What was seen at the reading before.
#[derive(Debug, Default)]
pub struct Stats {
    totals: HashMap<HistogramKey, Total>,
    processes: BTreeMap<u32, Known>,
    delete: Vec<HistogramKey>,
}

/// What was said of a key so far.
#[derive(Clone, Copy, Debug)]
struct Total {
    said: Histogram,
    /// Readings in a row without a change.
    unchanged: u32,
}

impl Total {
    const NOTHING: Self = Self { said: Histogram::EMPTY, unchanged: 0 };
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Whether it lives could be told at the last reading.
    told: bool,
    start: Option<StartTicks>,
    /// Its end was known before this reading began, so this reading is complete.
    over: bool,
    /// Found in this reading.
    seen: bool,
}

impl Known {
    const NEW: Self = Self { told: true, start: None, over: false, seen: true };
}

impl Stats {
    /// Goes through the map's entries. Gives back the keys whose last counts were said: delete them.
    pub fn read(
        &mut self,
        now: MonoNs,
        entries: &[(HistogramKey, Histogram)],
        life: &mut impl FnMut(u32) -> Life,
        emit: &mut impl FnMut(Signal),
    ) -> &[HistogramKey] {
        self.delete.clear();
        for (key, total) in entries {
            let process = self.processes.entry(key.tgid).or_insert(Known::NEW);
            process.seen = true;
            let before = self.totals.entry(*key).or_insert(Total::NOTHING);
            let given_up = !process.told && before.unchanged >= GIVEN_UP_AFTER && before.said == *total;
            let last = process.over || given_up;
            let latency = difference(total, &before.said);
            if last {
                self.delete.push(*key);
                self.totals.remove(key);
            } else if latency.count() > 0 {
                *before = Total { said: *total, unchanged: 0 };
            } else {
                // a sum without a call was read in the middle of the kernel's adds: it is said with its call
                before.unchanged = before.unchanged.saturating_add(1);
            }
            if last || latency.count() > 0 {
                emit(Signal::CallStats { at: now, stats: Box::new(stats(key, latency, last)) });
            }
        }
        self.look_at_processes(life);
        &self.delete
    }

    /// A process found dead now is read once more at the next reading; one read for the last time is forgotten.
    fn look_at_processes(&mut self, life: &mut impl FnMut(u32) -> Life) {
        self.processes.retain(|tgid, known| {
            if known.over || !std::mem::replace(&mut known.seen, false) {
                return false;
            }
            let life = life(*tgid);
            known.told = life != Life::Unknown;
            known.over = match life {
                Life::Alive(start) => *known.start.get_or_insert(start) != start,
                Life::Gone => true,
                Life::Unknown => false,
            };
            true
        });
    }
}

fn stats(key: &HistogramKey, latency: LatencyDelta, last: bool) -> CallStats {
    CallStats {
        pid: Pid(key.tgid),
        cgroup: CgroupId(key.cgroup),
        device: device(key.dev),
        kind: call_kind(key.kind),
        op: key.op,
        latency,
        last,
    }
}

fn difference(now: &Histogram, before: &Histogram) -> LatencyDelta {
    let mut delta = LatencyDelta {
        sum_ns: now.sum_ns.wrapping_sub(before.sum_ns),
        errors: now.errors.wrapping_sub(before.errors),
        ..LatencyDelta::default()
    };
    for (slot, (now, before)) in delta.slots.iter_mut().zip(now.slots.iter().zip(&before.slots)) {
        *slot = now.wrapping_sub(*before);
    }
    delta
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HistogramKey = HistogramKey { cgroup: 9, tgid: 77, dev: 195 << 20, op: 42, kind: 1 };

    fn total(slot_10: u32, sum_ns: u64) -> Histogram {
        let mut total = Histogram { sum_ns, ..Histogram::EMPTY };
        total.slots[10] = slot_10;
        total
    }

    /// One reading; gives `count/sum/last` of each signal, and how many keys are to be deleted.
    fn read(stats: &mut Stats, entries: &[(HistogramKey, Histogram)], life: Life) -> (Vec<String>, usize) {
        let mut said = Vec::new();
        let mut emit = |signal| {
            let Signal::CallStats { stats, .. } = signal else { panic!("{signal:?}") };
            let latency = &stats.latency;
            said.push(format!("{}/{}/{}", latency.count(), latency.sum_ns, stats.last));
        };
        let deleted = stats.read(MonoNs(1), entries, &mut |_| life, &mut emit).len();
        (said, deleted)
    }

    fn said(texts: &[&str], deleted: usize) -> (Vec<String>, usize) {
        (texts.iter().map(|t| (*t).to_owned()).collect(), deleted)
    }

    #[test]
    fn only_what_was_added_is_said() {
        let (mut stats, alive) = (Stats::default(), Life::Alive(StartTicks(5)));
        assert_eq!(read(&mut stats, &[(KEY, total(3, 3000))], alive), said(&["3/3000/false"], 0));
        assert_eq!(read(&mut stats, &[(KEY, total(3, 3000))], alive), said(&[], 0));
        assert_eq!(read(&mut stats, &[(KEY, total(5, 5500))], alive), said(&["2/2500/false"], 0));
    }

    #[test]
    fn slots_wrap() {
        let (mut stats, alive) = (Stats::default(), Life::Alive(StartTicks(5)));
        read(&mut stats, &[(KEY, total(u32::MAX - 1, u64::MAX - 9))], alive);
        assert_eq!(read(&mut stats, &[(KEY, total(3, 90))], alive), said(&["5/100/false"], 0));
    }

    #[test]
    fn the_dead_are_read_once_more_and_deleted() {
        let mut stats = Stats::default();
        assert_eq!(read(&mut stats, &[(KEY, total(1, 10))], Life::Gone), said(&["1/10/false"], 0));
        // what was counted between the first reading and the death is still said
        assert_eq!(read(&mut stats, &[(KEY, total(2, 30))], Life::Gone), said(&["1/20/true"], 1));
        assert_eq!(read(&mut stats, &[], Life::Gone), said(&[], 0));
        assert!(stats.totals.is_empty() && stats.processes.is_empty());
    }

    #[test]
    fn another_process_with_the_same_pid_is_another_one() {
        let mut stats = Stats::default();
        read(&mut stats, &[(KEY, total(1, 10))], Life::Alive(StartTicks(5)));
        read(&mut stats, &[(KEY, total(1, 10))], Life::Alive(StartTicks(6)));
        let last = read(&mut stats, &[(KEY, total(1, 10))], Life::Alive(StartTicks(6)));
        assert_eq!(last, said(&["0/0/true"], 1));
        let fresh = read(&mut stats, &[(KEY, total(4, 40))], Life::Alive(StartTicks(6)));
        assert_eq!(fresh, said(&["4/40/false"], 0));
    }

    #[test]
    fn what_may_be_alive_is_given_up_only_after_a_long_silence() {
        let mut stats = Stats::default();
        let silence = |stats: &mut Stats, readings, total| {
            for _ in 0..readings {
                assert_eq!(read(stats, &[(KEY, total)], Life::Unknown), said(&[], 0));
            }
        };
        read(&mut stats, &[(KEY, total(1, 10))], Life::Unknown);
        silence(&mut stats, GIVEN_UP_AFTER, total(1, 10));
        assert_eq!(read(&mut stats, &[(KEY, total(2, 30))], Life::Unknown), said(&["1/20/false"], 0));
        silence(&mut stats, GIVEN_UP_AFTER, total(2, 30));
        assert_eq!(read(&mut stats, &[(KEY, total(2, 30))], Life::Unknown), said(&["0/0/true"], 1));
        read(&mut stats, &[], Life::Unknown);
        assert!(stats.totals.is_empty() && stats.processes.is_empty());
        assert_eq!(read(&mut stats, &[(KEY, total(1, 10))], Life::Unknown), said(&["1/10/false"], 0));
    }

    #[test]
    fn the_living_are_never_given_up() {
        let (mut stats, alive) = (Stats::default(), Life::Alive(StartTicks(5)));
        for _ in 0..=2 * GIVEN_UP_AFTER {
            assert_eq!(read(&mut stats, &[(KEY, total(0, 0))], alive), said(&[], 0));
        }
    }

    #[test]
    fn a_sum_that_was_read_before_its_slot_is_said_with_its_call() {
        let (mut stats, alive) = (Stats::default(), Life::Alive(StartTicks(5)));
        read(&mut stats, &[(KEY, total(1, 10))], alive);
        assert_eq!(read(&mut stats, &[(KEY, total(1, 30))], alive), said(&[], 0));
        assert_eq!(read(&mut stats, &[(KEY, total(2, 30))], alive), said(&["1/20/false"], 0));
        // and nothing is kept back from the last word
        read(&mut stats, &[(KEY, total(2, 70))], Life::Gone);
        assert_eq!(read(&mut stats, &[(KEY, total(2, 70))], Life::Gone), said(&["0/40/true"], 1));
    }
}
