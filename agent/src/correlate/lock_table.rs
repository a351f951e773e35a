//! Who has which of the driver's locks.
//!
//! In: lists of holders, as the probes read them from the kernel while somebody waits. Out: the holder that a victim waits
//! for, and whether it has ended.
//! That a thread came out of its wait says nothing: when it lets go is not told, and not every wait ends with the lock.
//! What can go wrong: a lock taken before anybody looked has no known holder, nor has one whose list came before the wait,
//! or was dropped; more locks than are kept: the one that was not heard of for longest is forgotten, and counted.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{Holder, LockHolders, MonoNs, Pid, Signal, Tid};
use crate::telemetry::{Counter, Telemetry};

/// Holders by the name of the lock.
#[derive(Debug)]
pub struct LockTable {
    locks: BTreeMap<String, Lock>,
    /// Processes that have ended, and when.
    ended: BTreeMap<Pid, MonoNs>,
    refused: Counter,
}

/// What is known of one lock.
#[derive(Debug)]
struct Lock {
    heard: MonoNs,
    holders: Vec<Holder>,
}

impl LockTable {
    /// Most locks that have holders at once.
    const LOCKS_MAX: usize = 4_096;
    /// Most holders kept of one lock: readers may be many, and one tells the story.
    const HOLDERS_MAX: usize = 64;
    /// How long the end of a process is remembered, and how many.
    const REMEMBERED: Duration = Duration::from_secs(600);
    const ENDED_MAX: usize = 16_384;

