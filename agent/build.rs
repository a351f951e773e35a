//! Embeds the kernel object, if `cargo xtask build-ebpf` has made one whose build began after its sources changed.
//!
//! In: `target/bpf/warpgauge-ebpf`, and the time of `built-by` beside it. Out: a file of the object's name in `OUT_DIR`,
//! empty without a fresh object: the agent then says that it was built without probes. A release build fails instead.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs, io};

fn main() -> Result<(), String> {
    let agent = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = agent.parent().ok_or("the agent's folder is not inside the workspace")?;
    let sources = root.join("agent-ebpf");
    let object = root.join("target/bpf/warpgauge-ebpf");
    let bytes = match freshness(&object, &root.join("target/bpf/built-by"), &sources) {
        Ok(Freshness::Fresh) => {
            fs::read(&object).map_err(|error| format!("{}: {error}", object.display()))?
        }
        Ok(Freshness::Stale) => absent("is older than its sources")?,
        Ok(Freshness::Empty) => absent("was not built")?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // as it is only a help to cargo, it may fail
            let _ = place_holder(&object);
            absent("was not built")?
        }
        Err(error) => return Err(format!("{}: {error}", object.display())),
    };
    for watched in [sources.join("src"), sources.join("Cargo.toml"), object] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let embedded = Path::new(&variable("OUT_DIR")?).join("warpgauge-ebpf");
    fs::write(&embedded, bytes).map_err(|error| format!("{}: {error}", embedded.display()))
}

/// A path that does not exist counts as changed at every build, and the agent would be compiled anew each time. An
/// empty file as old as can be is not built, and unchanged until `build-ebpf` replaces it.
fn place_holder(object: &Path) -> io::Result<()> {
    if let Some(folder) = object.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::File::create_new(object)?.set_modified(SystemTime::UNIX_EPOCH)
}

enum Freshness {
    Fresh,
    Stale,
    Empty,
}

fn absent(why: &str) -> Result<Vec<u8>, String> {
    let remedy = "run `cargo xtask build-ebpf`, then build again";
    if variable("PROFILE")? == "release" {
        return Err(format!("the kernel object {why}: {remedy}"));
    }
    println!("cargo::warning=built without probes, the kernel object {why}: {remedy}");
    Ok(Vec::new())
}

fn freshness(object: &Path, stamp: &Path, sources: &Path) -> io::Result<Freshness> {
    let data = fs::metadata(object)?;
    if data.len() == 0 {
        return Ok(Freshness::Empty);
    }
    // A change during the build may not be in the object, though that is newer.
    let Ok(began) = fs::metadata(stamp).and_then(|data| data.modified()) else { return Ok(Freshness::Stale) };
    let changed = newest(&sources.join("src"))?.max(fs::metadata(sources.join("Cargo.toml"))?.modified()?);
    let fresh = changed <= began && began <= data.modified()?;
    Ok(if fresh { Freshness::Fresh } else { Freshness::Stale })
}

fn newest(folder: &Path) -> io::Result<SystemTime> {
    let mut latest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let time = if entry.file_type()?.is_dir() {
            newest(&entry.path())?
        } else {
            entry.metadata()?.modified()?
        };
        latest = latest.max(time);
    }
    Ok(latest)
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
