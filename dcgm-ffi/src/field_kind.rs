//! How a field's value is delivered.
//!
//! In: a type code of libdcgm, or a word of the field table. Out: [`FieldKind`]. What can go wrong: a code
//! that no known library uses; it is no kind.

/// The type of a value. Source: `dcgm_fields.h`, `DCGM_FT_*`: each code is an ASCII letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// 64-bit integer, `i`.
    Int,
    /// 64-bit floating point, `d`.
    Double,
    /// Text of at most 255 bytes, `s`.
    Str,
    /// A structure of the field's own, `b`.
    Binary,
    /// Microseconds since 1970, `t`.
    Time,
}

impl FieldKind {
    /// The kind of a type code, as in `dcgmFieldValue_v1.fieldType`.
    pub fn from_code(code: u16) -> Option<Self> {
        match u8::try_from(code).ok()? {
            b'i' => Some(Self::Int),
            b'd' => Some(Self::Double),
            b's' => Some(Self::Str),
            b'b' => Some(Self::Binary),
            b't' => Some(Self::Time),
            _ => None,
        }
    }

    /// A word for it: `int`, `double`, `str`, `binary`, `time`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Double => "double",
            Self::Str => "str",
            Self::Binary => "binary",
            Self::Time => "time",
        }
    }

    /// The kind of a word.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Int, Self::Double, Self::Str, Self::Binary, Self::Time]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}
