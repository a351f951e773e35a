//! # warpgauge
//!
//! One agent per GPU node. For every GPU second that is lost it says what lost it and whose second it was.
//!
//! ## The way of the data
//!
//! ```text
//! sources ── Signal ──> correlate ── Fact ──> enrich ── Attributed<Fact> ──> export ──> OTLP, console
//! ```
//!
//! One folder is one stage. A signal travels down the list below, never up; `cargo xtask tidy` holds the table of who
//! may use whom. Stages are pure cores (no input or output, no clock, no channel) inside thin loops; the loops are
//! wired in [`pipeline`], and nowhere else.
//!
//! ## A walk for a first reader
//!
//! [`pipeline`] → [`model::signal`] → then follow one XID: [`sources::kmsg`] → [`sources::kmsg::xid`] →
//! [`correlate`] → [`enrich`] → [`export`]. Then one GPU's temperature: [`worker`] (another process) → [`wire`] →
//! [`sources::worker`].
//!
//! ## What holds everywhere
//!
//! - A missing thing (no driver, no BTF, no right, no collector) is a value to report, never a reason to exit.
//! - Every queue is bounded and counts what it drops ([`telemetry`]); only the SDK's queue of the agent's own log lines
//!   does not count.
//! - Time comes in the signal; its clock is a type ([`model::clock`]).
//! - No panic, no `unsafe`, and no program is ever started but this one, as its own [`worker`].
#![forbid(unsafe_code)]

pub mod model;
pub mod sources;

pub mod correlate;
pub mod enrich;
pub mod export;

pub mod config;
pub mod control;
pub mod doctor;
pub mod fields;
pub mod host;
pub mod logging;
pub mod pipeline;
pub mod runtime;
pub mod supervise;
pub mod telemetry;
pub mod wire;
pub mod worker;

#[cfg(test)]
mod replayed_metrics;
#[cfg(test)]
mod test_dir;
