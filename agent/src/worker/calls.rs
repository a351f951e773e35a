//! Calls into the vendors' libraries: which are in flight, and how long the finished ones took.
//!
//! In: the begin and end of each call, from the threads that make them. Out: the content of the next heartbeat.
//! A call that is made again and again allocates nothing. What can go wrong: more calls or devices than are kept; the
//! surplus is not measured, but an entry that is there is never lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpgauge_ebpf::histogram::{SLOTS, slot};

use crate::model::Origin;
use crate::wire::report;

/// Calls in flight at once that are followed; each thread has one or two.
const IN_FLIGHT_MAX: usize = 64;
/// Functions times devices whose latencies are kept.
const TALLIES_MAX: usize = 4_096;
/// Latencies in one heartbeat: with what else it holds it stays far below a frame's limit.
const LATENCIES_MAX: u32 = 65_536;

/// Heartbeats without a call after which a device's latencies are not kept any more: ten minutes.
const IDLE_MAX: u32 = 1_200;

/// The number of an origin in a message.
fn origin_number(origin: Origin) -> u32 {
    match origin {
        Origin::Dcgm => 1,
        Origin::Nvml => 2,
        Origin::Host => 0,
    }
}

/// The table. Shared by the threads that call and the one that reports.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    in_flight: Vec<Slot>,
    finished: BTreeMap<(Origin, &'static str), BTreeMap<String, Tally>>,
    tallies: usize,
}

/// One call in flight; its text is used again by the next call.
#[derive(Debug)]
struct Slot {
    taken: bool,
    origin: Origin,
    call: &'static str,
    hw_id: String,
    began_ns: u64,
}

#[derive(Debug)]
struct Tally {
    slots: [u32; SLOTS],
    sum_ns: u64,
    errors: u64,
    /// Heartbeats in a row without a call.
    idle: u32,
}

/// A call that was begun. Dropped without [`Self::end`] it counts as failed.
#[derive(Debug)]
pub struct Calling {
    calls: Arc<Calls>,
    index: Option<usize>,
    clock: fn() -> u64,
    ok: bool,
}

impl Calling {
    /// The call came back.
    pub fn end(mut self, ok: bool) {
        self.ok = ok;
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.calls.end(index, (self.clock)(), self.ok);
        }
    }
}

impl Calls {
    /// Notes a call; `clock` gives nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn begin(
        self: &Arc<Self>,
        origin: Origin,
        call: &'static str,
        hw_id: &str,
        clock: fn() -> u64,
    ) -> Calling {
        let index = self.tables().take(origin, call, hw_id, clock());
        Calling { calls: Arc::clone(self), index, clock, ok: false }
    }

    fn end(&self, index: usize, now_ns: u64, ok: bool) {
        let mut tables = self.tables();
        let Tables { in_flight, finished, tallies } = &mut *tables;
        let Some(call) = in_flight.get_mut(index).filter(|slot| slot.taken) else { return };
        call.taken = false;
        let by_device = finished.entry((call.origin, call.call)).or_default();
        if !by_device.contains_key(call.hw_id.as_str()) {
            if *tallies >= TALLIES_MAX {
                return;
            }
            *tallies += 1;
            by_device.insert(call.hw_id.clone(), Tally::default());
        }
        let Some(tally) = by_device.get_mut(call.hw_id.as_str()) else { return };
        let took = now_ns.saturating_sub(call.began_ns);
        if let Some(n) = usize::try_from(slot(took)).ok().and_then(|slot| tally.slots.get_mut(slot)) {
            *n = n.saturating_add(1);
        }
        tally.sum_ns = tally.sum_ns.saturating_add(took);
        tally.errors = tally.errors.saturating_add(u64::from(!ok));
    }

    /// What a heartbeat says. Latencies that it has no room for stay for the next one.
    pub(crate) fn heartbeat(&self) -> report::Heartbeat {
        let mut tables = self.tables();
        let in_flight = tables.in_flight.iter().filter(|slot| slot.taken).map(|slot| report::InFlight {
            call: slot.call.to_owned(),
            origin: origin_number(slot.origin),
            hw_id: slot.hw_id.clone(),
            began_ns: slot.began_ns,
        });
        let in_flight = in_flight.collect();
        let (mut finished, mut room) = (Vec::new(), LATENCIES_MAX);
        let Tables { finished: by_call, tallies, .. } = &mut *tables;
        for ((origin, call), by_device) in by_call {
            let before = by_device.len();
            by_device.retain(|hw_id, tally| {
                let count = tally.slots.iter().fold(0_u32, |sum, n| sum.saturating_add(*n));
                tally.idle = if count == 0 { tally.idle + 1 } else { 0 };
                if count == 0 || count > room {
                    tally.shed_if_beyond(count);
                    // A device that is gone is not called again.
                    return tally.idle < IDLE_MAX;
                }
                room -= count;
                let repeat = |(slot, n): (u32, &u32)| std::iter::repeat_n(slot, *n as usize);
                finished.push(report::Finished {
                    call: (*call).to_owned(),
                    origin: origin_number(*origin),
                    slots: (0..).zip(&tally.slots).flat_map(repeat).collect(),
                    sum_ns: std::mem::take(&mut tally.sum_ns),
                    errors: std::mem::take(&mut tally.errors),
                    hw_id: hw_id.clone(),
                });
                tally.slots = [0; SLOTS];
                true
            });
            *tallies = tallies.saturating_sub(before - by_device.len());
        }
        report::Heartbeat { in_flight, finished, dropped_values: 0, dropped_others: 0 }
    }

    /// Poisoned only by a panic, which ends the worker anyway.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self { slots: [0; SLOTS], sum_ns: 0, errors: 0, idle: 0 }
    }
}

