//! One virtual machine, from its start to its end.
//!
//! In: a kernel, a file system, what takes the guest's lines. Out: how it ended. The first serial port is the kernel's
//! console, kept in a file; the second one is for lines of `tests/vm-init`, where the kernel never writes.
//! What can go wrong: the guest does not start (rarely, under emulation), hangs, or panics; each is told apart.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::results::Results;
use super::tools::Tools;

/// How the guest's processor is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Accel {
    /// Emulated: works everywhere.
    Tcg,
    /// The host's own: faster, where /dev/kvm does what it says.
    Kvm,
}

/// A machine to start.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) accel: Accel,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// The console's file.
    pub(crate) console: &'a Path,
}

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The guest says that all is well.
    Passed,
    /// The guest says that it is not.
    Failed,
    /// The guest was not up in time.
    NotUp,
    /// Time is up.
    TimedOut,
    /// The kernel panicked or turned the machine off.
    Gone,
    /// Another status of QEMU: its own trouble.
    Qemu(Option<i32>),
}

/// Until the guest's first line. It takes 4 s on two processors that have nothing else to do, and was seen to take more
/// than 30 s where ten processes wanted them.
const UNTIL_UP: Duration = Duration::from_secs(60);
/// For all of it: far more than it takes, since a busy machine makes it several times slower.
const UNTIL_END: Duration = Duration::from_secs(1800);

const MEMORY_MIB: &str = "1536";
/// `isa-debug-exit`: a byte written to this port ends QEMU with (byte << 1) | 1.
const EXIT_DEVICE: &str = "isa-debug-exit,iobase=0xf4,iosize=4";

/// Ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended by itself
        let _ = self.0.wait();
    }
}

/// Runs the machine to its end.
pub(crate) fn run(machine: &Machine<'_>, results: &mut Results, show: impl Fn(&str)) -> Result<End> {
    let mut child = Running(command(machine).spawn().context("cannot start qemu-system-x86_64")?);
    let lines = lines_of(&mut child.0)?;
    let began = Instant::now();
    loop {
        let limit = if results.is_up { UNTIL_END } else { UNTIL_UP };
        match lines.recv_timeout(limit.saturating_sub(began.elapsed())) {
            Ok(line) => {
                let was_up = results.is_up;
                if let Some(text) = results.take(&line) {
                    show(&text);
                }
                if results.is_up && !was_up {
                    show(&format!("it took {:.1} s to start", began.elapsed().as_secs_f64()));
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                return Ok(if results.is_up { End::TimedOut } else { End::NotUp });
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.0.wait().context("waiting for QEMU")?;
    Ok(match status.code() {
        Some(1) => End::Passed,
        Some(3) => End::Failed,
        Some(0) => End::Gone,
        code => End::Qemu(code),
    })
}

fn command(machine: &Machine<'_>) -> Command {
    let mut command = machine.tools.command("qemu-system-x86_64");
    for folder in machine.tools.firmware() {
        command.arg("-L").arg(folder);
    }
    let (accel, processor) = match machine.accel {
        Accel::Tcg => ("tcg,thread=multi", "max,la57=off"),
        Accel::Kvm => ("kvm", "host"),
    };
    command.args(["-accel", accel, "-cpu", processor, "-smp", "2", "-M", "q35", "-m", MEMORY_MIB]);
    command.args(["-nodefaults", "-no-reboot", "-display", "none", "-device", EXIT_DEVICE]);
    command.arg("-serial").arg(format!("file:{}", machine.console.display()));
    command.args(["-chardev", "stdio,id=lines,signal=off", "-serial", "chardev:lines"]);
    command.arg("-kernel").arg(machine.kernel).arg("-initrd").arg(machine.initramfs);
    command.args([
        "-append",
        "console=ttyS0 loglevel=5 panic=-1 mitigations=off tsc=reliable rcupdate.rcu_expedited=1 nowatchdog",
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn lines_of(child: &mut Child) -> Result<Receiver<String>> {
    let mut output = BufReader::new(child.stdout.take().context("no output of QEMU")?);
    let (lines, received) = channel();
    // ends with QEMU
    thread::spawn(move || {
        let mut line = Vec::new();
        while let Ok(1..) = output.read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            line.clear();
            if lines.send(text).is_err() {
                return;
            }
        }
    });
    Ok(received)
}
