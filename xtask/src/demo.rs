//! `cargo xtask demo`: a hung driver call and an XID arrive, attributed, at an OpenTelemetry Collector.
//!
//! In: the checkout. Out: what the Collector received. Needs no GPU; what is missing is said, and the rest is shown.
//! What can go wrong: a build fails. Kernel programs that cannot be built are not the end of it.

use crate::{build_ebpf, collector, shell, workspace};

/// Builds everything and runs the demo.
pub(crate) fn run() -> anyhow::Result<()> {
    if let Err(e) = build_ebpf::run() {
        println!("The kernel programs cannot be built here, so the live part is left out: {e:#}");
    }
    collector::build();
    shell::run(&mut shell::command(
        "cargo",
        &["build", "--quiet", "--package", "warpgauge", "--package", "warpgauge-tests", "--bins"],
    ))?;
    shell::mount_tracefs();
    shell::run(&mut shell::command(&workspace::program("demo").to_string_lossy(), &[]))
}