    /// Nobody has anything; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "locks")]);
        Self { locks: BTreeMap::new(), ended: BTreeMap::new(), refused }
    }

    /// Learns from a signal.
    pub fn push(&mut self, signal: &Signal) {
        match signal {
            Signal::LockHolders { holders, .. } if holders.holders.is_empty() => {
                self.locks.remove(&holders.lock);
            }
            Signal::LockHolders { at, holders } => self.list(*at, holders),
            Signal::Exit { at, pid } | Signal::Process { at, pid, process: None } => self.end(*at, *pid),
            Signal::Tick { at } => {
                self.ended.retain(|_, ended| at.since(*ended).is_none_or(|age| age < Self::REMEMBERED));
            }
            Signal::Source { source, .. } if source.name == "probes" && !source.up => self.locks.clear(),
            _ => {} // nothing else says who has a lock
        }
    }

    fn list(&mut self, at: MonoNs, list: &LockHolders) {
        let lock = self.lock(at, &list.lock);
        lock.holders = list.holders.iter().take(Self::HOLDERS_MAX).cloned().collect();
    }

    fn end(&mut self, at: MonoNs, pid: Pid) {
        if self.ended.len() < Self::ENDED_MAX || self.ended.contains_key(&pid) {
            self.ended.insert(pid, at);
        } else {
            self.refused.add(1);
        }
    }

    /// The lock of this name, which was heard of now.
    fn lock(&mut self, at: MonoNs, name: &str) -> &mut Lock {
        if self.locks.len() >= Self::LOCKS_MAX && !self.locks.contains_key(name) {
            self.refused.add(1);
            let oldest = self.locks.iter().min_by_key(|(_, lock)| lock.heard).map(|(name, _)| name.clone());
            oldest.and_then(|name| self.locks.remove(&name));
        }
        let lock =
            self.locks.entry(name.to_owned()).or_insert_with(|| Lock { heard: at, holders: Vec::new() });
        lock.heard = at;
        lock
    }

    /// Whom a thread waits for since then: the one who keeps others out, else who has had the lock for longest. An older
    /// list was made for another wait, and who is in it may have let go unseen.
    pub fn holder(&self, lock: &str, waiting: Tid, since: MonoNs) -> Option<&Holder> {
        let list = self.locks.get(lock).filter(|list| list.heard >= since)?;
        let others = list.holders.iter().filter(|holder| holder.tid != waiting);
        others.min_by_key(|holder| (!holder.exclusive, holder.since))
    }

    /// How many have the lock.
    pub fn count(&self, lock: &str) -> usize {
        self.locks.get(lock).map_or(0, |lock| lock.holders.len())
    }

    /// Whether the holder's process has ended since it took the lock.
    pub fn is_dead(&self, holder: &Holder) -> bool {
        self.ended.get(&holder.pid).is_some_and(|ended| *ended >= holder.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::signal::SourceState;

    /// A list of the lock's holders. Those from 50 on keep all others out; each has had it since its own number.
    fn list(at: u64, lock: &str, tids: &[u32]) -> Signal {
        let holder = |tid: &u32| Holder {
            pid: Pid(tid / 10),
            tid: Tid(*tid),
            caller: None,
            since: MonoNs(u64::from(*tid)),
            exclusive: *tid >= 50,
        };
        let holders = LockHolders { lock: lock.into(), holders: tids.iter().map(holder).collect() };
        Signal::LockHolders { at: MonoNs(at), holders: Box::new(holders) }
    }

    fn table(signals: &[Signal]) -> LockTable {
        let mut table = LockTable::new(&Telemetry::default());
        signals.iter().for_each(|signal| table.push(signal));
        table
    }

    /// The thread that has the lock, as thread 99 sees it that waits since 100, and how many have it.
    #[track_caller]
    fn check(signals: &[Signal], want: (Option<u32>, usize)) {
        let table = table(signals);
        let seen = (table.holder("L", Tid(99), MonoNs(100)).map(|holder| holder.tid.0), table.count("L"));
        assert_eq!(seen, want, "{signals:?}");
    }

    #[test]
    fn the_last_list_tells_who_has_it() {
        check(&[], (None, 0));
        check(&[list(100, "L", &[14, 13])], (Some(13), 2));
        check(&[list(100, "L", &[14, 13]), list(110, "L", &[15])], (Some(15), 1));
        check(&[list(100, "L", &[14]), list(110, "L", &[])], (None, 0));
        check(&[list(100, "L", &[14]), list(110, "M", &[15])], (Some(14), 1));
        check(&[list(100, "L", &[11, 50])], (Some(50), 2));
        check(&[list(100, "L", &[99])], (None, 1));
    }

    #[test]
    fn a_list_from_before_a_wait_says_nothing_of_it() {
        check(&[list(99, "L", &[11])], (None, 1));
        check(&[list(99, "L", &[11]), list(100, "L", &[12])], (Some(12), 1));
    }

    #[test]
    fn without_the_probes_nobody_knows() {
        let source = |name: &str, up| {
            let source = SourceState { name: name.into(), up, reason: None, late: None };
            Signal::Source { at: MonoNs(120), source }
        };
        check(&[list(110, "L", &[11]), source("probes", false)], (None, 0));
        check(&[list(110, "L", &[11]), source("nvml", false), source("probes", true)], (Some(11), 1));
    }

    #[test]
    fn a_holder_is_dead_when_its_process_ended_after_it_took_the_lock() {
        let exit = |at| Signal::Exit { at: MonoNs(at), pid: Pid(1) };
        for (signals, want) in [
            (vec![list(100, "L", &[11])], false),
            (vec![list(100, "L", &[11]), exit(12)], true),
            (vec![exit(10), list(100, "L", &[11])], false), // another one with that number
        ] {
            let table = table(&signals);
            let holder = table.holder("L", Tid(99), MonoNs(100)).expect("a holder");
            assert_eq!(table.is_dead(holder), want, "{signals:?}");
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let telemetry = Telemetry::default();
        let mut table = LockTable::new(&telemetry);
        for n in 0..LockTable::LOCKS_MAX + 3 {
            table.push(&list(n as u64, &format!("L{n}"), &[11]));
        }
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "locks")]).get();
        assert_eq!((table.locks.len(), refused), (LockTable::LOCKS_MAX, 3));
        assert_eq!((table.count("L0"), table.count(&format!("L{}", LockTable::LOCKS_MAX))), (0, 1));
        let many: Vec<u32> = (0..LockTable::HOLDERS_MAX as u32 + 3).collect();
        table.push(&list(9_999, "L9", &many));
        assert_eq!(table.count("L9"), LockTable::HOLDERS_MAX);
    }
}
