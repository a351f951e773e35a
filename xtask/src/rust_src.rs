//! The standard library's source, of exactly the installed compiler: BPF has no prebuilt `core`.
//!
//! In: the compiler. Out: the folder `library`, from the sysroot, from an earlier run, or from Debian's package.
//! What can go wrong: none of them has it; then the error is the one command that brings it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::debian::{self, Wanted};
use crate::rustc::Rustc;

/// Where newer versions than a release's own turn up, the smallest index first.
const SUITES: [&str; 5] = ["trixie-backports", "forky-backports", "trixie", "forky", "sid"];

/// Where the source is.
#[derive(Debug)]
pub enum RustSrc {
    /// Where cargo looks by itself.
    Sysroot,
    /// This folder `library`.
    At(PathBuf),
}

/// Finds the source, or brings it into `kept`.
pub fn find_or_bring(rustc: &Rustc, kept: &Path) -> Result<RustSrc> {
    if is_library(&rustc.sysroot.join("lib/rustlib/src/rust/library")) {
        return Ok(RustSrc::Sysroot);
    }
    let folder = kept.join(format!("rust-src-{}", rustc.key()));
    if let Some(library) = library_in(&folder, rustc) {
        return Ok(RustSrc::At(library));
    }
    let bring = || -> Result<PathBuf> {
        // unpacked beside its place and moved: an interrupted run leaves nothing that looks complete
        let unpacked = kept.join("rust-src.partial");
        let wanted =
            Wanted { package: "rust-src", version: Some(&rustc.release), suites: &SUITES, component: "main" };
        debian::unpack(&wanted, &unpacked)?;
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        fs::rename(&unpacked, &folder).with_context(|| format!("moving {}", unpacked.display()))?;
        library_in(&folder, rustc).context("Debian's rust-src has no folder `library`")
    };
    match bring() {
        Ok(library) => Ok(RustSrc::At(library)),
        Err(why) => bail!(
            "the source of rustc {} is neither in its sysroot nor to be had from Debian ({why:#}); run:\n\n    \
             rustup component add rust-src\n",
            rustc.release
        ),
    }
}

fn library_in(unpacked: &Path, rustc: &Rustc) -> Option<PathBuf> {
    let library = unpacked.join(format!("usr/src/rustc-{}/library", rustc.release));
    is_library(&library).then_some(library)
}

fn is_library(folder: &Path) -> bool {
    folder.join("core/Cargo.toml").is_file() && folder.join("Cargo.lock").is_file()
}
