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

/// The slow calls that were announced and have not ended.
#[derive(Debug)]
pub struct Tracker {
    slow: Duration,
    calls: BTreeMap<InFlightKey, Announced>,
    /// Entries to be deleted from the map; used again from scan to scan.
    outside: Vec<(InFlightKey, InFlight)>,
    lost_returns: Counter,
}

#[derive(Debug)]
struct Announced {
    call: InFlight,
    sample: Option<Sample>,
    /// It was not in the map at the scan before.
    missing: bool,
    /// It was in the map at this scan.
    seen: bool,
}

impl Tracker {
    /// Calls are announced once they last `slow`; the kernel programs report the end of calls at least that long.
    pub fn new(slow: Duration, lost_returns: Counter) -> Self {
        Self { slow, calls: BTreeMap::new(), outside: Vec::new(), lost_returns }
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

    /// Goes through the map's entries. Gives back those that are proven to be over: delete them.
    pub fn scan(
        &mut self,
        now: MonoNs,
        entries: &[(InFlightKey, InFlight)],
        majors: &Majors,
        look: &mut impl FnMut(&InFlightKey, &InFlight, Option<&Sample>) -> Look,
        emit: &mut impl FnMut(Signal),
    ) -> &[(InFlightKey, InFlight)] {
        self.outside.clear();
        for (key, call) in entries {
            let old_enough = now.since(MonoNs(call.enter_ns)).is_some_and(|age| age >= self.slow);
            // an open without a name may be of any file: its end will tell
            if !old_enough || call.flags & flags::PATH_UNREAD != 0 {
                continue;
            }
            self.announce(*key, call, now, majors, emit);
            let Some(known) = self.calls.get_mut(key) else { continue };
            let seen = look(key, call, known.sample.as_ref());
            known.sample = seen.sample;
            let outside = seen.state.inside == Inside::Outside;
            emit(Signal::Thread { at: now, pid: Pid(call.tgid), tid: Tid(key.tid), state: seen.state });
            if outside {
                self.calls.remove(key);
                self.outside.push((*key, *call));
                self.close_lost(now, key, call, majors, emit);
            }
        }
        self.close_vanished(now, majors, emit);
        &self.outside
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
                (known.seen, known.missing) = (true, false);
                return;
            }
            // the thread is in another call by now, and nobody said how the former one ended
            let former = known.call;
            self.calls.remove(&key);
            self.close_lost(now, &key, &former, majors, emit);
        }
        emit(enter(&key, call, majors));
        self.calls.insert(key, Announced { call: *call, sample: None, missing: false, seen: true });
    }

    /// An end may be on its way through the ring buffer while its entry is gone: it gets one scan's time.
    fn close_vanished(&mut self, now: MonoNs, majors: &Majors, emit: &mut impl FnMut(Signal)) {
        let lost = &self.lost_returns;
        self.calls.retain(|key, known| {
            if known.seen {
                known.seen = false;
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
        &self,
        now: MonoNs,
        key: &InFlightKey,
        call: &InFlight,
        majors: &Majors,
        emit: &mut impl FnMut(Signal),
    ) {
        self.lost_returns.add(1);
        emit(exit(now, None, key, call, majors));
    }
}

/// A thread makes one call at a time, so thread and time name a call.
fn same(a: &InFlight, b: &InFlight) -> bool {
    a.enter_ns == b.enter_ns
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
