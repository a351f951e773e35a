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
    /// Boxed: the map has room for twice and four times as many as are in it.
    entries: HashMap<K, Box<V>>,
    order: VecDeque<K>,
}

impl<K: Copy + Eq + Hash, V> Bounded<K, V> {
    /// An empty map.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), order: VecDeque::new() }
    }

    /// The entry of `key`.
    pub fn get(&self, key: K) -> Option<&V> {
        self.entries.get(&key).map(Box::as_ref)
    }

    /// The entry of `key`, to be changed.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.entries.get_mut(&key).map(Box::as_mut)
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().map(|(key, value)| (*key, value.as_ref()))
    }

    /// Forgets the entry of `key`.
    pub fn remove(&mut self, key: K) {
        if self.entries.remove(&key).is_some() {
            self.order.retain(|other| *other != key);
        }
    }

    /// Forgets what is not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(K, &V) -> bool) {
        self.entries.retain(|key, value| keep(*key, value));
        self.order.retain(|key| self.entries.contains_key(key));
    }

    /// Sets the entry of `key`; a changed one keeps its age.
    pub fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key, Box::new(value)).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.capacity && self.entries.capacity() < 2 * self.capacity {
            // Once full, the map takes one for each it gives; more than half full it would grow again, hours later.
            self.entries.reserve(self.capacity);
        }
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
        map.retain(|_, value| *value != 'b');
        for (key, value) in [(4, 'e'), (2, 'f')] {
            map.insert(key, value);
        }
        assert_eq!((map.get(3), map.get(4), map.get(2)), (None, Some(&'e'), Some(&'f')), "a new place");
        map.remove(4);
        map.insert(5, 'g');
        assert_eq!((map.get(2), map.get(5), map.iter().count()), (Some(&'f'), Some(&'g'), 2));
    }
}
