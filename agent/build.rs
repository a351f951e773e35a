//! Embeds the kernel object, if `cargo xtask build-ebpf` has made one that is newer than its sources.
//!
//! In: `target/bpf/warpgauge-ebpf`. Out: a file of that name in `OUT_DIR`, empty where there is no fresh object; the
//! agent then says that it was built without probes. A release build without it is an error, since it would ship so.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs, io};

fn main() -> Result<(), String> {
    let agent = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = agent.parent().ok_or("the agent's folder is not inside the workspace")?;
    let sources = root.join("agent-ebpf");
    let object = root.join("target/bpf/warpgauge-ebpf");
    // a path that does not exist yet counts as changed once it does
    for watched in [sources.join("src"), sources.join("Cargo.toml"), object.clone()] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let bytes = match freshness(&object, &sources) {
        Ok(Freshness::Fresh) => fs::read(&object).map_err(|error| format!("{}: {error}", object.display()))?,
        Ok(Freshness::Stale) => absent("is older than its sources")?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => absent("was not built")?,
        Err(error) => return Err(format!("{}: {error}", object.display())),
    };
    let embedded = Path::new(&variable("OUT_DIR")?).join("warpgauge-ebpf");
    fs::write(&embedded, bytes).map_err(|error| format!("{}: {error}", embedded.display()))
}

enum Freshness {
    Fresh,
    Stale,
}

fn absent(why: &str) -> Result<Vec<u8>, String> {
    let remedy = "run `cargo xtask build-ebpf`, then build again";
    if variable("PROFILE")? == "release" {
        return Err(format!("the kernel object {why}: {remedy}"));
    }
    println!("cargo::warning=built without probes, the kernel object {why}: {remedy}");
    Ok(Vec::new())
}

fn freshness(object: &Path, sources: &Path) -> io::Result<Freshness> {
    let built = fs::metadata(object)?.modified()?;
    let changed = newest(&sources.join("src"))?.max(fs::metadata(sources.join("Cargo.toml"))?.modified()?);
    Ok(if built >= changed { Freshness::Fresh } else { Freshness::Stale })
}

fn newest(folder: &Path) -> io::Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let time = if entry.file_type()?.is_dir() { newest_in(&entry)? } else { entry.metadata()?.modified()? };
        newest = newest.max(time);
    }
    Ok(newest)
}

fn newest_in(entry: &fs::DirEntry) -> io::Result<SystemTime> {
    newest(&entry.path())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
