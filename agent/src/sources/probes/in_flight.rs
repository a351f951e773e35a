//! Calls that hang: from repeated looks at the in-flight map to entries, thread states and ends.
//!
//! In: the map's entries at each scan, ends from the ring buffer, a look at each thread. Out: [`Signal`]s.
//! A thread's entries nest by the time they began: the outermost is looked at, and what is found holds for all of them.
//! What can go wrong: a return may be lost on three ways. An entry that only *outside* can close is closed so; one that
//! vanished without an event is closed one scan later; one of an inner layer that is older than its thread's system call
//! is a leftover. All are counted.

use std::collections::BTreeMap;
use std::time::Duration;

use warpgauge_ebpf::calls::{InFlight, InFlightKey, SlowCall, flags, layer};

use crate::model::{Inside, MonoNs, Pid, Signal, ThreadState, Tid};
use crate::telemetry::Counter;

use super::call_signal::{Names, enter, exit};
use super::inside::Sample;

/// What a look at a thread gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// For the pipeline.
    pub state: ThreadState,
    /// To be compared with at the next look.
    pub sample: Option<Sample>,
}

/// What may be asked while the entries are gone through. Walks and looks take time, so neither is believed before the
/// map was asked again.
pub trait Node {
    /// Looks at the thread of an entry.
    fn look(&mut self, key: &InFlightKey, call: &InFlight, before: Option<&Sample>) -> Look;

    /// The thread's entry as it is at this moment.
    fn entry(&mut self, key: &InFlightKey) -> Option<InFlight>;

    /// Whether the thread of an entry is seen in a function of the driver.
    fn is_in_driver(&mut self, key: &InFlightKey, call: &InFlight) -> bool;
}

/// The slow calls that were announced and have not ended.
#[derive(Debug)]
pub struct Tracker {
    slow: Duration,
    calls: BTreeMap<InFlightKey, Announced>,
    /// Entries to be deleted from the map; used again from scan to scan.
    over: Vec<(InFlightKey, InFlight)>,
    /// The entries of one thread, the outermost first; used again.
    nest: Vec<(InFlightKey, InFlight)>,
    lost_returns: Counter,
}

#[derive(Debug)]
struct Announced {
    call: InFlight,
    sample: Option<Sample>,
    /// The last time there was a sign of it.
    last_seen: MonoNs,
    /// It was not in the map at the scan before.
    missing: bool,
    /// It was in the map at this scan.
    seen: bool,
}

impl Tracker {
    /// Calls are announced once they last `slow`; the kernel programs report the end of calls at least that long.
    pub fn new(slow: Duration, lost_returns: Counter) -> Self {
        Self { slow, calls: BTreeMap::new(), over: Vec::new(), nest: Vec::new(), lost_returns }
    }

    /// The kernel reports the end of a slow call.
    pub fn ended(&mut self, event: &SlowCall, names: &Names, emit: &mut impl FnMut(Signal)) {
        if is_the_kernels_own(&event.call) {
            return;
        }
        let announced = self.calls.get(&event.key).is_some_and(|known| same(&known.call, &event.call));
        if announced {
            self.calls.remove(&event.key);
        } else {
            emit(enter(&event.key, &event.call, names));
        }
        emit(exit(MonoNs(event.end_ns), Some(event.ret), &event.key, &event.call, names));
    }

    /// Goes through the map's entries, ordered by thread. Gives back those that are proven to be over: delete them. `now`
    /// is a time at which all ends so far had been told, so that a call followed by another slow one has ended unseen.
    pub fn scan(
        &mut self,
        now: MonoNs,
        entries: &[(InFlightKey, InFlight)],
        names: &Names,
        node: &mut impl Node,
        emit: &mut impl FnMut(Signal),
    ) -> &[(InFlightKey, InFlight)] {
        self.over.clear();
        let mut nest = std::mem::take(&mut self.nest);
        for of_thread in entries.chunk_by(|(a, _), (b, _)| a.tid == b.tid) {
            nest.clear();
            nest.extend(of_thread.iter().filter(|(_, call)| !is_the_kernels_own(call)));
            self.scan_thread(&mut nest, now, names, node, emit);
        }
        self.nest = nest;
        self.look_for_unseen(now, names, node, emit);
        self.close_vanished(now, names, emit);
        &self.over
    }

