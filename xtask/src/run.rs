//! `cargo xtask run`: the agent, with its kernel programs.
//!
//! In: arguments for the agent. Out: its exit status. What can go wrong: a build fails.

use crate::{build_ebpf, shell, workspace};

/// Builds what the agent needs and runs it.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    build_ebpf::run()?;
    shell::run(&mut shell::command("cargo", &["build", "--quiet", "--package", "warpgauge"]))?;
    shell::mount_tracefs();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let program = workspace::program("warpgauge");
    let status = shell::command(&program.to_string_lossy(), &args).status()?;
    std::process::exit(status.code().unwrap_or(1))
}
