//! Safe client of NVIDIA's libdcgm 3.1 to 4.6, opened at run time.
//!
//! In: a library, an address, fields, entities. Out: values, or the reason why there are none; errors with a
//! remedy. Begin at [`Library::open`]; [`Library::connect`] or [`Library::start_embedded`] gives an
//! [`Engine`]. [`field_table`] knows all fields without a library.
//!
//! Calls block, up to minutes when an engine or a driver hangs, and nothing here cuts that short: a thread
//! that is inside the vendor's code cannot be taken out of it. Hold this crate in a process that can be given
//! up.
//!
//! What can go wrong: see [`Error`]; no answer of the library, however wrong, makes this crate panic.

mod abi;
mod address;
mod engine;
mod entity;
mod error;
mod field_kind;
pub mod field_table;
mod library;
pub mod link;
pub mod nvml_more;
mod readings;
mod return_code;
mod symbols;
pub mod value;
mod version;

pub use address::Address;
pub use engine::{
    Architecture, Cpu, DeviceAttributes, Engine, FieldGroup, GpuStatus, Group, Incident, Level, LinkState,
    MetricGroup, MigEntity, ModuleState, ModuleStatus, NvLinks, Topology, TopologyPath, systems,
};
pub use entity::{Entity, EntityGroup};
pub use error::Error;
pub use field_kind::FieldKind;
pub use library::{FieldMeta, Library, LoadedLibrary};
pub use link::Link;
pub use readings::{FieldValue, Value};
pub use return_code::ReturnCode;
pub use value::Absent;
pub use version::Version;
