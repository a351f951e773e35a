//! Where things are in this checkout.
//!
//! In: nothing. Out: absolute paths. Nothing can go wrong: the root is known when xtask is compiled.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::shell;

/// The checkout's root.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// A path below the root.
pub(crate) fn path(below: &str) -> PathBuf {
    root().join(below)
}

/// Cargo's target folder, which the environment or a configuration file may have moved.
pub(crate) fn target() -> PathBuf {
    let asked = || -> anyhow::Result<PathBuf> {
        let mut cargo = shell::command("cargo", &["metadata", "--format-version", "1", "--no-deps"]);
        let metadata: serde_json::Value = serde_json::from_str(&shell::output(&mut cargo)?)?;
        Ok(metadata["target_directory"].as_str().context("no target_directory")?.into())
    };
    asked().unwrap_or_else(|_| path("target"))
}

/// A program of the workspace, as the one build profile makes it.
pub(crate) fn program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// Every file that git tracks or would track, with one of these endings.
pub(crate) fn files(endings: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let listed = shell::output(&mut shell::command(
        "git",
        &["ls-files", "--cached", "--others", "--exclude-standard"],
    ))?;
    let wanted = |name: &&str| endings.iter().any(|e| name.ends_with(e));
    Ok(listed.lines().filter(wanted).map(path).filter(|p| p.is_file()).collect())
}
