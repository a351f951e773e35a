//! Tests in virtual machines: real kernels, a double of the driver, real kprobes. `cargo xtask vm-test` runs them.
//!
//! - Every test of this module runs in the guest of each kernel (5.10, 6.1, 6.12) and nowhere else: it begins with
//!   `needs!(Vm)`, `cargo xtask test` leaves the module out on the host, and a plain `cargo test` skips it.
//! - One at a time (`--test-threads=1`), in one boot: a test leaves the driver loaded, its rules cleared, nothing hanging.
//!   Those that are still running at the end are killed; a test that must not be disturbed by what others left waits for it.
//! - The guest is this same program as process after `tests/vm-init`, as root, 2 processors, 768 MiB. Beside it lie the
//!   agent, `ioctl-victim`, `otlp-receiver` and the simulated libdcgm and libnvidia-ml; `/bin/setpriv` where the host has it.
//!   No shell, no other programs, no fixtures. `/tmp`, `/run`, `/var` are in memory.
//! - Mounted: proc, sys, devtmpfs, tracefs (`/sys/kernel/tracing`), bpf, cgroup2 (`/sys/fs/cgroup`, unified, no v1).
//! - Loaded at the start: `nvidia`, `nvidia_uvm` of tests/nvidia-sim, with `/dev/nvidiactl`, `/dev/nvidia0` to `7`,
//!   `/dev/nvidia-uvm`, `/dev/nvidia-uvm-tools`. (In `/untraced`: the same with an RM that cannot be
//!   traced; in `/branch-535`: with older names.) [`driver::Module`](warpgauge_tests::harness::driver::Module) loads,
//!   unloads, gives orders.
//! - `WARPGAUGE_VM` is the kernel's name. [`Collector::start`](warpgauge_tests::harness::collector::Collector::start) is
//!   the small built-in receiver there.
//! - Time is coarse: 50 ms may be 44 or 90. Assert "at least 0.8 of it, and below it plus 250 ms", and compare what the
//!   agent says with the caller's own clock.
//! - Deadlines of [`wait_for`](warpgauge_tests::harness::deadline::wait_for) are 4 times as long there, and
//!   [`Setup::to`](warpgauge_tests::harness::agent::Setup::to) exports once a second; the whole guest has 1800 s.
//! - An agent with all its probes takes some 10 s of two processors to start there (the kernel verifies every program,
//!   emulated): tests that can share one agent should.
//! - `cargo xtask vm-test --kernel 6.1 --filter NAME --keep` is the short loop; the console is in target/vm/run/6.1.

mod agents;
mod branches;
mod caller;
mod calls;
mod hangs;
mod locks;
mod reload;
mod resource_manager;
mod rights;
mod rm_blocks;
mod schedule;
mod shed;
mod smoke;
mod uses;
mod variant;
mod watched;
