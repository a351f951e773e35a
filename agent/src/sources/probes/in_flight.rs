//! Calls that hang: from repeated looks at the in-flight map to entries, thread states and ends.
//!
//! In: the map's entries at each scan, ends from the ring buffer, a look at each thread. Out: [`Signal`]s.
//! What can go wrong: a return may be lost on two ways. An entry that only *outside* can close is closed so; an entry
//! that vanished without an event is closed one scan later. Both are counted.

use std::collections::BTreeMap;
use std::time::Duration;

use warpgauge_ebpf::calls::{InFlight, InFlightKey, SlowCall, flags};

use crate::model::{Inside, MonoNs, Pid, Signal, ThreadState, Tid};
use crate::telemetry::Counter;

use super::call_signal::{enter, exit};
use super::inside::Sample;
use super::majors::Majors;

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
}

/// The slow calls that were announced and have not ended.
#[derive(Debug)]
pub struct Tracker {
    slow: Duration,
    calls: BTreeMap<InFlightKey, Announced>,
    /// Entries to be deleted from the map; used again from scan to scan.
    over: Vec<(InFlightKey, InFlight)>,
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
        Self { slow, calls: BTreeMap::new(), over: Vec::new(), lost_returns }
    }

    /// The kernel reports the end of a slow call.
    pub fn ended(&mut self, event: &SlowCall, majors: &Majors, emit: &mut impl FnMut(Signal)) {
        let announced = self.calls.get(&event.key).is_some_and(|known| same(&known.call, &event.call));
        if announced {
            self.calls.remove(&event.key);
        } else {
            emit(enter(&event.key, &event.call, majors));
        }
        emit(exit(MonoNs(event.end_ns), Some(event.ret), &event.key, &event.call, majors));
    }

    /// Goes through the map's entries. Gives back those that are proven to be over: delete them. `now` is a time at
    /// which all ends so far had been told, so that a call followed by another slow one has ended unseen.
    pub fn scan(
        &mut self,
        now: MonoNs,
        entries: &[(InFlightKey, InFlight)],
        majors: &Majors,
        node: &mut impl Node,
        emit: &mut impl FnMut(Signal),
    ) -> &[(InFlightKey, InFlight)] {
        self.over.clear();
        for (key, call) in entries {
            let old_enough = now.since(MonoNs(call.enter_ns)).is_some_and(|age| age >= self.slow);
            if !old_enough {
                continue;
            }
            if call.flags & flags::PATH_UNREAD != 0 {
                self.look_at_unread(key, call, node);
                continue;
            }
            self.announce(*key, call, now, majors, emit);
            self.look_at(*key, call, now, majors, node, emit);
        }
        self.look_for_unseen(now, majors, node, emit);
        self.close_vanished(now, majors, emit);
        &self.over
    }

    /// Nobody will look any more: each call is closed at the last sign of it.
    pub fn forget(&mut self, majors: &Majors, emit: &mut impl FnMut(Signal)) {
        for (key, known) in std::mem::take(&mut self.calls) {
            emit(exit(known.last_seen, None, &key, &known.call, majors));
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
        majors: &Majors,
        emit: &mut impl FnMut(Signal),
    ) {
        if let Some(known) = self.calls.get_mut(&key) {
            if same(&known.call, call) {
                known.call = *call;
                return;
            }
            // the thread is in another call by now, and nobody said how the former one ended
            let former = known.call;
            self.close_lost(now, &key, &former, majors, emit);
        }
        emit(enter(&key, call, majors));
        let known = Announced { call: *call, sample: None, last_seen: now, missing: false, seen: true };
        self.calls.insert(key, known);
    }

    fn look_at(
        &mut self,
        key: InFlightKey,
        call: &InFlight,
        now: MonoNs,
        majors: &Majors,
        node: &mut impl Node,
        emit: &mut impl FnMut(Signal),
    ) {
        let Some(known) = self.calls.get_mut(&key) else { return };
        (known.seen, known.missing) = (true, false);
        let seen = node.look(&key, call, known.sample.as_ref());
        let outside = seen.state.inside == Inside::Outside;
        // it may have returned between the walk and the look: then its end is on its way, and nothing is proven
        if outside && !is_still(&key, call, node) {
            return;
        }
        (known.sample, known.last_seen) = (seen.sample, now);
        emit(Signal::Thread { at: now, pid: Pid(call.tgid), tid: Tid(key.tid), state: seen.state });
        if outside {
            self.over.push((key, *call));
            self.close_lost(now, &key, call, majors, emit);
        }
    }

    /// An open without a name may be of any file: nothing is said of it before its end tells, but it must not stay.
    fn look_at_unread(&mut self, key: &InFlightKey, call: &InFlight, node: &mut impl Node) {
        let outside = node.look(key, call, None).state.inside == Inside::Outside;
        if outside && is_still(key, call, node) {
            self.over.push((*key, *call));
        }
    }

    /// A walk under which entries come and go may pass over one that is there all the time.
    fn look_for_unseen(
        &mut self,
        now: MonoNs,
        majors: &Majors,
        node: &mut impl Node,
        emit: &mut impl FnMut(Signal),
    ) {
        let unseen = self.calls.iter().filter(|(_, known)| !known.seen);
        let unseen: Vec<_> = unseen.map(|(key, known)| (*key, known.call)).collect();
        for (key, call) in unseen {
            if is_still(&key, &call, node) {
                self.look_at(key, &call, now, majors, node, emit);
            }
        }
    }

    /// An end may be on its way through the ring buffer while its entry is gone: it gets one scan's time.
    fn close_vanished(&mut self, now: MonoNs, majors: &Majors, emit: &mut impl FnMut(Signal)) {
        let lost = &self.lost_returns;
        self.calls.retain(|key, known| {
            if std::mem::replace(&mut known.seen, false) {
                return true;
            }
            if known.missing {
                lost.add(1);
                emit(exit(now, None, key, &known.call, majors));
            }
            !std::mem::replace(&mut known.missing, true)
        });
    }

    fn close_lost(
        &mut self,
        now: MonoNs,
        key: &InFlightKey,
        call: &InFlight,
        majors: &Majors,
        emit: &mut impl FnMut(Signal),
    ) {
        self.calls.remove(key);
        self.lost_returns.add(1);
        emit(exit(now, None, key, call, majors));
    }
}

/// Whether the map still has this very call.
fn is_still(key: &InFlightKey, call: &InFlight, node: &mut impl Node) -> bool {
    node.entry(key).is_some_and(|entry| same(&entry, call))
}

/// A thread makes one call at a time, so thread and time name a call.
fn same(a: &InFlight, b: &InFlight) -> bool {
    a.enter_ns == b.enter_ns
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
