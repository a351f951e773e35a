//! `cargo xtask bench probes`: what the driver probes cost, on this kernel or in a virtual machine.
//!
//! In: the checkout; root on the host. Out: tables of `tests/bench/probes`. The host's kernel may have no kprobes; those of
//! virtual machines have all ways of attaching and the driver's double, but an emulated processor.
//! What can go wrong: no rights, no virtual machine; a call that was not counted is an error.

use crate::vm::{self, Kernel};
use crate::{build_ebpf, shell};

use super::{PACKAGES, program};

const PROGRAM: &str = "bench-probes";

/// What is asked.
#[derive(clap::Args)]
pub(crate) struct Asked {
    /// In a virtual machine with this kernel
    #[arg(long, value_name = "KERNEL")]
    vm: Option<Kernel>,
    /// How often everything is measured [default: 15, in a virtual machine 4]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Seconds of 100,000 calls each; 0: not at all [default: 20, in a virtual machine 0]
    #[arg(long)]
    seconds: Option<u64>,
}

/// Builds, measures, tells.
pub(crate) fn run(asked: &Asked) -> anyhow::Result<()> {
    build_ebpf::run()?;
    println!("Building with the release profile, which takes some minutes the first time.");
    let mut words = vec!["build", "--release", "--quiet", "--bin", PROGRAM];
    words.extend(PACKAGES);
    shell::run(&mut shell::command("cargo", &words))?;
    // an emulated processor is ten to fifteen times slower, and its rate says nothing
    let (rounds, seconds) = if asked.vm.is_some() { (4, 0) } else { (15, 20) };
    let arguments =
        [asked.rounds.unwrap_or(rounds), asked.seconds.unwrap_or(seconds)].map(|number| number.to_string());
    match asked.vm {
        Some(kernel) => vm::run_program(PROGRAM, program(PROGRAM).into(), &arguments, kernel),
        None => {
            shell::mount_tracefs();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            shell::run(&mut shell::command(&program(PROGRAM), &arguments))
        }
    }
}
