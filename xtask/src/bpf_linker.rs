//! bpf-linker, against the compiler's own LLVM: bitcode of another major version cannot be read.
//!
//! In: the compiler. Out: a linker that fits it, from an earlier run or built now (about a minute).
//! What can go wrong: a compiler that brings no shared LLVM (some distributions' do not); the error says so.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::rustc::{Rustc, cargo};
use crate::shell::{output, run};

const VERSION: &str = "0.13.0";

/// Finds the linker, or builds it into `kept`.
pub fn find_or_build(rustc: &Rustc, kept: &Path) -> Result<PathBuf> {
    let folder = kept.join(format!("linker-{VERSION}-{}", rustc.key()));
    let linker = folder.join("bin/bpf-linker");
    // it must run, not only be there: it needs the compiler's LLVM where that was when it was built
    if output(Command::new(&linker).arg("--version")).is_ok() {
        return Ok(linker);
    }
    eprintln!("build-ebpf: building bpf-linker {VERSION} for LLVM {}, once per compiler", rustc.llvm);
    let llvm = folder.join("llvm");
    link_llvm(rustc, &llvm.join("lib"))?;
    let objects = kept.join("linker-build");
    run(Command::new(cargo())
        .args(["install", "--quiet", "--force", "--locked", "--no-default-features"])
        .arg(format!("bpf-linker@{VERSION}"))
        .arg(format!("--features=llvm-{}", rustc.llvm))
        .arg("--root")
        .arg(&folder)
        .arg("--target-dir")
        .arg(&objects)
        .env("LLVM_PREFIX", &llvm)
        .env_remove("RUSTC_WORKSPACE_WRAPPER"))?;
    // half a gigabyte that nobody needs again
    fs::remove_dir_all(&objects).with_context(|| format!("removing {}", objects.display()))?;
    output(Command::new(&linker).arg("--version")).context("the linker just built does not run")?;
    Ok(linker)
}

/// A folder that looks like an installed LLVM, to the linker's build.
fn link_llvm(rustc: &Rustc, lib: &Path) -> Result<()> {
    let from = rustc.sysroot.join("lib");
    let library = shared_llvm(&from, rustc.llvm)?;
    if lib.exists() {
        fs::remove_dir_all(lib).with_context(|| format!("removing {}", lib.display()))?;
    }
    fs::create_dir_all(lib).with_context(|| format!("making {}", lib.display()))?;
    let name = library.file_name().context("a library without a name")?;
    for link in [lib.join(name), lib.join("libLLVM.so")] {
        symlink(&library, &link).with_context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}

fn shared_llvm(folder: &Path, major: u32) -> Result<PathBuf> {
    let prefix = format!("libLLVM.so.{major}.");
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let found = entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    let found = found.with_context(|| {
        format!(
            "rustc brings no {prefix}* in {}: use the compiler that rustup installs, which does",
            folder.display()
        )
    })?;
    Ok(found.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_without_a_shared_llvm_is_named() {
        let error = shared_llvm(Path::new(env!("CARGO_MANIFEST_DIR")), 22).expect_err("no LLVM there");
        assert!(error.to_string().contains("libLLVM.so.22."), "{error}");
    }
}
