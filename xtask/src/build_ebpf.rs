//! `build-ebpf`: compiles the kernel programs into `target/bpf/warpgauge-ebpf`, which the agent's build embeds.
//!
//! In: agent-ebpf, and what this finds or brings: the standard library's source, and a linker. Out: the object; those of
//! other architectures are made beside it, to be checked alike.
//! What can go wrong: something cannot be brought; the error names the command to run. A second run takes a second.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, Result};

use crate::bpf_linker;
use crate::bpf_object::{self, Size};
use crate::rust_src::{self, RustSrc};
use crate::rustc::{Rustc, cargo};
use crate::shell::run as run_command;

const NAME: &str = "warpgauge-ebpf";
const TARGET: &str = "bpfel-unknown-none";
/// The machines that the programs are made for: their registers and system calls differ.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// Brings what is missing, compiles, checks.
pub fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is not inside the workspace")?;
    let kept = root.join("target/bpf");
    let (object, stamp) = (kept.join(NAME), kept.join("built-by"));
    let rustc = Rustc::ask()?;
    let built_by = format!("{} for {}\n", rustc.key(), rustc.arch);
    fs::create_dir_all(&kept).with_context(|| format!("making {}", kept.display()))?;
    // one at a time, since what is unpacked and built lies under the same names; given back when this ends in any way
    let _turn = take_turn(&kept.join("lock"))?;
    let same_compiler = fs::read_to_string(&stamp).is_ok_and(|text| text == built_by);
    if same_compiler && is_of(&object, &stamp) && is_newer(&stamp, root) {
        eprintln!("build-ebpf: {} is up to date", object.display());
        return Ok(());
    }
    // what is changed from now on may or may not be in the object
    let began = SystemTime::now();
    let source = rust_src::find_or_bring(&rustc, &kept)?;
    let linker = bpf_linker::find_or_build(&rustc, &kept)?;
    let compile_for = |arch: &str| {
        let compiled = compile(root, &kept, arch, &source, &linker)?;
        let bytes = fs::read(&compiled).with_context(|| format!("reading {}", compiled.display()))?;
        let size = bpf_object::check(&bytes).with_context(|| format!("the object for {arch}"))?;
        anyhow::Ok((bytes, size))
    };
    // those that this machine does not need are looked at all the same, and kept for whoever wants to see them
    for arch in ARCHITECTURES.into_iter().filter(|arch| *arch != rustc.arch) {
        let other = kept.join(format!("{NAME}-{arch}"));
        let (bytes, _) = compile_for(arch)?;
        fs::write(&other, bytes).with_context(|| format!("writing {}", other.display()))?;
    }
    let (bytes, size) = compile_for(&rustc.arch)?;
    // written beside its place and moved: a build that runs at the same time embeds the old or the new, never half
    let partial = kept.join(format!("{NAME}.partial"));
    fs::write(&partial, &bytes).with_context(|| format!("writing {}", partial.display()))?;
    // The stamp is as old as what the object is made of, the object as new as can be: else cargo would not see that it
    // changed. Between these two lines the old object is older than the stamp, and so never taken for the new one.
    write_as_of(&stamp, &built_by, began).with_context(|| format!("writing {}", stamp.display()))?;
    fs::rename(&partial, &object).with_context(|| format!("writing {}", object.display()))?;
    let moved =
        File::options().write(true).open(&object).and_then(|file| file.set_modified(SystemTime::now()));
    moved.with_context(|| format!("writing {}", object.display()))?;
    let Size { instructions, stack } = size;
    let bytes = bytes.len();
    eprintln!(
        "build-ebpf: {} ({instructions} instructions, up to {stack} bytes of stack, {bytes} bytes)",
        object.display()
    );
    Ok(())
}

fn compile(root: &Path, kept: &Path, arch: &str, source: &RustSrc, linker: &Path) -> Result<PathBuf> {
    let objects = kept.join("build");
    let flags = [
        // line numbers in the verifier's log, and types for those who look at the maps
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", linker.display()),
    ];
    let mut command = Command::new(cargo());
    command
        .current_dir(root)
        .args(["rustc", "--quiet", "--release", "--package", NAME, "--bin", NAME, "--target", TARGET])
        .args(["-Z", "build-std=core", "--target-dir"])
        .arg(&objects)
        // The machine, for our own part and for aya-ebpf, which picks the layout of its registers by it. As a flag of all,
        // it would have `core` compiled once more for each.
        .args(["--", "--cfg", &format!("bpf_target_arch=\"{arch}\"")])
        .env("AYA_BPF_TARGET_ARCH", arch)
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

/// Waits until no other run is in the folder.
fn take_turn(lock: &Path) -> Result<File> {
    let file = File::create(lock).with_context(|| format!("making {}", lock.display()))?;
    if file.try_lock().is_err() {
        eprintln!("build-ebpf: waiting for another run");
        file.lock().with_context(|| format!("locking {}", lock.display()))?;
    }
    Ok(file)
}

/// Never there with another time.
fn write_as_of(path: &Path, text: &str, time: SystemTime) -> std::io::Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, text)?;
    File::options().write(true).open(&partial)?.set_modified(time)?;
    fs::rename(&partial, path)
}

/// The object was written by the build that left the stamp; an agent built without it leaves an empty one, as old as
/// can be.
fn is_of(object: &Path, stamp: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    modified(object).zip(modified(stamp)).is_some_and(|(object, stamp)| stamp <= object)
}

/// Newer than everything the object is made from.
fn is_newer(stamp: &Path, root: &Path) -> bool {
    let Ok(built) = fs::metadata(stamp).and_then(|data| data.modified()) else { return false };
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
    fn a_missing_stamp_is_never_up_to_date() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        assert!(!is_newer(Path::new("/nowhere/built-by"), root));
        assert!(newest(&root.join("agent-ebpf/src")).expect("readable") > SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn a_stamp_is_as_old_as_the_beginning_of_its_build() {
        let folder = std::env::temp_dir().join(format!("warpgauge-stamp-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (stamp, root) = (folder.join("built-by"), folder.join("root"));
        let time = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::create_dir_all(root.join("agent-ebpf/src")).expect("a folder");
        for part in ["agent-ebpf/src/main.rs", "agent-ebpf/Cargo.toml", "Cargo.lock"] {
            write_as_of(&root.join(part), "", time(1000)).expect("written");
        }
        write_as_of(&stamp, "by this\n", time(1000)).expect("written");
        assert_eq!(fs::read_to_string(&stamp).expect("readable"), "by this\n");
        assert!(is_newer(&stamp, &root));
        let object = folder.join("object");
        for (written, want) in [(0, false), (999, false), (1000, true), (1005, true)] {
            write_as_of(&object, "", time(written)).expect("written");
            assert_eq!(is_of(&object, &stamp), want, "{written}");
        }
        // changed while the build ran
        write_as_of(&root.join("agent-ebpf/src/main.rs"), "", time(1001)).expect("written");
        assert!(!is_newer(&stamp, &root));
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn only_one_run_at_a_time_has_its_turn() {
        let lock = std::env::temp_dir().join(format!("warpgauge-turn-{}", std::process::id()));
        let turn = take_turn(&lock).expect("free");
        assert!(File::create(&lock).expect("the same file").try_lock().is_err(), "taken");
        drop(turn);
        assert!(File::create(&lock).expect("the same file").try_lock().is_ok(), "given back");
        fs::remove_file(&lock).expect("removed");
    }
}
