//! A map with a bound: the oldest entry leaves when a new one has no room.
//!
//! In: keys with what is known of them. Out: the newest `capacity` of them.
//! Nothing can go wrong but forgetting, which costs a second look at /proc.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Keeps at most `capacity` entries, first in, first out.
#[derive(Debug)]
pub struct Bounded<K, V> {
    capacity: usize,
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Copy + Eq + Hash, V> Bounded<K, V> {
    /// An empty map.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), order: VecDeque::new() }
    }

    /// The entry of `key`.
    pub fn get(&self, key: K) -> Option<&V> {
        self.entries.get(&key)
    }

    /// Sets the entry of `key`; a changed one keeps its age.
    pub fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key, value).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leaves() {
        let mut map = Bounded::new(2);
        for (key, value) in [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd')] {
            map.insert(key, value);
        }
        assert_eq!((map.get(1), map.get(2), map.get(3)), (None, Some(&'b'), Some(&'d')));
    }
}
