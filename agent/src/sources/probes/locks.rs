//! The driver's locks: their names, who has them, and what of the map may go.
//!
//! In: entries of the map of held locks, calls in flight. Out: names, lists of holders, keys to delete.
//! A lock's address never leaves this module: it would tell where the kernel's memory is.
//! What can go wrong: a release that was not seen, or was another thread's, leaves the holder's entry behind, and it is
//! believed until somebody else is seen to take the lock. A GPU lock's semaphore has no holders: see the kernel's part.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use warpgauge_ebpf::calls::{InFlight, InFlightKey, kind, layer};
use warpgauge_ebpf::lock::{Held, HeldKey, mode, number};
use warpgauge_ebpf::maps::HELD_ENTRIES;

use super::call_signal::caller;
use crate::model::{Holder, LockHolders, LockMode, MonoNs, Pid, Tid};

/// The kernel's number for a mode.
pub fn lock_mode(number: u32) -> LockMode {
    match number {
        mode::READ => LockMode::Read,
        mode::WRITE => LockMode::Write,
        mode::SEMAPHORE => LockMode::Semaphore,
        _ => LockMode::Mutex,
    }
}

/// Names of locks by [`number`]: `rm_api` for the one that serves the resource manager's interface, else `lock-N` in the
/// order of their appearance.
#[derive(Debug, Default)]
pub struct LockNames {
    known: HashMap<u32, Named>,
    made: u64,
    rm_api: Option<u32>,
}

#[derive(Debug)]
struct Named {
    number: u64,
    seen: MonoNs,
    /// Threads that had it as their first reader-writer lock while the resource manager served them; a few are enough.
    served: BTreeSet<u32>,
    /// When that was seen last.
    served_at: MonoNs,
}

impl LockNames {
    /// Most locks known by name; the one that was not seen for longest is forgotten.
    const MAX: usize = 1_024;
    /// As many threads make the case for the interface's lock, and more are not counted.
    const THREADS_ENOUGH: usize = 2;
    const THREADS_MAX: usize = 16;
    /// A lock that has not served for this long is another driver's than the one that is loaded now.
    const OLD: Duration = Duration::from_secs(60);

    /// The name of a lock that was seen now.
    pub fn learn(&mut self, lock: u32, now: MonoNs) -> String {
        self.see(lock, now);
        self.name(lock)
    }

    /// The name of a lock; of one that is not known, no more than that it is one.
    pub fn name(&self, lock: u32) -> String {
        match self.known.get(&lock) {
            _ if self.rm_api == Some(lock) => "rm_api".to_owned(),
            Some(named) => format!("lock-{}", named.number),
            None => "lock".to_owned(),
        }
    }

    /// Looks at all threads that the resource manager serves now: the lock of its interface is the reader-writer lock
    /// that most of them took (or want) before any other.
    pub fn learn_rm_api(
        &mut self,
        now: MonoNs,
        held: &[(HeldKey, Held)],
        in_flight: &[(InFlightKey, InFlight)],
    ) {
        let is_served = |call: &InFlight| call.kind == kind::RM || call.rm.escape != 0;
        let served: BTreeSet<u32> =
            in_flight.iter().filter(|(_, call)| is_served(call)).map(|(key, _)| key.tid).collect();
        let mut first: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        let mut take = |tid: u32, at: u64, lock: u64, mode: u32| {
            if matches!(mode, mode::READ | mode::WRITE) && served.contains(&tid) {
                let earliest = first.entry(tid).or_insert((at, number(lock)));
                *earliest = (*earliest).min((at, number(lock)));
            }
        };
        held.iter().for_each(|(key, held)| take(key.tid, held.since_ns, key.lock, held.mode));
        let waits =
            in_flight.iter().filter(|(key, call)| key.layer == layer::LOCK && call.kind == kind::LOCK);
        waits.for_each(|(key, call)| take(key.tid, call.enter_ns, call.object, call.op));
        for (tid, (_, lock)) in first {
            let named = self.see(lock, now);
            named.served_at = now;
            if named.served.len() < Self::THREADS_MAX {
                named.served.insert(tid);
            }
        }
        self.choose_rm_api(now);
    }

