//! A program of a Go module below `tests/`, pinned by go.mod and go.sum.
//!
//! In: the module's folder. Out: the program, in `target/`, built when it is missing or older than its sources.
//! What can go wrong: no Go on this machine, or no network for the first build; then there is none, and who needs it
//! says so.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};

use crate::{shell, workspace};

/// A module, and what is made of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// For people.
    pub(crate) title: &'static str,
    /// The folder, from the root.
    pub(crate) module: &'static str,
    /// The program, from the root.
    pub(crate) binary: &'static str,
}

impl Program {
    /// The program; `None` where it cannot be built, which is said.
    pub(crate) fn build(self) -> Option<PathBuf> {
        match self.find_or_build() {
            Ok(found) => found,
            Err(e) => {
                println!("{} cannot be built here: {e:#}", self.title);
                None
            }
        }
    }

    fn find_or_build(self) -> anyhow::Result<Option<PathBuf>> {
        let (binary, module) = (workspace::path(self.binary), workspace::path(self.module));
        if modified(&binary).is_some_and(|built| newest_source(&module) <= Some(built)) {
            return Ok(Some(binary));
        }
        if shell::which("go").is_none() {
            return Ok(None);
        }
        println!("Building {} from its published Go modules; the first time takes a while.", self.title);
        let status = shell::command("go", &["build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o"])
            .arg(&binary)
            .arg(".")
            .current_dir(&module)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-buildvcs=false")
            .status()
            .context("cannot start go")?;
        if !status.success() {
            bail!("go build in {}: {status}", self.module);
        }
        Ok(Some(binary))
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|m| m.modified()).ok()
}

fn newest_source(module: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(module).into_iter().flatten().flatten();
    let is_source = |name: &Path| {
        name.extension().is_some_and(|ending| ["go", "mod", "sum"].iter().any(|source| ending == *source))
    };
    entries.map(|entry| entry.path()).filter(|path| is_source(path)).filter_map(|path| modified(&path)).max()
}
