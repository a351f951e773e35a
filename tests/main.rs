//! Tests of the whole agent, from the inside out: replay → this host's kernel → the real Collector → every lack.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command_line;
mod degrade;
mod delivery;
mod driver_calls;
<<<<<<< HEAD
mod gpu_entities;
mod gpu_fields;
=======
mod driver_hold;
>>>>>>> wip-resil
mod gpu_values;
mod hung_call;
mod image;
mod inside;
mod kernel_log;
mod kernel_types;
mod manifests;
mod replay;
mod self_metrics;
mod unload;
mod worker_engine;
mod worker_faults;
mod worker_libraries;
mod worker_process;
mod worker_values;
