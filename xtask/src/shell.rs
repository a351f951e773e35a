//! Running other programs, with errors that name the program.
//!
//! In: a program and its arguments; always in the checkout's root. Out: success, or its output.
//! What can go wrong: the program is missing, or ends with another status than 0.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::workspace;

/// A command in the checkout's root.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(workspace::root());
    command
}

/// Runs to the end, output passed through.
pub(crate) fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let status = command(program, args).status().with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{program} {}: {status}", args.join(" "));
    }
    Ok(())
}

/// Runs to the end and gives its standard output.
pub(crate) fn output(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let out = command(program, args)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !out.status.success() {
        bail!("{program} {}: {}", args.join(" "), out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Where `program` is on PATH.
pub(crate) fn which(program: &str) -> Option<std::path::PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let uids = status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap_or_default();
        uids.split_ascii_whitespace().nth(1) == Some("0")
    })
}

/// Makes tracefs visible, as the kernel's own documentation has it; many machines have it mounted already.
pub(crate) fn mount_tracefs() -> anyhow::Result<()> {
    let place = "/sys/kernel/tracing";
    if Path::new(place).join("events").is_dir() || !is_root() {
        return Ok(());
    }
    run("mount", &["-t", "tracefs", "tracefs", place])
}
