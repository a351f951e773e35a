//! Running sums of the kernel programs: from what stands there to what was added since the reading before.
//!
//! In: a map's entries, and which processes still live. Out: differences, and keys to delete.
//! What can go wrong: a process may end between two readings. Its keys are read once more after its end is known, then
//! deleted: no map ever fills with the dead. Where nobody can tell, a key that stays silent for long is given up.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::model::StartTicks;

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

/// What is summed by.
pub trait Key: Copy + Eq + Hash {
    /// The process whose end ends the key.
    fn tgid(&self) -> u32;
}

/// A running sum.
pub trait Sum: Copy + PartialEq {
    /// Nothing yet.
    const NOTHING: Self;

    /// What was added since `before`; counters that wrap do so here, too.
    fn since(&self, before: &Self) -> Self;

    /// Nothing worth saying. A part of a sum that was read in the middle of the kernel's adds is said with the rest.
    fn is_nothing(&self) -> bool;
}

/// Where nobody can tell whether a process lives, a key that did not change for so many readings is given up: five
/// minutes at the default interval. A process that calls again after that begins a new key; a call that ends in the very
/// moment of the deletion is not counted.
pub const GIVEN_UP_AFTER: u32 = 300;

/// What was seen at the reading before.
#[derive(Debug)]
pub struct Totals<K, V> {
    said: HashMap<K, Said<V>>,
    processes: BTreeMap<u32, Known>,
    delete: Vec<K>,
}

/// What was said of a key so far.
#[derive(Clone, Copy, Debug)]
struct Said<V> {
    sum: V,
    /// Readings in a row without a change.
    unchanged: u32,
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

impl<K, V> Default for Totals<K, V> {
    fn default() -> Self {
        Self { said: HashMap::new(), processes: BTreeMap::new(), delete: Vec::new() }
    }
}

impl<K: Key, V: Sum> Totals<K, V> {
    /// Goes through the map's entries; `say` gets what was added, and whether it is the last word on the key. Gives
    /// back the keys whose last word was said: delete them.
    pub fn read(
        &mut self,
        entries: &[(K, V)],
        life: &mut impl FnMut(u32) -> Life,
        say: &mut impl FnMut(&K, &V, bool),
    ) -> &[K] {
        self.delete.clear();
        for (key, sum) in entries {
            let process = self.processes.entry(key.tgid()).or_insert(Known::NEW);
            process.seen = true;
            let before = self.said.entry(*key).or_insert(Said { sum: V::NOTHING, unchanged: 0 });
            let given_up = !process.told && before.unchanged >= GIVEN_UP_AFTER && before.sum == *sum;
            let last = process.over || given_up;
            let added = sum.since(&before.sum);
            if last {
                self.delete.push(*key);
                self.said.remove(key);
            } else if added.is_nothing() {
                before.unchanged = before.unchanged.saturating_add(1);
            } else {
                *before = Said { sum: *sum, unchanged: 0 };
            }
            if last || !added.is_nothing() {
                say(key, &added, last);
            }
        }
        self.look_at_processes(life);
        &self.delete
    }

    /// Nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.said.is_empty() && self.processes.is_empty()
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