    fn choose_rm_api(&mut self, now: MonoNs) {
        let is_old = |named: &Named| now.since(named.served_at).unwrap_or_default() >= Self::OLD;
        let current = self.rm_api.and_then(|lock| self.known.get(&lock));
        if current.is_some_and(|named| !is_old(named)) {
            return; // its name stays as it is
        }
        let candidates = self
            .known
            .iter()
            .filter(|(_, named)| named.served.len() >= Self::THREADS_ENOUGH && !is_old(named));
        let best = candidates.max_by_key(|(_, named)| (named.served.len(), std::cmp::Reverse(named.number)));
        if let Some((lock, _)) = best {
            self.rm_api = Some(*lock);
        }
    }

    fn see(&mut self, lock: u32, now: MonoNs) -> &mut Named {
        if self.known.len() >= Self::MAX && !self.known.contains_key(&lock) {
            let others = self.known.iter().filter(|(lock, _)| self.rm_api != Some(**lock));
            if let Some(oldest) =
                others.min_by_key(|(_, named)| (named.seen, named.number)).map(|(lock, _)| *lock)
            {
                self.known.remove(&oldest);
            }
        }
        let named = self.known.entry(lock).or_insert_with(|| {
            self.made += 1;
            Named { number: self.made, seen: now, served: BTreeSet::new(), served_at: MonoNs(0) }
        });
        named.seen = named.seen.max(now);
        named
    }
}

/// Who has the lock, as far as the map tells; the earliest first.
pub fn holders(names: &mut LockNames, now: MonoNs, lock: u64, held: &[(HeldKey, Held)]) -> LockHolders {
    let latest = Latest::of_locks(held).remove(&lock).unwrap_or_default();
    let mut found: Vec<&(HeldKey, Held)> =
        held.iter().filter(|(key, held)| key.lock == lock && !latest.is_over(held)).collect();
    found.sort_by_key(|(key, held)| (held.since_ns, key.tid));
    let holder = |(key, held): &&(HeldKey, Held)| Holder {
        pid: Pid(held.tgid),
        tid: Tid(key.tid),
        caller: Some(caller(&held.comm, held.start_ns, held.cgroup)),
        since: MonoNs(held.since_ns),
        exclusive: is_exclusive(held),
    };
    LockHolders { lock: names.learn(number(lock), now), holders: found.iter().map(holder).collect() }
}

fn is_exclusive(held: &Held) -> bool {
    lock_mode(held.mode).is_exclusive()
}

/// When a lock was last taken.
#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    /// By anybody.
    any: u64,
    /// By somebody who keeps all others out.
    alone: u64,
}

impl Latest {
    fn of_locks(held: &[(HeldKey, Held)]) -> HashMap<u64, Self> {
        let mut latest: HashMap<u64, Self> = HashMap::new();
        for (key, held) in held {
            let of = latest.entry(key.lock).or_default();
            of.any = of.any.max(held.since_ns);
            if is_exclusive(held) {
                of.alone = of.alone.max(held.since_ns);
            }
        }
        latest
    }

    /// Whoever is alone with a lock lets nobody else in: what is older has been let go, though nobody saw it.
    fn is_over(&self, held: &Held) -> bool {
        held.since_ns < if is_exclusive(held) { self.any } else { self.alone }
    }
}

/// What the map keeps of threads that are no more.
#[derive(Debug, Default)]
pub struct Garbage {
    /// Entries whose thread was gone at the look before, with the time they are of.
    gone: BTreeMap<HeldKey, u64>,
}

impl Garbage {
    /// Goes through the map; what means nothing any more is returned, with the time of the entry that is meant. A dead
    /// thread's entry stays while somebody waits for its lock, since it is the reason, and until the thread was found gone
    /// twice. A living thread's stays, unless the map fills with what others let go.
    pub fn find(
        &mut self,
        held: &[(HeldKey, Held)],
        waited_for: &BTreeSet<u64>,
        is_gone: &mut impl FnMut(&HeldKey, &Held) -> bool,
    ) -> Vec<(HeldKey, u64)> {
        let is_full = held.len() > HELD_ENTRIES as usize / 2;
        let latest = if is_full { Latest::of_locks(held) } else { HashMap::new() };
        let mut over = Vec::new();
        let before = std::mem::take(&mut self.gone);
        for (key, entry) in held {
            if latest.get(&key.lock).is_some_and(|latest| latest.is_over(entry)) {
                over.push((*key, entry.since_ns));
            } else if !waited_for.contains(&key.lock) && is_gone(key, entry) {
                if before.get(key) == Some(&entry.since_ns) {
                    over.push((*key, entry.since_ns));
                } else {
                    self.gone.insert(*key, entry.since_ns);
                }
            }
        }
        over
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
