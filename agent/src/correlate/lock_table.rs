//! Who has which of the driver's locks.
//!
//! In: lists of holders, as the probes read them from the kernel; or, in a replay, the edges of each thread's own waits:
//! who came out of one has the lock until it lets go. Out: the holder that a victim waits for, and whether it has ended.
//! What can go wrong: a lock taken before anybody looked has no known holder; more locks than are kept: the one that was
//! not heard of for longest is forgotten, and counted.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{Call, CallKind, Edge, Holder, LockHolders, MonoNs, Pid, Signal, Tid};
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
            Signal::Call { at, call } if call.kind == CallKind::Lock => self.edge(*at, call),
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

    fn edge(&mut self, at: MonoNs, call: &Call) {
        let Some(wait) = &call.lock else { return };
        match call.edge {
            Edge::Exit { lost: false, .. } => {
                let holders = &mut self.lock(at, &wait.lock).holders;
                // whoever had it otherwise has let it go: that was not seen
                holders.retain(|other| !wait.exclusive && !other.exclusive && other.tid != call.tid);
                if holders.len() < Self::HOLDERS_MAX {
                    let (caller, exclusive) = (call.caller.clone(), wait.exclusive);
                    holders.push(Holder { pid: call.pid, tid: call.tid, caller, since: at, exclusive });
                }
            }
            Edge::Release => {
                if let Some(lock) = self.locks.get_mut(&wait.lock) {
                    lock.holders.retain(|holder| holder.tid != call.tid);
                    if lock.holders.is_empty() {
                        self.locks.remove(&wait.lock);
                    }
                }
            }
            Edge::Enter | Edge::Exit { .. } => {}
        }
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

    /// Whom a thread waits for: the one who keeps others out, else who has had the lock for longest.
    pub fn holder(&self, lock: &str, waiting: Tid) -> Option<&Holder> {
        let others = self.locks.get(lock)?.holders.iter().filter(|holder| holder.tid != waiting);
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
    use crate::model::call::LockWait;

    fn call(ms: u64, tid: u32, exclusive: bool, edge: Edge) -> Signal {
        let lock = Some(LockWait { lock: "L".into(), exclusive });
        let call = Call {
            pid: Pid(tid / 10),
            tid: Tid(tid),
            kind: CallKind::Lock,
            op: 0,
            driver: None,
            device: None,
            node: None,
            function: None,
            rm: None,
            lock,
            edge,
            caller: None,
        };
        Signal::Call { at: MonoNs(ms), call: Box::new(call) }
    }

    fn got(ms: u64, tid: u32, exclusive: bool) -> Signal {
        call(ms, tid, exclusive, Edge::Exit { ret: None, status: None, lost: false })
    }

    fn table(signals: &[Signal]) -> LockTable {
        let mut table = LockTable::new(&Telemetry::default());
        signals.iter().for_each(|signal| table.push(signal));
        table
    }

    /// The thread that has the lock, as thread 99 sees it, and how many have it.
    #[track_caller]
    fn check(signals: &[Signal], want: (Option<u32>, usize)) {
        let table = table(signals);
        let seen = (table.holder("L", Tid(99)).map(|holder| holder.tid.0), table.count("L"));
        assert_eq!(seen, want, "{signals:?}");
    }

    #[test]
    fn who_came_out_of_the_wait_has_it_until_it_lets_go() {
        check(&[call(1, 11, true, Edge::Enter)], (None, 0));
        check(&[got(1, 11, true)], (Some(11), 1));
        check(&[got(1, 11, true), call(2, 11, true, Edge::Release)], (None, 0));
        check(&[got(1, 11, true), got(2, 12, true)], (Some(12), 1));
        check(&[got(1, 11, false), got(2, 12, false)], (Some(11), 2));
        check(&[got(1, 11, false), got(2, 12, true)], (Some(12), 1));
        check(&[got(1, 99, true)], (None, 1));
        check(&[call(1, 11, true, Edge::Exit { ret: None, status: None, lost: true })], (None, 0));
    }

    #[test]
    fn a_list_of_holders_replaces_what_was_known() {
        let list = |tids: &[u32]| {
            let holder = |tid: &u32| Holder {
                pid: Pid(1),
                tid: Tid(*tid),
                caller: None,
                since: MonoNs(u64::from(*tid)),
                exclusive: false,
            };
            let holders = LockHolders { lock: "L".into(), holders: tids.iter().map(holder).collect() };
            Signal::LockHolders { at: MonoNs(5), holders: Box::new(holders) }
        };
        check(&[got(1, 11, true), list(&[14, 13])], (Some(13), 2));
        check(&[got(1, 11, true), list(&[])], (None, 0));
    }

    #[test]
    fn a_holder_is_dead_when_its_process_ended_after_it_took_the_lock() {
        let exit = |ms| Signal::Exit { at: MonoNs(ms), pid: Pid(1) };
        for (signals, want) in [
            (vec![got(5, 11, true)], false),
            (vec![got(5, 11, true), exit(6)], true),
            (vec![exit(4), got(5, 11, true)], false), // another one with that number
        ] {
            let table = table(&signals);
            let holder = table.holder("L", Tid(99)).expect("a holder");
            assert_eq!(table.is_dead(holder), want, "{signals:?}");
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let telemetry = Telemetry::default();
        let mut table = LockTable::new(&telemetry);
        for n in 0..LockTable::LOCKS_MAX + 3 {
            let mut signal = got(n as u64, 11, true);
            let Signal::Call { call, .. } = &mut signal else { panic!("a call") };
            call.lock = Some(LockWait { lock: format!("L{n}"), exclusive: true });
            table.push(&signal);
        }
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "locks")]).get();
        assert_eq!((table.locks.len(), refused), (LockTable::LOCKS_MAX, 3));
        assert_eq!((table.count("L0"), table.count(&format!("L{}", LockTable::LOCKS_MAX))), (0, 1));
    }
}
