//! What a probe leaves in the kernel's maps when it comes off its events.
//!
//! In: the probes that came off. Out: their entries deleted, their announced calls closed as lost returns, counted.
//! Left alone, such an entry would be told as going on for ever (its kind's returns were sure), and would be taken for a
//! call of the same thread once the probe is back; a lock let go meanwhile would still be held.
//! What can go wrong: a map that cannot be changed ends the watch.

use aya::Pod;
use aya::maps::{HashMap, MapData, MapError};
use warpgauge_ebpf::maps::{HELD_ENTRIES, OFF_ENTRIES};

use super::tactics::Probe;
use super::watch::{Watch, ignore_absence, walk};
use crate::host::mono_now;

/// Kinds of calls that these probes follow, as bits `1 << kind`.
fn kinds(probes: &[Probe]) -> u32 {
    let kinds = probes.iter().map(|probe| probe.kind()).filter(|kind| *kind != 0);
    kinds.fold(0, |kinds, kind| kinds | 1 << kind)
}

impl Watch {
    /// Takes out of the maps what a probe began and can no longer end.
    ///
    /// # Errors
    /// A map cannot be changed.
    pub fn clear_what_came_off(&mut self) -> Result<(), MapError> {
        let probes = self.loaded.attached.came_off();
        if probes.is_empty() {
            return Ok(());
        }
        // ends that were seen are no lost ones
        let now = mono_now();
        self.take_ends(now)?;
        self.read_in_flight();
        let emit = &mut |signal| self.said.push(signal);
        for (key, call) in self.tracker.abandon(now, kinds(&probes), &self.in_flight, &self.names, emit) {
            // another probe may have begun a call of the thread since
            if self.loaded.in_flight.get(key, 0).is_ok_and(|entry| entry.enter_ns == call.enter_ns) {
                ignore_absence(self.loaded.in_flight.remove(key))?;
            }
        }
        if probes.contains(&Probe::Locks) {
            clear(&mut self.loaded.held, HELD_ENTRIES)?;
        }
        if probes.contains(&Probe::Scheduler) {
            clear(&mut self.loaded.off, OFF_ENTRIES)?;
        }
        Ok(())
    }
}

/// Empties a map.
fn clear<K: Pod, V: Pod>(map: &mut HashMap<MapData, K, V>, most: u32) -> Result<(), MapError> {
    let mut entries = Vec::new();
    walk(map, most, &mut entries);
    entries.iter().try_for_each(|(key, _)| ignore_absence(map.remove(key)))
}

#[cfg(test)]
mod tests {
    use warpgauge_ebpf::calls::kind;

    use super::*;

    #[test]
    fn a_probe_stands_for_its_kind_of_calls() {
        assert_eq!(kinds(&[]), 0);
        assert_eq!(kinds(&[Probe::Scheduler, Probe::Xid]), 0, "they follow no calls");
        assert_eq!(kinds(&[Probe::Locks, Probe::UvmFault]), 1 << kind::LOCK | 1 << kind::FAULT);
    }
}
