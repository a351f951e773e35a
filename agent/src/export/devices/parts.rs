//! Fields that are several series: the time of each bit of a mask, the events of each number.
//!
//! In: masks or numbers with the times of their samples. Out: one total per bit or number.
//! What can go wrong: an event names ever new numbers; beyond [`Parts::MOST`] they are counted as `other`.

use std::sync::Arc;

use super::cell::Steps;
use crate::export::point::Value;
use crate::model::MonoNs;
use crate::telemetry::Attributes;

/// Reasons of the clock-event mask, by bit. Source: NVML's `nvmlClocksEventReason…` in nvml.h; names of dcgm-exporter.
const REASONS: [&str; 9] = [
    "gpu_idle",
    "clocks_setting",
    "power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
];

/// The series of one field.
#[derive(Debug)]
pub struct Parts {
    kind: Kind,
    /// The attribute that tells them apart.
    name: &'static str,
    shared: Attributes,
    parts: Vec<Part>,
    /// There may be more series.
    room: bool,
}

#[derive(Debug)]
enum Kind {
    /// Totals are ns; the mask of the latest sample holds until the next one.
    Mask { steps: Steps, holds: u64 },
    /// Totals are events; none from before this time counts.
    Event { since: MonoNs },
}

#[derive(Debug)]
struct Part {
    key: i64,
    total: u64,
    attributes: Arc<Attributes>,
}

impl Parts {
    /// Numbers that are told apart.
    pub const MOST: usize = 64;
    const OTHER: i64 = i64::MIN;

    /// Time per bit; all known reasons are there from the start.
    pub fn of_mask(name: &'static str, shared: Attributes) -> Self {
        let kind = Kind::Mask { steps: Steps::default(), holds: 0 };
        let mut parts = Self { kind, name, shared, parts: Vec::with_capacity(REASONS.len()), room: true };
        (0..).zip(REASONS).for_each(|(bit, _)| parts.add(bit, 0));
        parts
    }

    /// Events by number; what an engine tells of before `since` is history.
    pub fn of_events(name: &'static str, shared: Attributes, since: MonoNs) -> Self {
        Self { kind: Kind::Event { since }, name, shared, parts: Vec::new(), room: true }
    }

    /// How many series there are.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// Whether there may be more series; without room what is new counts as `other`.
    pub fn set_room(&mut self, room: bool) {
        self.room = room;
    }

    /// Takes the next sample.
    pub fn take(&mut self, value: i64, at: MonoNs) {
        match &mut self.kind {
            Kind::Event { since } => {
                if at >= *since && value != 0 {
                    self.add(value, 1);
                }
            }
            Kind::Mask { steps, holds } => {
                let held = std::mem::replace(holds, value.cast_unsigned());
                // Nobody knows what held during a gap.
                let Some((step, false)) = steps.step(at) else { return self.show(value.cast_unsigned()) };
                for bit in 0..64 {
                    if held >> bit & 1 == 1 {
                        self.add(bit, step);
                    }
                }
                self.show(value.cast_unsigned());
            }
        }
    }

    /// There was no value.
    pub fn pause(&mut self) {
        if let Kind::Mask { steps, .. } = &mut self.kind {
            steps.pause();
        }
    }

    /// All totals begin at 0 again.
    pub fn restart(&mut self) {
        self.parts.iter_mut().for_each(|part| part.total = 0);
    }

    /// Every series with its total.
    pub fn values(&self) -> impl Iterator<Item = (&Arc<Attributes>, Value)> {
        let time = matches!(self.kind, Kind::Mask { .. });
        let value = move |total| if time { Value::Nanos(total) } else { Value::Count(total) };
        self.parts.iter().map(move |part| (&part.attributes, value(part.total)))
    }

    /// A bit that is set has a series from then on.
    fn show(&mut self, mask: u64) {
        (0..64).filter(|bit| mask >> bit & 1 == 1).for_each(|bit| self.add(bit, 0));
    }

