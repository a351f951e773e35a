//! Something per field, of one device or part: reached without hashing.
//!
//! In: a [`Field`]. Out: the thing kept for it. What can go wrong: more fields that the table lacks than
//! [`UNKNOWN_MAX`]; they are refused.

use super::{Field, field_table};

/// Fields without a row that are kept per device: ids of a DCGM that is newer than this agent.
pub const UNKNOWN_MAX: usize = 64;

/// One `T` for each field that was seen.
#[derive(Clone, Debug)]
pub struct ByField<T> {
    /// By slot of the table: place in `items` + 1, or 0.
    places: Box<[u16]>,
    /// The same for ids that the table lacks.
    unknown: Vec<(Field, u16)>,
    items: Vec<T>,
}

impl<T> Default for ByField<T> {
    fn default() -> Self {
        let places = vec![0; field_table::rows().len()].into();
        Self { places, unknown: Vec::new(), items: Vec::new() }
    }
}

impl<T> ByField<T> {
    /// What is kept for the field.
    pub fn get(&self, field: Field) -> Option<&T> {
        self.items.get(self.place(field)?)
    }

    /// What is kept for the field, to change it.
    pub fn get_mut(&mut self, field: Field) -> Option<&mut T> {
        let place = self.place(field)?;
        self.items.get_mut(place)
    }

    /// Keeps `item` for a field that has none yet; `None` where there is no room.
    pub fn insert(&mut self, field: Field, item: T) -> Option<&mut T> {
        let place = u16::try_from(self.items.len() + 1).ok()?;
        match field_table::slot(field) {
            Some(slot) => *self.places.get_mut(slot)? = place,
            None if self.unknown.len() < UNKNOWN_MAX => self.unknown.push((field, place)),
            None => return None,
        }
        self.items.push(item);
        self.items.last_mut()
    }

    /// All of them, in the order in which they came.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }

    fn place(&self, field: Field) -> Option<usize> {
        let place = match field_table::slot(field) {
            Some(slot) => self.places.get(slot).copied()?,
            None => self.unknown.iter().find(|(known, _)| *known == field)?.1,
        };
        usize::from(place).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HostField;

    #[test]
    fn each_field_has_its_own_and_unknown_ones_are_few() {
        let mut kept = ByField::default();
        for (n, field) in
            [Field::Dcgm(150), Field::Host(HostField::AerFatal), Field::Dcgm(60_000)].into_iter().enumerate()
        {
            assert_eq!(kept.get(field), None);
            assert!(kept.insert(field, n).is_some());
            assert_eq!(kept.get(field), Some(&n));
        }
        *kept.get_mut(Field::Dcgm(150)).unwrap() = 9;
        assert_eq!(kept.iter_mut().map(|n| *n).collect::<Vec<_>>(), [9, 1, 2]);
        for id in 0..UNKNOWN_MAX as u16 - 1 {
            assert!(kept.insert(Field::Dcgm(61_000 + id), 0).is_some());
        }
        assert!(kept.insert(Field::Dcgm(62_000), 0).is_none());
    }
}
