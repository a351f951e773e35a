//! What runs in the guest: the agent, the tests, the programs that they start, and the libraries of all.
//!
//! In: the checkout. Out: a file system for the guest. The agent is the same dynamic program that runs on hosts, with
//! this machine's C library. What can go wrong: a build fails; a library is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::initramfs::Initramfs;
use crate::{build_ebpf, shell, workspace};

/// Where they lie in the guest, all in one folder: the tests look beside themselves.
const FOLDER: &str = "warpgauge";
const TESTS: &str = "warpgauge-tests";
/// Beside the tests.
const PROGRAMS: [&str; 6] =
    ["warpgauge", "otlp-receiver", "ioctl-victim", "driver-caller", "libdcgm_sim.so", "libnvml_sim.so"];
/// Of this machine, where it has them: to start an agent with fewer rights.
const OF_THE_MACHINE: [&str; 1] = ["setpriv"];
/// Tests that are meant for the guest are in this module.
pub(crate) const MODULE: &str = "in_vm::";

/// Programs that were built.
#[derive(Debug)]
pub(crate) struct Programs {
    /// What is to run, and its name in the guest.
    main: PathBuf,
    name: &'static str,
    beside: Vec<PathBuf>,
    init: PathBuf,
}

impl Programs {
    /// Builds the tests and all that they start.
    pub(crate) fn build() -> Result<Self> {
        build_ebpf::run()?;
        // the whole workspace, so that crates have the same features as in every other build of it
        let arguments = ["build", "--quiet", "--workspace", "--bins", "--lib", "--test", TESTS];
        let mut cargo = shell::command("cargo", &arguments);
        cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
        let built = cargo.output().context("cannot start cargo")?;
        if !built.status.success() {
            bail!("cargo build ended with {}", built.status);
        }
        let main = test_program(&String::from_utf8_lossy(&built.stdout), TESTS)
            .context("cargo does not name the tests' program")?;
        let built = workspace::target().join("debug");
        let beside = PROGRAMS.map(|name| built.join(name)).to_vec();
        Ok(Self { main, name: TESTS, beside, init: build_init()? })
    }

    /// One program that was built already, and what makes a system for it.
    pub(crate) fn only(name: &'static str, main: PathBuf) -> Result<Self> {
        Ok(Self { main, name, beside: Vec::new(), init: build_init()? })
    }

    /// The tests for the guest whose names contain this.
    pub(crate) fn names(&self, filter: &str) -> Result<Vec<String>> {
        let listed = shell::output(Command::new(&self.main).args(["--list", "--format", "terse", MODULE]))?;
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names
            .filter(|name| name.starts_with(MODULE) && filter.split(',').any(|part| name.contains(part)))
            .map(str::to_owned)
            .collect())
    }

    /// All of them, stripped, with their libraries.
    pub(crate) fn pack(&self, into: &mut Initramfs, scratch: &Path) -> Result<()> {
        fs::create_dir_all(scratch).with_context(|| format!("making {}", scratch.display()))?;
        let mut programs = vec![(format!("{FOLDER}/{}", self.name), self.main.clone())];
        programs.extend(self.beside.iter().filter_map(|program| {
            let name = program.file_name()?.to_string_lossy();
            Some((format!("{FOLDER}/{name}"), program.clone()))
        }));
        let found =
            OF_THE_MACHINE.iter().filter_map(|name| Some((format!("bin/{name}"), shell::which(name)?)));
        programs.extend(found);
        let mut libraries = BTreeSet::new();
        for (place, program) in &programs {
            libraries.extend(libraries_of(program)?);
            into.add(place, stripped(program, scratch)?);
        }
        for library in libraries {
            into.add_file(&library, Path::new(&library))?;
        }
        into.add("init", stripped(&self.init, scratch)?);
        into.add("etc/hosts", b"127.0.0.1 localhost vm\n".to_vec());
        Ok(())
    }

    /// Tells what is to run there, and how.
    pub(crate) fn add_orders(
        &self,
        into: &mut Initramfs,
        arguments: &[String],
        environment: &[(&str, &str)],
    ) {
        let pairs: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        into.add(&format!("{FOLDER}/program"), self.name.as_bytes().to_vec());
        into.add(&format!("{FOLDER}/arguments"), arguments.join("\n").into_bytes());
        into.add(&format!("{FOLDER}/environment"), pairs.join("\n").into_bytes());
    }
}

/// Statically linked, as no other program of the workspace is: hence a target folder of its own.
fn build_init() -> Result<PathBuf> {
    let target = workspace::path("target/vm/init");
    let mut cargo =
        shell::command("cargo", &["rustc", "--quiet", "--package", "vm-init", "--bin", "vm-init"]);
    cargo.arg("--target-dir").arg(&target).args(["--", "-C", "target-feature=+crt-static"]);
    shell::run(&mut cargo)?;
    Ok(target.join("debug/vm-init"))
}

/// Cargo's messages, one JSON object a line → the program of a test target.
fn test_program(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    messages.into_iter().find_map(|message| {
        let target = &message["target"];
        let is_it = target["name"] == name && target["kind"][0] == "test";
        is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    })
}

fn stripped(program: &Path, scratch: &Path) -> Result<Vec<u8>> {
    let copy = scratch.join(program.file_name().unwrap_or_default());
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    // another kernel's guest has the same
    if modified(&copy) <= modified(program) {
        shell::output(Command::new("strip").arg("-o").arg(&copy).arg(program))?;
    }
    fs::read(&copy).with_context(|| format!("reading {}", copy.display()))
}

fn libraries_of(program: &Path) -> Result<Vec<String>> {
    let text = shell::output(Command::new("ldd").arg(program))?;
    libraries(&text).with_context(|| program.display().to_string())
}

/// Lines of ldd: `name => path (address)`, `path (address)`, and the kernel's own, which has no path.
fn libraries(text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        if path == "not found" {
            bail!("{line}");
        }
        if path.starts_with('/') {
            found.push(path.split(" (").next().unwrap_or(path).to_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_have_paths_and_the_kernels_own_is_none() {
        let text = "\tlinux-vdso.so.1 (0x00007f8443277000)\n\tlibm.so.6 => /lib/x/libm.so.6 (0x00007f8441300000)\n\t\
                    /lib64/ld-linux-x86-64.so.2 (0x00007f8443279000)\n";
        assert_eq!(libraries(text).expect("all found"), ["/lib/x/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(libraries("\tlibz.so.1 => not found\n").is_err());
        assert!(libraries("\tstatically linked\n").expect("none").is_empty());
    }

    #[test]
    fn the_tests_program_is_told_from_a_library_of_the_same_name() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"t\",\"kind\":[\"lib\"]},\"executable\":null}\n\
                        not json\n\
                        {\"target\":{\"name\":\"t\",\"kind\":[\"test\"]},\"executable\":\"/x/t-1\"}\n{\"reason\":\"build-finished\"}\n";
        assert_eq!(test_program(messages, "t"), Some(PathBuf::from("/x/t-1")));
        assert_eq!(test_program(messages, "u"), None);
    }
}
