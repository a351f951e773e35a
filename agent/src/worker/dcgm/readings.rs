//! What of a read value is news, and what it means when there is none.
//!
//! In: values as the engine delivers them, and the state of a [`Slot`]. Out: wire values, each once. What can go
//! wrong: the engine says "fine" with a blank, and serves old samples for ever; each is told apart here. That a rate is a
//! whole counter after a gap is the agent's to know; the gap is told here ([`Slot::gap`]).

use std::time::Duration;

use dcgm_ffi::field_table;

use super::engine::{Absent, FieldValue, GpuState, ReturnCode, Value};
use super::plan::EVENTS;
use crate::model::{Absence, MonoNs};
use crate::wire::report::{self, Content};
use crate::worker::moment::Moment;

/// An absence that lasts is told again this often, for readers that came later.
const AGAIN: Duration = Duration::from_secs(10);
/// Reading and clock noise on top of three intervals.
const SLACK: Duration = Duration::from_millis(500);
/// Fields 83 and 84 (inforom) are never sampled faster. Source: measured, see `dcgmWatchFields`.
const SLOW: [(u16, Duration); 2] = [(83, Duration::from_secs(30)), (84, Duration::from_secs(30))];

/// What is known of one field of one entity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Slot {
    /// Time of the newest sample that was told. Unit: µs since 1970.
    pub(super) last_us: i64,
    /// The absence that was told last, and when.
    told: Option<(Absence, MonoNs)>,
    /// It had a value since it was watched.
    worked: bool,
    /// The newest sample was blank.
    blank: bool,
}

/// What a value is judged by besides itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub(super) now: Moment,
    pub(super) every: Duration,
    /// When the watch began.
    pub(super) since: MonoNs,
    /// State of the GPU.
    pub(super) state: GpuState,
    /// Profiling is paused, and this is a profiling field.
    pub(super) paused: bool,
    /// The field's group is being split because its fields spoil each other.
    pub(super) conflict: bool,
}

impl Slot {
    /// What comes first after a new watch comes after a gap.
    pub(super) fn watched_anew(self) -> Self {
        Self { blank: true, worked: false, ..self }
    }

    /// The gap before a new value, where the agent was not told of one: after it the engine divides the whole counter of
    /// a rate by one interval. The first value of all needs no gap before it.
    pub(super) fn gap(&self, value: &FieldValue<'_>) -> Option<report::Value> {
        let is_new = self.last_us > 0 && self.is_newer(value.ts_us);
        let is_value = value.status == ReturnCode::OK && value.value.is_ok();
        let untold = self.blank && self.told.is_none() && is_rate_of_two_samples(value.field);
        (is_new && is_value && untold).then(|| absent_value(value.field, Absence::Blank))
    }

    /// A sample that was not told. An engine never serves an older one than it did, unless its clock was set back: so
    /// what is different is newer.
    pub(super) fn is_newer(&self, ts_us: i64) -> bool {
        ts_us != self.last_us && ts_us > 0
    }

    /// There should be a value and there is none, without a reason.
    pub(super) fn is_dark(&self) -> bool {
        self.blank && self.told.is_none_or(|(why, _)| matches!(why, Absence::Blank | Absence::Stale))
    }

    /// There is a value.
    pub(super) fn is_lit(&self) -> bool {
        self.worked && !self.blank
    }

    /// The news in a value.
    pub(super) fn judge(&mut self, value: &FieldValue<'_>, is: &Circumstances) -> Option<report::Value> {
        let absence = match (value.status, &value.value) {
            (ReturnCode::OK, Ok(_)) if value.ts_us <= 0 => Absence::Blank,
            (ReturnCode::OK, Ok(Value::Binary)) => Absence::Unexportable,
            (ReturnCode::OK, Ok(present)) => return self.present(value, present, is),
            (ReturnCode::OK, Err(absent)) => of_sentinel(*absent),
            (code, _) => of_code(code),
        };
        let event = EVENTS.contains(&value.field);
        self.blank = true;
        if absence == Absence::Blank {
            // No event is no absence; a new watch has nothing yet.
            let young = is.now.mono.since(is.since).unwrap_or_default() < is.every.saturating_mul(3);
            if (event || (young && !self.worked)) && is.state == GpuState::Ok && !is.paused {
                return None;
            }
        }
        self.absent(value.field, absence, is)
    }

    fn present(
        &mut self,
        value: &FieldValue<'_>,
        present: &Value<'_>,
        is: &Circumstances,
    ) -> Option<report::Value> {
        let field = value.field;
        if !EVENTS.contains(&field) && is.now.age_ns(value.ts_us) > limit_ns(field, is.every) {
            self.blank = true;
            return self.absent(field, Absence::Stale, is);
        }
        if !self.is_newer(value.ts_us) {
            return None;
        }
        self.last_us = value.ts_us;
        self.blank = false;
        self.worked = true;
        self.told = None;
        let content = match present {
            Value::Int(n) | Value::Time(n) => Content::Int(*n),
            Value::Double(x) => Content::Number(*x),
            Value::Text(text) => Content::Text((*text).to_owned()),
            Value::Binary => return None,
        };
        Some(report::Value {
            field: field.into(),
            age_ns: is.now.age_ns(value.ts_us),
            content: Some(content),
            stamp_us: 0,
        })
    }

