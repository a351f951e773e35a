//! What the tests are written with: the agent, the Collector and the victim as values that clean up after themselves.
//!
//! In: the programs that `cargo xtask test` built. Out: running processes, and what the Collector received.
//! What can go wrong: this machine lacks something; then [`harness::need`] records a skip.
#![forbid(unsafe_code)]

pub mod harness;
