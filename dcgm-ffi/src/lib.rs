//! Safe client of NVIDIA's libdcgm.
mod abi;
mod address;
mod entity;
mod error;
mod field_kind;
pub mod field_table;
pub mod link;
mod return_code;
pub mod value;
mod version;

pub use address::Address;
pub use entity::{Entity, EntityGroup};
pub use error::Error;
pub use field_kind::FieldKind;
pub use link::Link;
pub use return_code::ReturnCode;
pub use value::Absent;
pub use version::Version;