impl Tally {
    /// More than one heartbeat can ever hold (the agent has not read for hours): begin again.
    fn shed_if_beyond(&mut self, count: u32) {
        if count > LATENCIES_MAX {
            *self = Self::default();
        }
    }
}

impl Tables {
    fn take(&mut self, origin: Origin, call: &'static str, hw_id: &str, now_ns: u64) -> Option<usize> {
        let free = self.in_flight.iter().position(|slot| !slot.taken);
        let index = free.or_else(|| {
            let index = self.in_flight.len();
            let fresh = Slot { taken: false, origin, call, hw_id: String::new(), began_ns: 0 };
            (index < IN_FLIGHT_MAX).then(|| self.in_flight.push(fresh)).map(|()| index)
        })?;
        let slot = self.in_flight.get_mut(index)?;
        (slot.taken, slot.origin, slot.call, slot.began_ns) = (true, origin, call, now_ns);
        slot.hw_id.clear();
        slot.hw_id.push_str(hw_id);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local!(static NOW: Cell<u64> = const { Cell::new(0) });

    fn now() -> u64 {
        NOW.get()
    }

    #[test]
    fn calls_in_flight_and_finished_ones_are_told_once() {
        let calls = Arc::new(Calls::default());
        NOW.set(1_000);
        let slow = calls.begin(Origin::Nvml, "nvmlDeviceGetPowerUsage", "GPU-1", now);
        let fast = calls.begin(Origin::Dcgm, "dcgmUpdateAllFields", "", now);
        NOW.set(1_000 + (1 << 20));
        fast.end(true);
        let beat = calls.heartbeat();
        let in_flight: Vec<_> = beat.in_flight.iter().map(|c| (&*c.call, c.origin, &*c.hw_id)).collect();
        assert_eq!(in_flight, [("nvmlDeviceGetPowerUsage", 2, "GPU-1")]);
        let want = report::Finished {
            call: "dcgmUpdateAllFields".to_owned(),
            origin: 1,
            slots: vec![slot(1 << 20)],
            sum_ns: 1 << 20,
            errors: 0,
            hw_id: String::new(),
        };
        assert_eq!(beat.finished, [want]);
        drop(slow); // without an end
        let beat = calls.heartbeat();
        assert_eq!((beat.in_flight.len(), beat.finished.len()), (0, 1));
        assert_eq!((beat.finished[0].errors, &*beat.finished[0].hw_id), (1, "GPU-1"));
        assert_eq!(calls.heartbeat(), report::Heartbeat::default(), "nothing is told twice");
    }

    #[test]
    fn a_device_that_is_gone_makes_room() {
        let calls = Arc::new(Calls::default());
        calls.begin(Origin::Dcgm, "f", "GPU-gone", now).end(true);
        for beat in 0..IDLE_MAX {
            assert_eq!(calls.tables().tallies, if beat == 0 { 1 } else { 2 }, "{beat}");
            calls.begin(Origin::Dcgm, "f", "GPU-here", now).end(true);
            calls.heartbeat();
        }
        calls.heartbeat();
        assert_eq!(calls.tables().tallies, 1);
    }

    #[test]
    fn tables_are_bounded_and_slots_are_used_again() {
        let calls = Arc::new(Calls::default());
        let many: Vec<_> = (0..100).map(|_| calls.begin(Origin::Dcgm, "f", "GPU-1", now)).collect();
        assert_eq!(calls.heartbeat().in_flight.len(), IN_FLIGHT_MAX);
        drop(many);
        for n in 0..TALLIES_MAX + 10 {
            calls.begin(Origin::Dcgm, "f", &n.to_string(), now).end(true);
        }
        assert_eq!(calls.tables().in_flight.len(), IN_FLIGHT_MAX);
        assert_eq!(calls.heartbeat().finished.len(), TALLIES_MAX);
        for _ in 0..LATENCIES_MAX - 1 {
            calls.begin(Origin::Dcgm, "f", "1", now).end(true);
            calls.begin(Origin::Dcgm, "f", "2", now).end(true);
        }
        let counts = |beat: report::Heartbeat| beat.finished.iter().map(|f| f.slots.len()).sum::<usize>();
        let most = LATENCIES_MAX as usize - 1;
        assert_eq!(
            [counts(calls.heartbeat()), counts(calls.heartbeat())],
            [most, most],
            "the rest comes later"
        );
    }
}
