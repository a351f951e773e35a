//! `cargo xtask docs`: writes docs/metrics.md from the catalogue.
//!
//! In: the catalogue, through the one test that knows how to print it. Out: the file.
//! What can go wrong: the build fails.

use crate::shell;

/// Runs the test that compares the page with the catalogue, told to write it.
pub(crate) fn run() -> anyhow::Result<()> {
    let status =
        shell::command("cargo", &["test", "--quiet", "--package", "warpgauge", "--lib", "docs_metrics_md"])
            .env("UPDATE", "1")
            .status()?;
    anyhow::ensure!(status.success(), "cargo test docs_metrics_md: {status}");
    Ok(())
}