    /// One thread's entries: what cannot be is taken out, what lasts is announced, and one look is for all.
    fn scan_thread(
        &mut self,
        nest: &mut Vec<(InFlightKey, InFlight)>,
        now: MonoNs,
        names: &Names,
        node: &mut impl Node,
        emit: &mut impl FnMut(Signal),
    ) {
        let syscall = nest.iter().find(|(key, _)| key.layer == layer::SYSCALL).map(|(_, call)| call.enter_ns);
        nest.retain(|(key, call)| {
            let is_left_over = syscall.is_some_and(|began| call.enter_ns < began);
            if is_left_over && is_still(key, call, node) {
                self.over.push((*key, *call));
                self.close_lost(now, key, call, names, emit);
            }
            !is_left_over
        });
        nest.sort_unstable_by_key(|(key, call)| (call.enter_ns, key.layer));
        nest.retain(|(key, call)| {
            let old_enough = now.since(MonoNs(call.enter_ns)).is_some_and(|age| age >= self.slow);
            old_enough && (!is_unread(call) || self.is_the_drivers(key, call, node))
        });
        for (key, call) in nest.iter() {
            self.announce(*key, call, now, names, emit);
        }
        self.look_at(nest, now, names, node, emit);
    }

    /// The probes of these kinds are off: the ends of what they began will not be seen. Gives back their entries, to be
    /// deleted; what is announced is closed, and all are counted. `kinds`: as bits `1 << kind`.
    pub fn abandon(
        &mut self,
        now: MonoNs,
        kinds: u32,
        entries: &[(InFlightKey, InFlight)],
        names: &Names,
        emit: &mut impl FnMut(Signal),
    ) -> &[(InFlightKey, InFlight)] {
        self.over.clear();
        for (key, call) in entries.iter().filter(|(_, call)| is_of(kinds, call)) {
            self.over.push((*key, *call));
            // an open of an unread path is mostly none of ours
            if !is_unread(call) {
                self.close_lost(now, key, call, names, emit);
            }
        }
        // an entry may vanish under the walk
        let left = self.calls.iter().filter(|(_, known)| is_of(kinds, &known.call));
        let left: Vec<_> = left.map(|(key, known)| (*key, known.call)).collect();
        left.iter().for_each(|(key, call)| self.close_lost(now, key, call, names, emit));
        &self.over
    }

    /// Nobody will look any more: each call is closed at the last sign of it.
    pub fn forget(&mut self, names: &Names, emit: &mut impl FnMut(Signal)) {
        for (key, known) in std::mem::take(&mut self.calls) {
            emit(exit(known.last_seen, None, &key, &known.call, names));
        }
    }

    /// Calls announced and not ended.
    pub fn open(&self) -> usize {
        self.calls.len()
    }

    fn announce(
        &mut self,
        key: InFlightKey,
        call: &InFlight,
        now: MonoNs,
        names: &Names,
        emit: &mut impl FnMut(Signal),
    ) {
        if let Some(known) = self.calls.get_mut(&key) {
            if same(&known.call, call) {
                known.call = *call;
                return;
            }
            // the thread is in another call by now, and nobody said how the former one ended
            let former = known.call;
            self.close_lost(now, &key, &former, names, emit);
        }
        emit(enter(&key, call, names));
        let known = Announced { call: *call, sample: None, last_seen: now, missing: false, seen: true };
        self.calls.insert(key, known);
    }

    /// Looks at the thread once, as what it is in outermost says. What is found holds for all that is within.
    fn look_at(
        &mut self,
        nest: &[(InFlightKey, InFlight)],
        now: MonoNs,
        names: &Names,
        node: &mut impl Node,
        emit: &mut impl FnMut(Signal),
    ) {
        let Some((outer, outer_call)) = nest.first() else { return };
        for (key, _) in nest {
            if let Some(known) = self.calls.get_mut(key) {
                (known.seen, known.missing) = (true, false);
            }
        }
        let before = self.calls.get(outer).and_then(|known| known.sample);
        let look = node.look(outer, outer_call, before.as_ref());
        let outside = look.state.inside == Inside::Outside;
        // it may have returned between the walk and the look: then its end is on its way, and nothing is proven
        if outside && !is_still(outer, outer_call, node) {
            return;
        }
        if let Some(known) = self.calls.get_mut(outer) {
            known.sample = look.sample;
        }
        for (key, _) in nest {
            if let Some(known) = self.calls.get_mut(key) {
                known.last_seen = now;
            }
        }
        let (pid, tid) = (Pid(outer_call.tgid), Tid(outer.tid));
        emit(Signal::Thread { at: now, pid, tid, state: look.state });
        if outside {
            for (key, call) in nest.iter().rev().filter(|(key, call)| is_still(key, call, node)) {
                self.over.push((*key, *call));
                self.close_lost(now, key, call, names, emit);
            }
        }
    }

