//! NVIDIA's own libnvidia-ml, for the test that the agent lives with it on a machine without a driver.
//!
//! In: Debian's package (component non-free). Out: `target/nvidia-ml/libnvidia-ml.so.1`.
//! What can go wrong: no Debian, or its mirror lacks the component; then there is none, and the test says so.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::debian::{self, Wanted};
use crate::workspace;

const FOLDER: &str = "target/nvidia-ml";
const NAME: &str = "libnvidia-ml.so.1";

/// The library, brought when it is missing; `None` where it cannot be had, which is said.
pub(crate) fn bring() -> Option<PathBuf> {
    let library = workspace::path(FOLDER).join(NAME);
    if library.is_file() {
        return Some(library);
    }
    match unpack(&library) {
        Ok(()) => Some(library),
        Err(e) => {
            println!("NVIDIA's libnvidia-ml cannot be had here: {e:#}");
            None
        }
    }
}

fn unpack(library: &Path) -> Result<()> {
    let partial = workspace::path("target/nvidia-ml.partial");
    let wanted = Wanted {
        package: "libnvidia-ml1",
        version: None,
        suites: &["bookworm", "trixie", "sid"],
        component: "non-free",
    };
    debian::unpack(&wanted, &partial)?;
    let found = find(&partial)?.context("the package has no libnvidia-ml.so.1")?;
    std::fs::create_dir_all(workspace::path(FOLDER))?;
    // Moved last: an interrupted run leaves nothing that looks complete. The name may be a link to a longer one.
    let real = std::fs::canonicalize(&found).with_context(|| format!("{}", found.display()))?;
    std::fs::rename(real, library)?;
    std::fs::remove_dir_all(&partial)?;
    Ok(())
}

fn find(folder: &Path) -> Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if let Some(found) = find(&entry.path())? {
                return Ok(Some(found));
            }
        } else if entry.file_name() == NAME {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}
