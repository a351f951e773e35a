//! Process 1 of a test's virtual machine: makes a small system, loads the driver's double, runs the tests, turns it off.
//!
//! In: `/warpgauge/arguments` and `/warpgauge/environment` (a line each), `/modules/*.ko`. Out: lines on the second serial
//! port, where the kernel never writes, each with what it is in front (see [`lines`]), and QEMU's exit status: 1 when
//! all tests passed, 3 when not. What can go wrong: a step fails; it is said, and counts as failed. If this program
//! panics, so does the kernel, and QEMU ends with 0.
//! Linked statically, so that it runs whatever was packed.

mod devices;
mod lines;
mod mounts;
mod power;
mod tests;

use std::io;
use std::sync::Arc;

use lines::{Kind, Lines};

fn main() {
    let mounted = mounts::mount_all();
    let lines = match Lines::open("/dev/ttyS1") {
        Ok(lines) => Arc::new(lines),
        // there is nowhere to say it but the console
        Err(e) => return power::off(&format!("/dev/ttyS1: {e}"), None, false),
    };
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    lines.write(Kind::Init, &format!("up {release}"));
    let passed = match mounted.and_then(|()| prepare()).and_then(|()| tests::run(&lines)) {
        Ok(passed) => passed,
        Err(e) => {
            lines.write(Kind::Init, &format!("failed: {e}"));
            false
        }
    };
    lines.write(Kind::Init, if passed { "end passed" } else { "end failed" });
    power::off("the tests are over", Some(&lines), passed);
}

fn prepare() -> io::Result<()> {
    rustix::system::sethostname(b"vm")?;
    devices::raise_loopback()?;
    devices::load_modules("/modules")?;
    devices::make_nodes()
}

/// An error that says what it was about.
fn about(what: &str, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what}: {error}"))
}
