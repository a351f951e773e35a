//! Values of the worker → readings.
//!
//! In: one batch, whose device is known. Out: [`Samples`] with their own times. Pure; one allocation per batch.
//! What can go wrong: numbers that cannot be. They become `Absent(Invalid)`: a field that is there but makes no sense
//! must not look like one that is silent.

use std::sync::Arc;

use super::clean;
use super::refused::Refused;
use crate::model::{Absence, Field, MonoNs, Origin, Part, Reading, SampleValue, Samples, Subject};
use crate::wire::report::{self, Content};

/// Devices and parts of devices that have values.
pub const SUBJECTS_MAX: usize = 4_096;
/// Values of one batch; DCGM has some 700 fields.
const VALUES_MAX: usize = 2_048;
/// No link or core has a larger number.
const PART_MAX: u32 = 65_536;

/// The readings, and when they were read; `None` for a part that cannot be, or no value at all. No time is later than
/// `latest`.
pub fn samples(
    latest: MonoNs,
    origin: Origin,
    hw_id: Arc<str>,
    told: report::Samples,
    refused: &Refused,
) -> Option<(MonoNs, Samples)> {
    let part = match told.part {
        0 => Part::Whole,
        1 => Part::Link(told.part_number),
        2 => Part::Core(told.part_number),
        _ => return None,
    };
    if told.part_number >= PART_MAX || told.values.is_empty() {
        return None;
    }
    refused.too_many.add(told.values.len().saturating_sub(VALUES_MAX) as u64);
    let read = MonoNs(told.read_ns).min(latest);
    let mut readings = Vec::with_capacity(told.values.len().min(VALUES_MAX));
    for value in told.values.into_iter().take(VALUES_MAX) {
        let Ok(field) = u16::try_from(value.field) else {
            refused.invalid.add(1);
            continue;
        };
        let at = match u64::try_from(value.age_ns) {
            Ok(age) => MonoNs(read.0.saturating_sub(age)),
            Err(_) => MonoNs(read.0.saturating_add(value.age_ns.unsigned_abs())).min(latest),
        };
        let value = value.content.map_or(SampleValue::Absent(Absence::Invalid), content);
        readings.push(Reading { at, field: Field::Dcgm(field), value });
    }
    Some((read, Samples { subject: Subject { hw_id, part }, origin, readings }))
}

fn content(content: Content) -> SampleValue {
    match content {
        Content::Int(n) => SampleValue::Int(n),
        Content::Number(n) if n.is_finite() => SampleValue::Number(n),
        Content::Number(_) => SampleValue::Absent(Absence::Invalid),
        Content::Text(text) => {
            let clean = clean::text(&text);
            clean.map_or(SampleValue::Absent(Absence::Blank), |text| SampleValue::Text(text.into()))
        }
        Content::Absent(place) => {
            let absence = usize::try_from(place).ok().and_then(|place| Absence::ALL.get(place));
            SampleValue::Absent(absence.copied().unwrap_or(Absence::Invalid))
        }
    }
}
