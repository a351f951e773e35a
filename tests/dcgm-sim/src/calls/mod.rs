//! The exported C functions, by what they are about.
//!
//! In: C arguments. Out: C return codes. What can go wrong: see `client` and `pointers`.

pub(crate) mod devices;
pub(crate) mod fields;
pub(crate) mod groups;
pub(crate) mod health;
pub(crate) mod nodes;
pub(crate) mod session;
pub(crate) mod values;
