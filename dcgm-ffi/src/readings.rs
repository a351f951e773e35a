//! Values on their way out of the library: copied while it calls us, handed on after it returned.
//!
//! In: `dcgmFieldValue_v1` and `_v2` in the library's memory, valid only during its call. Out:
//! [`FieldValue`]s. No code of the caller ever runs under a C frame, so no panic of it can cross one. A
//! buffer is used again and again: in the steady state a reading allocates nothing. What can go wrong: more
//! values than the bound; they are dropped and counted.

use std::ffi::{c_int, c_void};

use crate::abi::field::{FieldValueV1, FieldValueV2, RawValue};
use crate::entity::{Entity, EntityGroup};
use crate::field_kind::FieldKind;
use crate::return_code::ReturnCode;
use crate::value::{Absent, present_f64, present_i64, present_str};

/// Bound of one call's values: 10 MiB of buffer. The largest regular reading, 56 MIG instances by 60 fields,
/// is 3360.
const VALUES_MAX: usize = 1 << 18;
/// Bound of one call's texts.
const TEXT_MAX: usize = 4 << 20;
/// Longest text of a value, `DCGM_MAX_STR_LENGTH`.
const TEXT_LENGTH: usize = 256;

/// One value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldValue<'a> {
    /// The field's id.
    pub field: u16,
    /// The value's status; [`ReturnCode::OK`] does not say that there is a value.
    pub status: ReturnCode,
    /// When it was sampled, microseconds since 1970 by the engine's clock. 0: never.
    pub ts_us: i64,
    /// The value, with status, sentinel and missing sample folded in.
    pub value: Result<Value<'a>, Absent>,
}

/// A value. Its type is that of the value delivered, which is not always that of the field table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// An integer.
    Int(i64),
    /// A number, never a NaN.
    Double(f64),
    /// A text.
    Text(&'a str),
    /// Microseconds since 1970.
    Time(i64),
    /// A structure of the field's own; not handed on.
    Binary,
}

/// What was copied of one value.
#[derive(Clone, Copy)]
struct Raw {
    entity_group: u32,
    entity_id: u32,
    field: u16,
    kind: Option<FieldKind>,
    status: ReturnCode,
    ts_us: i64,
    /// An integer, the bits of a number, or begin and length of a text.
    bits: u64,
}

/// Values of one call.
#[derive(Default)]
pub(crate) struct Readings {
    values: Vec<Raw>,
    texts: String,
    dropped: u64,
}

impl Readings {
    /// Forgets all values and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.texts.clear();
        self.dropped = 0;
    }

    /// Values that found no room since the last [`Readings::clear`].
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Hands each value on, in the order in which it came. Entities of groups we do not know are left out.
    pub(crate) fn each(&self, f: &mut dyn FnMut(Entity, &FieldValue<'_>)) {
        for raw in &self.values {
            let Some(group) = EntityGroup::from_raw(raw.entity_group) else { continue };
            let value =
                FieldValue { field: raw.field, status: raw.status, ts_us: raw.ts_us, value: self.value(raw) };
            f(Entity::new(group, raw.entity_id), &value);
        }
    }

    fn value(&self, raw: &Raw) -> Result<Value<'_>, Absent> {
        if let Some(absent) = Absent::of_status(raw.status) {
            return Err(absent);
        }
        if raw.ts_us == 0 {
            return Err(Absent::NoData);
        }
        match raw.kind {
            Some(FieldKind::Int) => present_i64(raw.bits.cast_signed()).map(Value::Int),
            Some(FieldKind::Time) => present_i64(raw.bits.cast_signed()).map(Value::Time),
            Some(FieldKind::Double) => present_f64(f64::from_bits(raw.bits)).map(Value::Double),
            Some(FieldKind::Str) => {
                let begin = (raw.bits >> 32) as usize;
                let end = begin + (raw.bits & 0xffff_ffff) as usize;
                present_str(self.texts.get(begin..end).unwrap_or_default()).map(Value::Text)
            }
            Some(FieldKind::Binary) => Ok(Value::Binary),
            None => Err(Absent::NotSupported),
        }
    }

    /// Copies a value: of its 4096 bytes only what its type uses. Does not panic.
    ///
    /// # Safety
    /// `value` must point to a readable value.
    unsafe fn copy(&mut self, mut raw: Raw, value: *const RawValue) {
        if VALUES_MAX <= self.values.len() || self.values.try_reserve(1).is_err() {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        raw.bits = match raw.kind {
            Some(FieldKind::Int | FieldKind::Time | FieldKind::Double) => {
                // SAFETY: the caller's; the value begins with its 8 bytes.
                unsafe { value.cast::<u64>().read() }
            }
            Some(FieldKind::Str) => {
                // SAFETY: the caller's; a text has at most 256 of the value's 4096 bytes.
                let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), TEXT_LENGTH) };
                let Some(place) = self.copy_text(bytes) else {
                    self.dropped = self.dropped.saturating_add(1);
                    return;
                };
                place
            }
            Some(FieldKind::Binary) | None => 0,
        };
        self.values.push(raw);
    }

    /// Copies a text up to its zero byte; begin in the upper, length in the lower half of the result. None:
    /// no room.
    fn copy_text(&mut self, bytes: &[u8]) -> Option<u64> {
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default());
        if TEXT_MAX < self.texts.len() + text.len() || self.texts.try_reserve(text.len()).is_err() {
            return None;
        }
        let begin = self.texts.len() as u64;
        self.texts.push_str(&text);
        Some(begin << 32 | text.len() as u64)
    }

    /// Copies a value that carries its entity.
    pub(crate) fn push(&mut self, value: &FieldValueV2) {
        let raw = Raw {
            entity_group: value.entity_group,
            entity_id: value.entity_id,
            field: value.field_id,
            kind: FieldKind::from_code(value.field_type),
            status: ReturnCode(value.status),
            ts_us: value.ts,
            bits: 0,
        };
        // SAFETY: a reference is readable.
        unsafe { self.copy(raw, &raw const value.value) };
    }
}

