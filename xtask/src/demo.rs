//! `cargo xtask demo`: a hung driver call, an XID and the values of simulated GPUs arrive at an OpenTelemetry Collector.
//!
//! In: the checkout. Out: what the Collector received. Needs no GPU; what is missing is said, and the rest is shown.
//! What can go wrong: a build fails. Kernel programs that cannot be built are not the end of it.

use crate::run::build_programs;
use crate::{build_ebpf, collector, shell, workspace};

/// Builds everything and runs the demo.
pub(crate) fn run() -> anyhow::Result<()> {
    if let Err(e) = build_ebpf::run() {
        println!("The kernel programs cannot be built here, so the live part is left out: {e:#}");
    }
    collector::build();
    build_programs()?;
    // The vendors' libraries of the demo's GPUs.
    let simulators = ["build", "--quiet", "--package", "dcgm-sim", "--package", "nvml-sim", "--lib"];
    shell::run(&mut shell::command("cargo", &simulators))?;
    shell::mount_tracefs();
    shell::run(&mut shell::command(&workspace::program("demo").to_string_lossy(), &[]))
}
