//! The worker: the child process that holds the vendors' libraries, so that they cannot take the agent down.
//!
//! In: orders of the agent, on the socket that is its standard input. Out: reports on the same socket.
//! What can go wrong: all that foreign code can do. A call may hang: the heartbeat goes on and names it. A crash, a
//! panic, the agent's end: this process is gone, and with it every handle of the driver.
//!
//! Reading order: [`run`] → `io` (the loop) → [`link`] (what the threads share) → [`dcgm`] and [`nvml`] (the threads).

pub mod asks;
mod calls;
pub mod cpu_list;
pub mod dcgm;
mod io;
pub mod keys;
pub mod link;
mod lock;
pub mod moment;
pub mod numa;
pub mod nvml;
pub mod pci_text;
mod rights;
mod threads;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpid, getppid, kill_process, set_parent_process_death_signal, setrlimit,
};

use crate::wire::{PROTOCOL, report};
pub use link::{Ask, Asks, Calling, Link};
use lock::Lock;
use threads::Collectors;

/// What the handlers that libraries leave for the end of a process get.
const EXIT_HANDLERS: Duration = Duration::from_secs(1);

/// The arguments of `warpgauge worker`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// Lock file that is held as long as this worker may hold the driver
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// The agent's pid: another parent means that the agent is gone
    #[arg(long, value_name = "PID")]
    parent: Option<u32>,
}

/// Runs the worker until the agent says so, or is gone.
pub fn run(arguments: &Arguments) -> ExitCode {
    die_with(arguments.parent);
    die_by_panics();
    let (rights_given_up, rights_why) = rights::give_up().to_wire();
    let lock = arguments.lock.as_deref().map(|path| (path, lock::take(path)));
    let abandoned = match &lock {
        Some((_, Ok(Lock::Theirs(pid)))) => Some(*pid),
        Some((path, Err(error))) => {
            say(&format!(
                "{}: {error}; without this lock a worker that was given up is not noticed after a restart of the agent",
                path.display()
            ));
            None
        }
        Some((_, Ok(Lock::Ours(_)))) | None => None,
    };
    let hello = report::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        abandoned,
        rights_given_up,
        rights_why,
    };
    let ended = socket().and_then(|socket| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(io::serve(socket, Collectors::of_vendors(), hello))
    });
    match ended {
        Ok(io::Ended::InOrder) => {}
        // At once: a library that hangs would hang in its exit handlers, too.
        Ok(io::Ended::AgentGone | io::Ended::Hung) => kill_self(),
        Ok(io::Ended::Fault(what)) => {
            say(&what);
            kill_self();
        }
        Err(error) => {
            say(&format!("cannot talk to the agent: {error}; this command is started by the agent only"));
            return ExitCode::FAILURE;
        }
    }
    // Destructors of the libraries run from here on.
    let watchdog = std::thread::Builder::new().name("warpgauge-end".to_owned()).spawn(|| {
        let end = std::time::Instant::now() + EXIT_HANDLERS;
        while let Some(left) = end.checked_duration_since(std::time::Instant::now()) {
            std::thread::park_timeout(left);
        }
        kill_self();
    });
    if watchdog.is_err() {
        kill_self();
    }
    ExitCode::SUCCESS
}

/// The socket that is standard input.
fn socket() -> std::io::Result<UnixStream> {
    let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let socket = UnixStream::from(stdin);
    socket.local_addr()?; // anything but a socket is refused here
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whatever happens to the agent, nothing of ours keeps the driver. The agent may be gone already.
fn die_with(parent: Option<u32>) {
    if let Err(errno) = set_parent_process_death_signal(Some(Signal::KILL)) {
        say(&format!("the end of the agent will only be noticed by its socket: {errno}"));
    }
    let parent = parent.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if parent.is_some() && getppid() != parent {
        kill_self();
    }
}

/// A panic in any thread ends the process, without a core file: it would hold mappings of the devices.
fn die_by_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        // Where it is refused a core file is written: no harm beyond its size.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        std::process::abort();
    }));
}

/// SIGKILL runs no handlers and cannot be held up but by the kernel.
fn kill_self() {
    // Cannot be refused; were it, the agent's own SIGKILL comes.
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Standard error is the agent's.
fn say(what: &str) {
    // Nothing to do when it is gone.
    let _ = writeln!(std::io::stderr(), "warpgauge worker: {what}");
}

#[cfg(test)]
mod io_tests;
