//! The kernel programs, as one object: `cargo xtask build-ebpf` compiles this for the `bpf` target.
//!
//! In: syscall tracepoints. Out: the maps and events of the library beside it.
//! On the host this is an empty program, so that plain `cargo build` needs no BPF toolchain.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(
    target_arch = "bpf",
    feature(asm_experimental_arch),
    expect(unstable_features, reason = "the atomic add of BPF has no other way in")
)]

#[cfg(target_arch = "bpf")]
mod kernel;

#[cfg(not(target_arch = "bpf"))]
fn main() {}
