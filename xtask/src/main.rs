//! `cargo xtask …`: everything a developer runs, one file per command.
//!
//! In: the command line. Out: an exit status. Each command does all of its own set-up; a second run starts in seconds.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line tool talks on standard output")]

mod bench;
mod bpf_linker;
mod bpf_object;
mod bpf_stack;
mod build_ebpf;
mod ci;
mod collector;
mod daemonset;
mod debian;
mod demo;
mod docs;
mod fuzz;
mod go;
mod image;
mod kubelet_judge;
mod manifest_check;
mod prometheus;
mod real_nvml;
mod run;
mod rust_src;
mod rustc;
mod shell;
mod skips;
mod test;
mod tidy;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Developer commands of warpgauge")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile the kernel programs to target/bpf/warpgauge-ebpf
    BuildEbpf,
    /// Build everything and run the agent; arguments go to it
    Run {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Show a hung driver call and an XID arriving, attributed, at an OpenTelemetry Collector; needs no GPU
    Demo,
    /// Run all tests
    Test,
    /// Run the tests that need a kernel of their own, in virtual machines
    VmTest(vm::Asked),
    /// Check what the compiler does not: layers, sizes, headers, names
    Tidy,
    /// Write docs/metrics.md from the catalogue
    Docs,
    /// Run the fuzz targets (or one of them) under libFuzzer; not part of `ci`
    Fuzz {
        target: Option<String>,
        /// Seconds for each target
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Measure what the agent costs; not part of `ci`
    Bench {
        #[command(subcommand)]
        what: bench::What,
    },
    /// Build the image's file system in target/image, or run the agent in it with only the DaemonSet's mounts
    Image {
        #[command(subcommand)]
        command: image::Command,
    },
    /// Check the Kubernetes manifests of deploy/
    Manifests,
    /// What CI runs, with seconds and budget of each phase
    Ci,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cargo xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::BuildEbpf => build_ebpf::run(),
        Command::Run { args } => run::run(&args),
        Command::Demo => demo::run(),
        Command::Test => test::run(),
        Command::VmTest(asked) => vm::run(&asked),
        Command::Tidy => tidy::run(),
        Command::Docs => docs::run(),
        Command::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
        Command::Bench { what } => bench::run(&what),
        Command::Image { command } => image::run(command),
        Command::Manifests => manifest_check::run(),
        Command::Ci => ci::run(),
    }
}
