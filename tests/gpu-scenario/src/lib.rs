//! The scenario file of the simulators, and the simulated node's state over time.
//!
//! In: a YAML file (`WARPGAUGE_SIM_SCENARIO`), a `.now` file beside it, and a time. Out: what the driver, DCGM's engine
//! and NVML say at that time. What can go wrong: a file that makes no sense is refused with its name and line.
pub mod answer;
pub mod catalog;
pub mod event;
pub mod fault;
pub mod load;
pub mod node;
pub mod overlay;
pub mod plan;
pub mod reading;
pub mod simulator;
pub mod version;
pub mod world;

pub use answer::{Answer, Kind, Sentinel, Value};
pub use simulator::{Go, simulator};
pub use version::Version;
pub use world::World;