    fn add(&mut self, key: i64, n: u64) {
        let full =
            (self.parts.len() >= Self::MOST || !self.room) && !self.parts.iter().any(|part| part.key == key);
        let key = if full { Self::OTHER } else { key };
        if let Some(part) = self.parts.iter_mut().find(|part| part.key == key) {
            part.total = part.total.saturating_add(n);
            return;
        }
        let value = match (&self.kind, usize::try_from(key).ok().and_then(|bit| REASONS.get(bit))) {
            _ if key == Self::OTHER => "other".to_owned(),
            (Kind::Mask { .. }, Some(reason)) => (*reason).to_owned(),
            (Kind::Mask { .. }, None) => format!("bit_{key}"),
            (Kind::Event { .. }, _) => key.to_string(),
        };
        let mut attributes = self.shared.clone();
        attributes.push((self.name, value));
        self.parts.push(Part { key, total: n, attributes: Arc::new(attributes) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(parts: &Parts) -> Vec<(String, Value)> {
        parts.values().map(|(attributes, value)| (attributes[0].1.clone(), value)).collect()
    }

    fn at(seconds: u64) -> MonoNs {
        MonoNs(seconds * 1_000_000_000)
    }

    fn times(want: [(&str, u64); 9]) -> Vec<(String, Value)> {
        want.map(|(name, seconds)| (name.to_owned(), Value::Nanos(seconds * 1_000_000_000))).into()
    }

    #[test]
    fn a_mask_is_the_time_of_each_of_its_bits() {
        let mut parts = Parts::of_mask("reason", vec![]);
        let zero = REASONS.map(|name| (name, 0));
        assert_eq!(totals(&parts), times(zero), "all known reasons at 0 from the start");
        for (second, mask) in [0x1, 0x1, 0x44, 0x0, 0x800, 0x0].into_iter().enumerate() {
            parts.take(mask, at(second as u64));
        }
        let mut want = zero;
        (want[0].1, want[2].1, want[6].1) = (2, 1, 1);
        let mut want = times(want);
        want.push(("bit_11".into(), Value::Nanos(1_000_000_000)));
        assert_eq!(totals(&parts), want);
        parts.take(0x1, at(6));
        parts.pause();
        parts.take(0x1, at(7));
        parts.take(0x1, at(8));
        parts.take(0x1, at(100));
        want[0].1 = Value::Nanos(3_000_000_000);
        assert_eq!(totals(&parts), want, "neither a pause nor a gap counts");
        parts.take(i64::MIN, at(101));
        assert_eq!(totals(&parts).last().unwrap().0, "bit_63");
    }

    #[test]
    fn events_count_by_number_from_now_on_and_numbers_are_few() {
        let mut parts = Parts::of_events("code", vec![], at(10));
        for (second, code) in [(2, 79), (10, 31), (11, 31), (12, 79), (13, 0)] {
            parts.take(code, at(second));
        }
        assert_eq!(totals(&parts), [("31".into(), Value::Count(2)), ("79".into(), Value::Count(1))]);
        for code in 1_000..1_100 {
            parts.take(code, at(14));
        }
        assert_eq!(parts.parts.len(), Parts::MOST + 1);
        assert_eq!(totals(&parts).last().unwrap(), &("other".into(), Value::Count(38)));
    }

    #[test]
    fn without_room_what_is_new_counts_as_other() {
        let mut events = Parts::of_events("code", vec![], at(0));
        events.take(31, at(1));
        events.set_room(false);
        [79, 31, 48].into_iter().for_each(|code| events.take(code, at(2)));
        assert_eq!(totals(&events), [("31".into(), Value::Count(2)), ("other".into(), Value::Count(2))]);
        let mut mask = Parts::of_mask("reason", vec![]);
        mask.set_room(false);
        (0..2).for_each(|second| mask.take(1 << 40 | 1 << 41, at(second)));
        assert_eq!((mask.count(), totals(&mask)[9].0.as_str()), (REASONS.len() + 1, "other"));
    }
}
