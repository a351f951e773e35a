//! Safe client of NVIDIA's libdcgm.
//!
//! In: values of the C library. Out: values, or the reason why there are none. Only the sentinels and the field table
//! are known here so far; loading the library, watching fields and reading them comes with the worker process that
//! will hold it. What can go wrong: nothing yet; every function is total.
#![deny(unsafe_code)]

mod entity;
mod field_kind;
pub mod field_table;
pub mod value;

pub use entity::{Entity, EntityGroup};
pub use field_kind::FieldKind;
pub use value::Absent;
