//! Developer commands of warpgauge.
//!
//! In: a subcommand. Out: what it says.
//! What can go wrong: whatever the command reports; the exit status is 1 then.

mod bpf_linker;
mod bpf_object;
mod build_ebpf;
mod debian;
mod rust_src;
mod rustc;
mod subprocess;

use clap::Parser;

#[derive(Parser)]
enum Xtask {
    /// Compiles the kernel programs into target/bpf/warpgauge-ebpf.
    BuildEbpf,
}

fn main() -> anyhow::Result<()> {
    match Xtask::parse() {
        Xtask::BuildEbpf => build_ebpf::run(),
    }
}
