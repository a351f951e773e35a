//! Prometheus, for the test that a workload's series are what people query behind a Collector.
//!
//! In: Debian's package. Out: `target/prometheus/prometheus`.
//! What can go wrong: no Debian, or its mirror cannot be reached; the error names the remedy.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::debian::{self, Wanted};
use crate::workspace;

const FOLDER: &str = "target/prometheus";
const NAME: &str = "prometheus";

/// The program, brought when it is missing.
///
/// # Errors
/// When it cannot be had.
pub(crate) fn bring() -> Result<PathBuf> {
    let program = workspace::path(FOLDER).join(NAME);
    if !program.is_file() {
        unpack(&program).context(
            "Prometheus cannot be had: this machine's apt sources must name a Debian mirror that can be reached, or put \
             the program (2.40 or later) at target/prometheus/prometheus",
        )?;
    }
    Ok(program)
}

/// The same; `None` where it cannot be had, which is said.
pub(crate) fn bring_if_possible() -> Option<PathBuf> {
    bring().map_err(|e| println!("{e:#}")).ok()
}

fn unpack(program: &Path) -> Result<()> {
    let partial = workspace::path("target/prometheus.partial");
    let wanted =
        Wanted { package: NAME, version: None, suites: &["bookworm", "trixie", "sid"], component: "main" };
    debian::unpack(&wanted, &partial)?;
    std::fs::create_dir_all(workspace::path(FOLDER))?;
    // Moved last: an interrupted run leaves nothing that looks complete.
    let unpacked = partial.join("usr/bin").join(NAME);
    std::fs::rename(&unpacked, program)
        .with_context(|| format!("the package has no {}", unpacked.display()))?;
    std::fs::remove_dir_all(&partial)?;
    Ok(())
}
