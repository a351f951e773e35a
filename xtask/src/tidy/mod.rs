//! `cargo xtask tidy`: the rules that no compiler checks.
//!
//! In: every tracked file. Out: all complaints at once, as `FILE:LINE: what, and what would be right`.
//! What can go wrong: git is missing.

mod files;
mod layers;
mod manifests;
mod metrics;
mod top_level;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::workspace;

/// A file with its text.
pub(crate) struct Source {
    /// Path below the checkout's root.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    /// The path with slashes.
    pub(crate) fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// Lines with their numbers, up to the unit tests: rules for shipped code stop there.
    pub(crate) fn shipped_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let shipped = self.text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
        shipped.enumerate().map(|(at, line)| (at + 1, line))
    }
}

/// Checks everything.
pub(crate) fn run() -> anyhow::Result<()> {
    let rust = read(&[".rs"])?;
    let manifests = read(&["Cargo.toml"])?;
    let mut complaints = Vec::new();
    complaints.extend(rust.iter().flat_map(files::check));
    complaints.extend(rust.iter().flat_map(layers::check));
    complaints.extend(manifests.iter().flat_map(manifests::check));
    let page = workspace::path("docs/metrics.md");
    let page = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    complaints.extend(metrics::check(&page, &rust));
    complaints.extend(top_level::check()?);
    if complaints.is_empty() {
        println!("tidy: {} files are in order", rust.len() + manifests.len());
        return Ok(());
    }
    for complaint in &complaints {
        println!("{complaint}");
    }
    bail!("{} complaints", complaints.len());
}

fn read(endings: &[&str]) -> anyhow::Result<Vec<Source>> {
    let root = workspace::root();
    let read_one = |path: PathBuf| {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Source { path: path.strip_prefix(&root).unwrap_or(Path::new("")).to_path_buf(), text })
    };
    workspace::files(endings)?.into_iter().map(read_one).collect()
}
