//! Short numbers by which samples name their device.
//!
//! In: `hw.id`s. Out: keys, stable until the worker ends, whatever becomes of the engine in between.
//! What can go wrong: devices without end (MIG made anew again and again); above [`MOST`] a new one gets no key and
//! is left out.

use std::collections::HashMap;

/// More than a node can have in years of MIG reconfiguration; bounds what a broken library can make us keep.
const MOST: usize = 65_536;

/// The keys given so far.
#[derive(Debug, Default)]
pub struct Keys {
    by_id: HashMap<String, u32>,
}

impl Keys {
    /// The key of a device; the same one each time. `None` when there are too many.
    pub fn of(&mut self, hw_id: &str) -> Option<u32> {
        if let Some(key) = self.by_id.get(hw_id) {
            return Some(*key);
        }
        if self.by_id.len() >= MOST {
            return None;
        }
        let key = u32::try_from(self.by_id.len()).ok()?.checked_add(1)?;
        self.by_id.insert(hw_id.to_owned(), key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_its_key() {
        let mut keys = Keys::default();
        let first = keys.of("GPU-a");
        assert_eq!(first, Some(1));
        assert_eq!(keys.of("GPU-b"), Some(2));
        assert_eq!(keys.of("GPU-a"), first);
    }
}
