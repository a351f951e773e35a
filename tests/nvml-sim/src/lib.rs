//! A stand-in for `libnvidia-ml.so.1`: NVML's C calls, answered from a scenario file.
//!
//! In: calls of a client, and the scenario (see `gpu_scenario`). Out: the same node that `dcgm-sim` shows, as NVML says
//! it. What can go wrong: whatever the scenario asks for. Not recorded from a driver: NVML's codes are those of its
//! documentation, a value that DCGM would call blank is "not supported" here.
//!
//! How to use it as the library: build the package, and let a link named `libnvidia-ml.so.1` in a directory of its own
//! point to `target/debug/libnvml_sim.so`; then open that path. Every call is exported, whatever the driver's version.

mod devices;
mod door;
mod events;
mod instances;
mod numbers;
mod processes;
mod session;