    /// Tells an absence when it is new, or was not told for a while.
    pub(super) fn absent(&mut self, field: u16, found: Absence, is: &Circumstances) -> Option<report::Value> {
        let passing = matches!(found, Absence::Blank | Absence::Stale | Absence::SourceDown);
        let absence = match is.state {
            GpuState::Lost if passing => Absence::DeviceLost,
            GpuState::Detached if passing => Absence::SourceDown,
            _ if is.paused && passing => Absence::Paused,
            _ if is.conflict && found == Absence::Blank => Absence::Conflict,
            _ => found,
        };
        let told = self
            .told
            .is_some_and(|(was, at)| was == absence && is.now.mono.since(at).unwrap_or_default() < AGAIN);
        if told {
            return None;
        }
        self.told = Some((absence, is.now.mono));
        Some(absent_value(field, absence))
    }
}

/// A wire value that says why there is none.
pub(super) fn absent_value(field: u16, absence: Absence) -> report::Value {
    let place = Absence::ALL.iter().position(|a| *a == absence).unwrap_or(0);
    let content = Content::Absent(u32::try_from(place).unwrap_or(0));
    report::Value { field: field.into(), age_ns: 0, content: Some(content), stamp_us: 0 }
}

/// Why there is no value, by the engine's code.
pub(super) fn of_code(code: ReturnCode) -> Absence {
    match code {
        ReturnCode::NOT_SUPPORTED => Absence::NotSupported,
        ReturnCode::NO_PERMISSION => Absence::NotPermitted,
        ReturnCode::UNKNOWN_FIELD => Absence::Unknown,
        ReturnCode::GPU_IS_LOST => Absence::DeviceLost,
        ReturnCode::MODULE_NOT_LOADED => Absence::ModuleMissing,
        ReturnCode::PROFILING_MULTI_PASS => Absence::Conflict,
        ReturnCode::NO_DATA | ReturnCode::NOT_WATCHED => Absence::Blank,
        ReturnCode::PAUSED => Absence::Paused,
        ReturnCode::TIMEOUT
        | ReturnCode::NVML_NOT_LOADED
        | ReturnCode::NVML_DRIVER_TIMEOUT
        | ReturnCode::GPUS_DETACHED => Absence::SourceDown,
        ReturnCode::INSTANCE_NOT_FOUND | ReturnCode::COMPUTE_INSTANCE_NOT_FOUND => Absence::NotFound,
        ReturnCode::GPU_NOT_SUPPORTED | ReturnCode::PROFILING_NOT_SUPPORTED => Absence::NotSupported,
        ReturnCode::REQUIRES_ROOT => Absence::NotPermitted,
        _ => Absence::Refused,
    }
}

pub(super) fn of_sentinel(absent: Absent) -> Absence {
    match absent {
        Absent::Blank | Absent::NoData | Absent::NotWatched => Absence::Blank,
        Absent::NotFound => Absence::NotFound,
        Absent::NotSupported => Absence::NotSupported,
        Absent::NotPermitted => Absence::NotPermitted,
        Absent::ModuleMissing => Absence::ModuleMissing,
        Absent::GpuLost => Absence::DeviceLost,
        Absent::Paused => Absence::Paused,
        Absent::Timeout | Absent::NoDriver => Absence::SourceDown,
        Absent::Status(code) => of_code(code),
    }
}

fn limit_ns(field: u16, every: Duration) -> i64 {
    let slow = SLOW.iter().find(|(id, _)| *id == field).map_or(Duration::ZERO, |(_, least)| *least);
    let limit = every.max(slow).saturating_mul(3).saturating_add(SLACK);
    i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX)
}

/// NVLink throughput in MB/s, which the engine makes from two samples of a counter.
fn is_rate_of_two_samples(field: u16) -> bool {
    field_table::by_id(field).is_some_and(|row| row.unit == "MBy/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: i64) -> FieldValue<'static> {
        FieldValue { field: 449, status: ReturnCode::OK, ts_us: us, value: Ok(Value::Int(1)) }
    }

    fn circumstances() -> Circumstances {
        let now = Moment { mono: MonoNs(0), wall_us: 0 };
        let (every, since, state) = (Duration::from_secs(1), MonoNs(0), GpuState::Ok);
        Circumstances { now, every, since, state, paused: false, conflict: false }
    }

    #[test]
    fn a_gap_that_was_not_told_is_told_before_the_next_rate() {
        let mut slot = Slot::default();
        assert_eq!(slot.gap(&at(1)), None, "the first of all");
        assert!(slot.judge(&at(1), &circumstances()).is_some());
        assert_eq!(slot.gap(&at(2)), None, "no gap");
        let anew = slot.watched_anew();
        assert_eq!(anew.gap(&at(2)), Some(absent_value(449, Absence::Blank)), "watched anew");
        assert_eq!(anew.gap(&at(1)), None, "nothing new yet");
        assert_eq!(of_code(ReturnCode::PAUSED), Absence::Paused);
        let other = FieldValue { field: 150, ..at(2) };
        assert_eq!(anew.gap(&other), None, "no rate");
        let mut told = anew;
        assert!(told.absent(449, Absence::Blank, &circumstances()).is_some());
        assert_eq!(told.gap(&at(2)), None, "told already");
    }
}