    /// An open without a name may be of any file: nothing is said of it before its end tells, unless it hangs in the
    /// driver; and it must not stay.
    fn is_the_drivers(&mut self, key: &InFlightKey, call: &InFlight, node: &mut impl Node) -> bool {
        let announced = self.calls.get(key).is_some_and(|known| same(&known.call, call));
        // the thread may have gone on to another call while it was looked at
        if announced || node.is_in_driver(key, call) && is_still(key, call, node) {
            return true;
        }
        let outside = node.look(key, call, None).state.inside == Inside::Outside;
        if outside && is_still(key, call, node) {
            self.over.push((*key, *call));
        }
        false
    }

    /// A walk under which entries come and go may pass over one that is there all the time.
    fn look_for_unseen(
        &mut self,
        now: MonoNs,
        names: &Names,
        node: &mut impl Node,
        emit: &mut impl FnMut(Signal),
    ) {
        let unseen = self.calls.iter().filter(|(_, known)| !known.seen);
        let mut unseen: Vec<_> = unseen.map(|(key, known)| (*key, known.call)).collect();
        unseen.retain(|(key, call)| is_still(key, call, node));
        for nest in unseen.chunk_by_mut(|(a, _), (b, _)| a.tid == b.tid) {
            nest.sort_unstable_by_key(|(key, call)| (call.enter_ns, key.layer));
            let tid = nest.first().map_or(0, |(key, _)| key.tid);
            let whole = InFlightKey { tid, layer: layer::SYSCALL }..=InFlightKey { tid, layer: layer::LOCK };
            if self.calls.range(whole).all(|(_, known)| !known.seen) {
                self.look_at(nest, now, names, node, emit);
                continue;
            }
            // the thread was looked at for another of its entries
            for (key, _) in nest.iter() {
                if let Some(known) = self.calls.get_mut(key) {
                    (known.seen, known.missing, known.last_seen) = (true, false, now);
                }
            }
        }
    }

    /// An end may be on its way through the ring buffer while its entry is gone: it gets one scan's time.
    fn close_vanished(&mut self, now: MonoNs, names: &Names, emit: &mut impl FnMut(Signal)) {
        let lost = &self.lost_returns;
        self.calls.retain(|key, known| {
            if std::mem::replace(&mut known.seen, false) {
                return true;
            }
            if known.missing {
                // one that failed has no descriptor that would tell what it was of, and so no event
                lost.add(u64::from(!is_unread(&known.call)));
                emit(exit(now, None, key, &known.call, names));
            }
            !std::mem::replace(&mut known.missing, true)
        });
    }

    fn close_lost(
        &mut self,
        now: MonoNs,
        key: &InFlightKey,
        call: &InFlight,
        names: &Names,
        emit: &mut impl FnMut(Signal),
    ) {
        self.lost_returns.add(1);
        if self.calls.remove(key).is_some() {
            emit(exit(now, None, key, call, names));
        }
    }
}

fn is_of(kinds: u32, call: &InFlight) -> bool {
    kinds.checked_shr(call.kind).is_some_and(|kinds| kinds & 1 == 1)
}

/// Whether the map still has this very call.
fn is_still(key: &InFlightKey, call: &InFlight, node: &mut impl Node) -> bool {
    node.entry(key).is_some_and(|entry| same(&entry, call))
}

/// Work that a thread of the kernel does for whoever needs it: nobody hangs in it.
fn is_the_kernels_own(call: &InFlight) -> bool {
    call.flags & flags::KERNEL_THREAD != 0
}

/// An open whose path's page was not in memory.
fn is_unread(call: &InFlight) -> bool {
    call.flags & flags::PATH_UNREAD != 0
}

/// A thread makes one call of a layer at a time, so thread and time name a call.
fn same(a: &InFlight, b: &InFlight) -> bool {
    a.enter_ns == b.enter_ns
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
