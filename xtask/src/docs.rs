//! `cargo xtask docs`: writes docs/metrics.md and docs/fields.md from the catalogue and the table of fields.
//!
//! In: the catalogue, through the tests that know how to print them. Out: the files.
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
