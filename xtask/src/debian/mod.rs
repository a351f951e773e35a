//! Packages from Debian, without touching the system's own package state.
//!
//! In: the mirror the machine already uses, and what is wanted. Out: the package, unpacked into a folder.
//! What can go wrong: no Debian mirror is configured, or none of its suites has the package; both are said.

mod mirror;
mod view;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

pub use mirror::Archive;
pub use view::{Suite, View, extract};

/// A package, and where it is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Its name.
    pub package: &'a str,
    /// Its exact upstream version; the newest of the first suite that has any, where it does not matter.
    pub version: Option<&'a str>,
    /// Suites, in the order they are asked.
    pub suites: &'a [&'a str],
    /// The archive's component: `main`, `non-free`, ….
    pub component: &'a str,
}

/// Downloads what is wanted and unpacks it into `into`.
pub fn unpack(wanted: &Wanted<'_>, into: &Path) -> Result<()> {
    if into.exists() {
        fs::remove_dir_all(into).with_context(|| format!("removing {}", into.display()))?;
    }
    let Wanted { package, version, suites, component } = wanted;
    let work = into.join("apt");
    for suite in *suites {
        let view = View::new(&work.join(suite), &[Suite { archive: Archive::Main, name: suite }], component)?;
        // a suite the mirror does not carry is no reason to stop
        let Ok(Some(exact)) = view.update().and_then(|()| view.find(package, *version)) else { continue };
        eprintln!("xtask: {package} {exact} from Debian's {suite}");
        let archives = view.download(&[format!("{package}={exact}")])?;
        ensure!(archives.len() == 1, "apt-get download left {} files for {package}", archives.len());
        archives.iter().try_for_each(|archive| extract(archive, into))?;
        return fs::remove_dir_all(&work).with_context(|| format!("removing {}", work.display()));
    }
    bail!("{package} {} is in none of {}", version.unwrap_or_default(), suites.join(", "))
}
