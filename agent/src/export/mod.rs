//! Placeholder.
pub mod catalog;
pub mod console;
pub mod otlp;
pub mod own_points;
pub mod point;
pub mod record;
#[cfg(test)]
mod samples;
pub mod series;
pub mod snapshot;
pub mod stalls;
pub mod whose;
pub mod workloads;
