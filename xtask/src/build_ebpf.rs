//! `build-ebpf`: compiles the kernel programs into `target/bpf/warpgauge-ebpf`, which the agent's build embeds.
//!
//! In: agent-ebpf, and what this finds or brings: the standard library's source, and a linker. Out: the object.
//! What can go wrong: something cannot be brought; the error names the command to run. A second run takes a second.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, Result};

use crate::rust_src::{self, RustSrc};
use crate::rustc::{Rustc, cargo};
use crate::shell::run as run_command;
use crate::{bpf_linker, bpf_object};

const NAME: &str = "warpgauge-ebpf";
const TARGET: &str = "bpfel-unknown-none";

/// Brings what is missing, compiles, checks.
pub fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is not inside the workspace")?;
    let kept = root.join("target/bpf");
    let (object, stamp) = (kept.join(NAME), kept.join("built-by"));
    let rustc = Rustc::ask()?;
    let built_by = format!("{} for {}\n", rustc.key(), rustc.arch);
    let same_compiler = fs::read_to_string(&stamp).is_ok_and(|text| text == built_by);
    if same_compiler && is_newer(&object, root) {
        eprintln!("build-ebpf: {} is up to date", object.display());
        return Ok(());
    }
    fs::create_dir_all(&kept).with_context(|| format!("making {}", kept.display()))?;
    let source = rust_src::find_or_bring(&rustc, &kept)?;
    let linker = bpf_linker::find_or_build(&rustc, &kept)?;
    let compiled = compile(root, &kept, &rustc, &source, &linker)?;
    let bytes = fs::read(&compiled).with_context(|| format!("reading {}", compiled.display()))?;
    let instructions = bpf_object::check(&bytes)?;
    // written beside its place and moved: a build that runs at the same time embeds the old or the new, never half
    let partial = kept.join(format!("{NAME}.partial"));
    fs::write(&partial, &bytes).with_context(|| format!("writing {}", partial.display()))?;
    fs::rename(&partial, &object).with_context(|| format!("writing {}", object.display()))?;
    fs::write(&stamp, built_by).with_context(|| format!("writing {}", stamp.display()))?;
    eprintln!("build-ebpf: {} ({instructions} instructions, {} bytes)", object.display(), bytes.len());
    Ok(())
}

fn compile(root: &Path, kept: &Path, rustc: &Rustc, source: &RustSrc, linker: &Path) -> Result<PathBuf> {
    let objects = kept.join("build");
    let flags = [
        // aya-ebpf picks the register layout of the machine by this
        format!("--cfg=bpf_target_arch=\"{}\"", rustc.arch),
        // line numbers in the verifier's log, and types for those who look at the maps
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", linker.display()),
    ];
    let mut command = Command::new(cargo());
    command
        .current_dir(root)
        .args(["build", "--quiet", "--release", "--package", NAME, "--bin", NAME, "--target", TARGET])
        .args(["-Z", "build-std=core", "--target-dir"])
        .arg(&objects)
        // the compiler is a stable one; building `core`, and BPF's inline assembly, are not stable features
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    if let RustSrc::At(library) = source {
        // cargo has no official way to name this folder if it is not in the sysroot
        command.env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
    }
    run_command(&mut command)?;
    Ok(objects.join(TARGET).join("release").join(NAME))
}

/// Newer than everything it is made from.
fn is_newer(object: &Path, root: &Path) -> bool {
    let Ok(built) = fs::metadata(object).and_then(|data| data.modified()) else { return false };
    let sources = root.join("agent-ebpf");
    let parts = [sources.join("src"), sources.join("Cargo.toml"), root.join("Cargo.lock")];
    parts.iter().all(|part| newest(part).is_some_and(|changed| changed <= built))
}

/// When the newest file was changed, in a folder and all below; `None` where something cannot be read.
fn newest(path: &Path) -> Option<SystemTime> {
    let data = fs::metadata(path).ok()?;
    if !data.is_dir() {
        return data.modified().ok();
    }
    let mut newest_yet = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(path).ok()? {
        newest_yet = newest_yet.max(newest(&entry.ok()?.path())?);
    }
    Some(newest_yet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_is_never_up_to_date() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        assert!(!is_newer(Path::new("/nowhere/warpgauge-ebpf"), root));
        assert!(newest(&root.join("agent-ebpf/src")).expect("readable") > SystemTime::UNIX_EPOCH);
    }
}
