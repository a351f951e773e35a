//! Stand-in for dcgm_ffi's value types until that crate has them.
//!
//! In: nothing. Out: types. What can go wrong: nothing.

use dcgm_ffi::{Absent, ReturnCode};

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
