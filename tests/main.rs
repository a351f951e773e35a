//! Tests of the whole agent, from the inside out: replay → this host's kernel → the real Collector → every lack.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod come_and_go;
mod command_line;
mod degrade;
mod delivery;
mod doctor;
mod doctor_map;
mod doctor_probes;
mod documents;
mod driver_calls;
mod driver_hold;
mod every_program;
mod fields;
mod gpu_entities;
mod gpu_events;
mod gpu_fields;
mod gpu_processes;
mod gpu_profiling;
mod gpu_values;
mod hung_call;
mod image;
mod in_vm;
mod inside;
mod kernel_log;
mod kernel_types;
mod known_processes;
mod kubelet;
mod manifests;
mod off_cpu;
mod open_nodes;
mod out_of_pids;
mod replay;
mod self_metrics;
mod two_pods;
mod unload;
mod whose;
mod worker_engine;
mod worker_faults;
mod worker_libraries;
mod worker_process;
mod worker_values;
