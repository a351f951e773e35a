//! `cargo xtask run`: the agent, with its kernel programs.
//!
//! In: arguments for the agent. Out: its exit status. What can go wrong: a build fails.

use crate::{build_ebpf, shell, workspace};

/// Compiles the agent and the programs around it. Always the same packages: a choice of them is a choice of features, and
/// other features compile all that they depend on anew.
pub(crate) fn build_programs() -> anyhow::Result<()> {
    let agent = workspace::program("warpgauge");
    if !agent.exists() {
        println!(
            "Compiling the agent and all it depends on; the first time this takes about ten minutes on two idle cores."
        );
    }
    let build = ["build", "--quiet", "--package", "warpgauge", "--package", "warpgauge-tests", "--bins"];
    shell::run(&mut shell::command("cargo", &build))
}

/// Builds what the agent needs and runs it.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    build_ebpf::run()?;
    build_programs()?;
    shell::mount_tracefs();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let program = workspace::program("warpgauge");
    let status = shell::command(&program.to_string_lossy(), &args).status()?;
    std::process::exit(status.code().unwrap_or(1))
}
