//! QEMU and what modules are built with.
//!
//! In: PATH, and Debian's release. Out: commands that find their programs, brought with just the libraries that this
//! machine lacks. What can go wrong: Debian has them not, or this is no Debian; installing them helps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::packages::{Found, current};
use crate::debian::{Archive, Suite, View};
use crate::shell;

/// QEMU and what modules are built with, each from PATH or from Debian.
#[derive(Debug)]
pub(crate) struct Tools {
    root: Option<PathBuf>,
}

/// Programs, and the packages that have them.
const TOOLS: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("pahole", "pahole"),
    // what kernels are packed with
    ("lz4", "lz4"),
    ("zstd", "zstd"),
    ("xz", "xz-utils"),
];

impl Tools {
    /// Brings the tools that this machine lacks, with just the libraries that it lacks.
    pub(crate) fn bring(kept: &Path) -> Result<Self> {
        for program in ["make", "gcc", "objcopy", "strip", "ldd", "dpkg-deb", "apt-get"] {
            ensure!(shell::which(program).is_some(), "{program} is not on PATH: install it");
        }
        let lacking = TOOLS.iter().filter(|(program, _)| shell::which(program).is_none());
        let packages: Vec<&str> = lacking.map(|(_, package)| *package).collect();
        if packages.is_empty() {
            return Ok(Self { root: None });
        }
        let release = debian_release().context("/etc/os-release names no release of Debian")?;
        let backports = format!("{release}-backports");
        let root = current(&format!("tools-{release}"), kept, |work| {
            // backports first: on a machine that has some of them, the release's own versions may not fit
            let of = |names: &[&str]| {
                let main = |name| Suite { archive: Archive::Main, name };
                let suites: Vec<Suite<'_>> = names.iter().map(|name| main(*name)).collect();
                let preferred = names.last().copied().unwrap_or_default();
                let view = View::new(&work.join(preferred), &suites, "main")?;
                view.update()?;
                let names = view.names_with_needs(&packages, preferred)?;
                let (preferred, packages) = (preferred.to_owned(), packages.clone());
                let download = Box::new(move || view.download_with_needs(&packages, &preferred));
                Ok(Found { names, download })
            };
            of(&[&release, &backports]).or_else(|_| of(&[&release])).map_err(|e: anyhow::Error| {
                e.context(format!("{} cannot be had; installing them helps", packages.join(", ")))
            })
        })?;
        Ok(Self { root: Some(root) })
    }

    /// A command with one of the tools.
    pub(crate) fn command(&self, program: &str) -> Command {
        let own = self.root.as_ref().map(|root| root.join("usr/bin").join(program)).filter(|at| at.is_file());
        let mut command = Command::new(own.unwrap_or_else(|| program.into()));
        self.add_to(&mut command);
        command
    }

    /// Lets a command find the tools and their libraries.
    pub(crate) fn add_to(&self, command: &mut Command) {
        let Some(root) = &self.root else { return };
        let before = |variable: &str, folders: Vec<PathBuf>| {
            let rest = std::env::var_os(variable).unwrap_or_default();
            let rest: Vec<PathBuf> =
                std::env::split_paths(&rest).filter(|p| !p.as_os_str().is_empty()).collect();
            std::env::join_paths(folders.into_iter().chain(rest)).ok()
        };
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|folder| root.join(folder));
        for (variable, folders) in
            [("PATH", vec![root.join("usr/bin")]), ("LD_LIBRARY_PATH", libraries.to_vec())]
        {
            if let Some(value) = before(variable, folders) {
                command.env(variable, value);
            }
        }
    }

    /// Folders with QEMU's firmware, where it was brought.
    pub(crate) fn firmware(&self) -> Vec<PathBuf> {
        let folders =
            self.root.iter().flat_map(|root| ["qemu", "seabios"].map(|f| root.join("usr/share").join(f)));
        folders.filter(|folder| folder.is_dir()).collect()
    }
}

/// Such as `bookworm`.
fn debian_release() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.trim_matches('"').to_owned())
    };
    (field("ID=")? == "debian").then(|| field("VERSION_CODENAME="))?
}
