//! `cargo xtask bench …`: what the agent costs, measured; not part of `ci`.
//!
//! In: what to measure. Out: tables for people. What can go wrong: see each.

mod probes;
mod worker;

use crate::workspace;

/// Always the same packages: a choice of them is a choice of features, and other features build everything anew.
const PACKAGES: [&str; 8] = [
    "--package",
    "warpgauge",
    "--package",
    "warpgauge-tests",
    "--package",
    "dcgm-sim",
    "--package",
    "nvml-sim",
];

/// What to measure.
#[derive(clap::Subcommand)]
pub(crate) enum What {
    /// The worker and its values: processor time, memory, instructions
    Worker(worker::Asked),
    /// The driver probes: calls and context switches with and without, 100,000 calls a second, sizes of programs
    Probes(probes::Asked),
}

/// Builds, measures, tells.
pub(crate) fn run(what: &What) -> anyhow::Result<()> {
    match what {
        What::Worker(asked) => worker::run(asked),
        What::Probes(asked) => probes::run(asked),
    }
}

/// A program as the release profile makes it.
fn program(name: &str) -> String {
    workspace::target().join("release").join(name).to_string_lossy().into_owned()
}
