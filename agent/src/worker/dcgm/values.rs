//! Stand-in for dcgm_ffi's value types until that crate has them.
//!
//! In: nothing. Out: types. What can go wrong: nothing.

use dcgm_ffi::Absent;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReturnCode(pub i32);

impl ReturnCode {
    pub const OK: Self = Self(0);
    pub const BAD_PARAM: Self = Self(-1);
    pub const GENERIC_ERROR: Self = Self(-3);
    pub const NOT_SUPPORTED: Self = Self(-6);
    pub const TIMEOUT: Self = Self(-11);
    pub const VER_MISMATCH: Self = Self(-12);
    pub const UNKNOWN_FIELD: Self = Self(-13);
    pub const NO_DATA: Self = Self(-14);
    pub const NOT_WATCHED: Self = Self(-16);
    pub const NO_PERMISSION: Self = Self(-17);
    pub const GPU_IS_LOST: Self = Self(-18);
    pub const FUNCTION_NOT_FOUND: Self = Self(-20);
    pub const CONNECTION_NOT_VALID: Self = Self(-21);
    pub const MAX_LIMIT: Self = Self(-24);
    pub const MODULE_NOT_LOADED: Self = Self(-33);
    pub const PROFILING_MULTI_PASS: Self = Self(-38);
    pub const NVML_NOT_LOADED: Self = Self(-56);
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Int(i64),
    Double(f64),
    Text(&'a str),
    Time(i64),
    Binary,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldValue<'a> {
    pub field: u16,
    pub status: ReturnCode,
    pub ts_us: i64,
    pub value: Result<Value<'a>, Absent>,
}