/// What the library calls for each value. Runs no code but our copying, which cannot panic; should it, the
/// runtime ends the process at this frame rather than unwind into C.
///
/// # Safety
/// `user` must be a [`Readings`] that nobody else uses during the call; `values` must point to `count`
/// values.
pub(crate) unsafe extern "C" fn on_values(
    entity_group: u32,
    entity_id: u32,
    values: *mut FieldValueV1,
    count: c_int,
    user: *mut c_void,
) -> c_int {
    if values.is_null() || user.is_null() {
        return 0;
    }
    // SAFETY: the caller's; our own calls pass a `&mut Readings` that they do not touch until the library
    // returns, and the library calls back in the calling thread only.
    let readings = unsafe { &mut *user.cast::<Readings>() };
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's: `at` is below `count`.
        let value = unsafe { values.add(at) };
        // SAFETY: `value` is readable; only small members are read through the pointer, so that 4 kB are not
        // copied.
        let (raw, union) = unsafe {
            let raw = Raw {
                entity_group,
                entity_id,
                field: (*value).field_id,
                kind: FieldKind::from_code((*value).field_type),
                status: ReturnCode((*value).status),
                ts_us: (*value).ts,
                bits: 0,
            };
            (raw, &raw const (*value).value)
        };
        // SAFETY: `union` is a member of a readable value.
        unsafe { readings.copy(raw, union) };
    }
    0 // anything else ends the enumeration, with a good status and the next `since` unchanged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::zeroed;

    /// What it is, type, status, time, bytes, and what comes out.
    type Case<'a> = (&'a str, u8, i32, i64, &'a [u8], Result<String, Absent>);

    /// What the library would hand over, through the same callback.
    fn deliver(readings: &mut Readings, kind: u8, status: i32, ts: i64, bytes: &[u8]) {
        let mut value = zeroed::<FieldValueV1>();
        (value.field_id, value.field_type, value.status, value.ts) = (54, kind.into(), status, ts);
        for (word, chunk) in value.value.iter_mut().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(eight);
        }
        let user = (&raw mut *readings).cast::<c_void>();
        // SAFETY: one value, and the buffer is ours.
        assert_eq!(unsafe { on_values(1, 3, &raw mut *value, 1, user) }, 0);
    }

    fn one(kind: u8, status: i32, ts: i64, bytes: &[u8]) -> Result<String, Absent> {
        let mut readings = Readings::default();
        deliver(&mut readings, kind, status, ts, bytes);
        let mut out = Vec::new();
        readings.each(&mut |entity, value| {
            assert_eq!((entity, value.field, value.ts_us), (Entity::gpu(3), 54, ts));
            assert_eq!(value.status, ReturnCode(status));
            out.push(value.value.map(|v| format!("{v:?}")));
        });
        assert_eq!(out.len(), 1);
        out.remove(0)
    }

    #[test]
    fn status_sample_and_sentinel_are_all_asked() {
        let int = |n: i64| n.to_ne_bytes();
        let text = |t: &str| Ok::<_, Absent>(format!("Text({t:?})"));
        let blank = int(0x7fff_ffff_ffff_fff0);
        let cases: [Case; 14] = [
            ("a number", b'i', 0, 5, &int(7), Ok("Int(7)".into())),
            ("blank, status 0", b'i', 0, 5, &blank, Err(Absent::Blank)),
            ("not watched wins over blank", b'i', -16, 0, &blank, Err(Absent::NotWatched)),
            ("a bad status wins over a number", b'i', -6, 5, &int(7), Err(Absent::NotSupported)),
            ("no sample", b'i', 0, 0, &int(7), Err(Absent::NoData)),
            ("a double", b'd', 0, 5, &0.5f64.to_ne_bytes(), Ok("Double(0.5)".into())),
            ("a blank double", b'd', 0, 5, &(2f64.powi(47) + 1.0).to_ne_bytes(), Err(Absent::NotFound)),
            ("a time", b't', 0, 5, &int(9), Ok("Time(9)".into())),
            ("a text", b's', 0, 5, b"GPU-1\0rubbish", text("GPU-1")),
            ("a text that is not UTF-8", b's', 0, 5, b"\xff\0", text("\u{fffd}")),
            ("a text without end", b's', 0, 5, &[b'x'; 4096], text(&"x".repeat(256))),
            ("a blank text", b's', 0, 5, b"<<<NOT_PERM>>>", Err(Absent::NotPermitted)),
            ("a structure", b'b', 0, 5, &[1; 4096], Ok("Binary".into())),
            ("an unknown type", b'z', 0, 5, &int(7), Err(Absent::NotSupported)),
        ];
        for (what, kind, status, ts, bytes, want) in cases {
            assert_eq!(one(kind, status, ts, bytes), want, "{what}");
        }
    }

    #[test]
    fn each_text_is_its_own() {
        let mut readings = Readings::default();
        for text in ["ab", "", "c"] {
            deliver(&mut readings, b's', 0, 1, text.as_bytes());
        }
        let mut texts = Vec::new();
        readings.each(&mut |_, value| texts.push(format!("{:?}", value.value.unwrap())));
        assert_eq!(texts, ["Text(\"ab\")", "Text(\"\")", "Text(\"c\")"]);
    }

    #[test]
    fn a_buffer_is_used_again_and_bounded() {
        let mut readings = Readings::default();
        for _ in 0..100 {
            deliver(&mut readings, b'i', 0, 1, &[1]);
        }
        let capacity = readings.values.capacity();
        readings.clear();
        deliver(&mut readings, b'i', 0, 1, &[1]);
        assert_eq!((readings.values.len(), readings.values.capacity()), (1, capacity));
        let one = readings.values[0];
        readings.values.resize(VALUES_MAX, one);
        deliver(&mut readings, b'i', 0, 1, &[1]);
        assert_eq!((readings.values.len(), readings.dropped()), (VALUES_MAX, 1));
        readings.clear();
        readings.texts = "x".repeat(TEXT_MAX - 1);
        deliver(&mut readings, b's', 0, 1, b"ab");
        deliver(&mut readings, b's', 0, 1, b"a");
        assert_eq!(
            (readings.values.len(), readings.dropped()),
            (1, 1),
            "a text without room is no empty text"
        );
    }

    #[test]
    fn nonsense_of_the_library_is_survived() {
        let mut readings = Readings::default();
        let user = (&raw mut readings).cast::<c_void>();
        for count in [-1, 0, 1] {
            // SAFETY: the callback asks for null before it follows the pointer.
            assert_eq!(unsafe { on_values(1, 0, std::ptr::null_mut(), count, user) }, 0);
        }
        let mut value = zeroed::<FieldValueV1>();
        value.field_type = u16::from(b'i');
        for count in [0, -5] {
            // SAFETY: no value is claimed.
            assert_eq!(unsafe { on_values(1, 0, &raw mut *value, count, user) }, 0);
        }
        // SAFETY: one value; the entity group is unknown to us.
        assert_eq!(unsafe { on_values(77, 0, &raw mut *value, 1, user) }, 0);
        let mut seen = 0;
        readings.each(&mut |_, _| seen += 1);
        assert_eq!((readings.values.len(), seen), (1, 0));
    }
}
