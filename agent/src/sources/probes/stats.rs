//! Finished calls: from the histogram map's running totals to what was added since the reading before.
//!
//! In: the map's entries, and which processes still live. Out: [`Signal::CallStats`] and, for what is none of a process's
//! calls, [`Signal::LockWaits`] and [`Signal::UvmWork`]; and keys to delete.
//! What can go wrong: slots wrap at 32 bits, so differences wrap too; the rest is in [`super::totals`].

use warpgauge_ebpf::calls::kind;
use warpgauge_ebpf::histogram::{Histogram, HistogramKey};

use super::call_signal::{call_kind, device, function};
use super::locks::{LockNames, lock_mode};
use super::totals::{Key, Life, Sum, Totals};
use crate::model::{CallStats, CgroupId, LatencyDelta, LockWaits, MonoNs, Pid, Signal, UvmWork, UvmWorkKind};

impl Key for HistogramKey {
    fn tgid(&self) -> u32 {
        self.tgid
    }
}

impl Sum for Histogram {
    const NOTHING: Self = Self::EMPTY;

    fn since(&self, before: &Self) -> Self {
        let mut added = Self {
            sum_ns: self.sum_ns.wrapping_sub(before.sum_ns),
            errors: self.errors.wrapping_sub(before.errors),
            ..Self::EMPTY
        };
        for (slot, (now, before)) in added.slots.iter_mut().zip(self.slots.iter().zip(&before.slots)) {
            *slot = now.wrapping_sub(*before);
        }
        added
    }

    /// A sum without a call was read in the middle of the kernel's adds: it is said with its call.
    fn is_nothing(&self) -> bool {
        self.slots.iter().all(|count| *count == 0)
    }
}

/// What was seen at the reading before.
#[derive(Debug, Default)]
pub struct Stats {
    totals: Totals<HistogramKey, Histogram>,
}

impl Stats {
    /// Goes through the map's entries. Gives back the keys whose last counts were said: delete them.
    pub fn read(
        &mut self,
        now: MonoNs,
        entries: &[(HistogramKey, Histogram)],
        locks: &mut LockNames,
        life: &mut impl FnMut(u32) -> Life,
        emit: &mut impl FnMut(Signal),
    ) -> &[HistogramKey] {
        self.totals.read(entries, life, &mut |key, added, last| emit(signal(now, key, added, last, locks)))
    }
}

fn signal(at: MonoNs, key: &HistogramKey, added: &Histogram, last: bool, locks: &mut LockNames) -> Signal {
    let latency = LatencyDelta { slots: added.slots, sum_ns: added.sum_ns, errors: added.errors };
    let (pid, cgroup) = (Pid(key.tgid), CgroupId(key.cgroup));
    match key.kind {
        kind::SERVICE | kind::EVICT => {
            let service = key.kind == kind::SERVICE;
            let kind = if service { UvmWorkKind::Service } else { UvmWorkKind::Eviction };
            Signal::UvmWork { at, work: Box::new(UvmWork { kind, latency }) }
        }
        kind::LOCK => {
            // of such a key, the operation is the lock and the device how it was wanted
            let (lock, mode) = (locks.learn(key.op, at), lock_mode(key.dev));
            Signal::LockWaits {
                at,
                waits: Box::new(LockWaits { pid, cgroup, lock, mode, waits: latency, last }),
            }
        }
        _ => {
            let (kind, function) = (call_kind(key.kind), function(key.kind));
            let device = device(key.dev);
            let stats = CallStats { pid, cgroup, device, kind, function, op: key.op, latency, last };
            Signal::CallStats { at, stats: Box::new(stats) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LockMode, StartTicks};
    use crate::sources::probes::totals::GIVEN_UP_AFTER;

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
        let deleted =
            stats.read(MonoNs(1), entries, &mut LockNames::default(), &mut |_| life, &mut emit).len();
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
        assert!(stats.totals.is_empty());
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
        assert!(stats.totals.is_empty());
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

    #[test]
    fn waits_for_locks_and_work_of_the_kernels_own_threads_are_no_calls() {
        let (mut stats, mut names) = (Stats::default(), LockNames::default());
        let key = |kind, tgid, dev, op| HistogramKey { cgroup: 9, tgid, dev, op, kind };
        let entries = [
            (key(kind::FAULT, 77, 0, 0), total(1, 10)),
            (key(kind::INIT, 77, 0, 0), total(1, 10)),
            (key(kind::LOCK, 77, 1, 0x1234), total(2, 20)),
            (key(kind::SERVICE, 0, 0, 0), total(3, 30)),
            (key(kind::EVICT, 77, 0, 0), total(4, 40)),
        ];
        let mut said = Vec::new();
        let mut emit = |signal| {
            said.push(match signal {
                Signal::CallStats { stats, .. } => {
                    format!("{} {:?} {}", stats.kind.name(), stats.function, stats.latency.count())
                }
                Signal::LockWaits { waits, .. } => {
                    assert_eq!((waits.pid, waits.mode), (Pid(77), LockMode::Write));
                    format!("{} {}", waits.lock, waits.waits.count())
                }
                Signal::UvmWork { work, .. } => format!("{:?} {}", work.kind, work.latency.count()),
                other => panic!("{other:?}"),
            });
        };
        stats.read(MonoNs(1), &entries, &mut names, &mut |_| Life::Unknown, &mut emit);
        assert_eq!(
            said,
            ["fault None 1", "driver Some(\"rm_init_adapter\") 1", "lock-1 2", "Service 3", "Eviction 4"]
        );
    }
}
