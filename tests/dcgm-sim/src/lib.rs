//! A stand-in for `libdcgm.so.4`: the vendor's C calls, answered from a scenario file.
//!
//! In: calls of a client, and the scenario (see `gpu_scenario`). Out: what the recorded engine 4.6.0 answered. What can
//! go wrong: whatever the scenario asks for, dying by SIGSEGV among it.
//!
//! How to use it as the library: build the package, and let a link named `libdcgm.so.4` in a directory of its own point
//! to `target/debug/libdcgm_sim.so`; then open that path. The library exports every call whatever version the scenario
//! names: a call that came later than that version answers -20, so a version shows by behaviour, never by symbols.
//! The "host engine" is made from the scenario in the client's own process: processes that read the same files see the
//! same devices, values and states, but not one another's groups.

mod abi;
mod calls;
mod client;
mod codes;
mod engine;
mod pointers;
#[cfg(test)]
mod recorded;
