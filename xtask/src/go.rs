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
    /// The package in it; `.` where the module is one.
    pub(crate) package: &'static str,
    /// The program, from the root.
    pub(crate) binary: &'static str,
}

impl Program {
    /// The program; `None` where it cannot be built, which is said.
    pub(crate) fn build(self) -> Option<PathBuf> {
        match self.find_or_build() {
            Ok(found) => Some(found),
            Err(e) => {
                println!("{} cannot be built here: {e:#}", self.title);
                None
            }
        }
    }

    fn find_or_build(self) -> anyhow::Result<PathBuf> {
        let (binary, module) = (workspace::path(self.binary), workspace::path(self.module));
        if modified(&binary).is_some_and(|built| newest_source(&module) <= Some(built)) {
            return Ok(binary);
        }
        if shell::which("go").is_none() {
            bail!("there is no Go on this machine: install it, so that `go` is on PATH");
        }
        println!("Building {} from its published Go modules; the first time takes a while.", self.title);
        let status = shell::command("go", &["build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o"])
            .arg(&binary)
            .arg(self.package)
            .current_dir(&module)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-buildvcs=false")
            .status()
            .context("cannot start go")?;
        if !status.success() {
            bail!("go build in {}: {status}", self.module);
        }
        Ok(binary)
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|m| m.modified()).ok()
}

/// Also of packages in subfolders.
fn newest_source(module: &Path) -> Option<SystemTime> {
    let is_source = |name: &Path| {
        name.extension().is_some_and(|ending| ["go", "mod", "sum"].iter().any(|source| ending == *source))
    };
    let entries = std::fs::read_dir(module).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let path = entry.path();
            // A link is not followed: it may lead back.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                newest_source(&path)
            } else {
                modified(&path).filter(|_| is_source(&path))
            }
        })
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_in_subfolders_count() {
        let module = std::env::temp_dir().join(format!("warpgauge-go-{}", std::process::id()));
        let below = module.join("rules/deep");
        std::fs::create_dir_all(&below).expect("a folder");
        assert_eq!(newest_source(&module), None);
        let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        for (path, seconds) in
            [(module.join("go.mod"), 5), (below.join("a.go"), 9), (below.join("note.txt"), 99)]
        {
            let file = std::fs::File::create(path).expect("a file");
            file.set_modified(at(seconds)).expect("its time");
        }
        let newest = newest_source(&module);
        std::fs::remove_dir_all(&module).expect("removed");
        assert_eq!(newest, Some(at(9)));
    }
}
