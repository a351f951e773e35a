//! What a driver answers when a field is read: a value, or a sentinel, and a status.
//!
//! In: a kind and a number. Out: a value of that kind. Nothing can go wrong: numbers that do not fit are clipped.

use serde::Deserialize;

/// Type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// 64-bit integer.
    #[serde(rename = "i64")]
    Int,
    /// Double.
    Double,
    /// Text.
    #[serde(rename = "str")]
    Text,
    /// Bytes.
    #[serde(rename = "bin")]
    Bytes,
}

/// Why a value is absent, as the sentinel says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the vendor's names")]
pub enum Sentinel {
    Blank = 0,
    NotFound = 1,
    NotSupported = 2,
    NotPermitted = 3,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Int(i64),
    /// A number.
    Double(f64),
    /// A text, at most 255 bytes of it are delivered.
    Text(String),
    /// So many bytes that are not zero.
    Bytes(usize),
    /// None.
    Absent(Sentinel),
}

impl Value {
    /// `number` as a value of `kind`.
    pub fn of_kind(kind: Kind, number: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats clip")]
        match kind {
            Kind::Int => Self::Int(number as i64),
            Kind::Double => Self::Double(number),
            Kind::Text => Self::Text(number.to_string()),
            Kind::Bytes => Self::Bytes((number as usize).min(4096)),
        }
    }

    /// The number, where it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "simulated numbers are small")]
            Self::Int(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
            Self::Text(_) | Self::Bytes(_) | Self::Absent(_) => None,
        }
    }
}

/// What a read of one field gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// DCGM's status of the value.
    pub status: i32,
    /// Type of what is delivered; not always the field table's (field 526).
    pub kind: Kind,
    /// The value.
    pub value: Value,
}

impl Answer {
    /// No value, with this status.
    pub fn absent(kind: Kind, status: i32, sentinel: Sentinel) -> Self {
        Self { status, kind, value: Value::Absent(sentinel) }
    }
}
