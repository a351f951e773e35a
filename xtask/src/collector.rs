//! The real OpenTelemetry Collector, built from `tests/collector`.
//!
//! In: its Go module, pinned by go.mod and go.sum. Out: `target/collector/otelcol-test`.
//! What can go wrong: no Go on this machine; then there is none, and who needs it says so.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};

use crate::{shell, workspace};

/// The Collector, built when it is missing or older than its sources; `None` where it cannot be built, which is said.
pub(crate) fn build() -> Option<PathBuf> {
    match find_or_build() {
        Ok(found) => found,
        Err(e) => {
            println!("The OpenTelemetry Collector cannot be built here: {e:#}");
            None
        }
    }
}

fn find_or_build() -> anyhow::Result<Option<PathBuf>> {
    let binary = workspace::path("target/collector/otelcol-test");
    let module = workspace::path("tests/collector");
    if modified(&binary).is_some_and(|built| newest_source(&module) <= Some(built)) {
        return Ok(Some(binary));
    }
    if shell::which("go").is_none() {
        return Ok(None);
    }
    println!(
        "Building the OpenTelemetry Collector from its published Go modules; the first time takes minutes."
    );
    let status = shell::command("go", &["build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o"])
        .arg(&binary)
        .arg(".")
        .current_dir(&module)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-buildvcs=false")
        .status()
        .context("cannot start go")?;
    if !status.success() {
        bail!("go build in tests/collector: {status}");
    }
    Ok(Some(binary))
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|m| m.modified()).ok()
}

fn newest_source(module: &Path) -> Option<SystemTime> {
    ["go.mod", "go.sum", "main.go"].iter().filter_map(|name| modified(&module.join(name))).max()
}
