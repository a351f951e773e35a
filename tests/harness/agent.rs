//! The agent as a running process.
//!
//! In: arguments and environment. Out: a process whose log is kept, ended when dropped.
//! What can go wrong: it ends by itself; the tests look at its log and its status.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::deadline::wait_for;
use super::programs;

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    log: PathBuf,
    output: PathBuf,
}

/// How an agent is to be started.
#[derive(Debug)]
pub struct Setup {
    command: Command,
    log: PathBuf,
    output: PathBuf,
}

impl Setup {
    /// An agent with its state in `dir`, no exporter but the console, and nothing inherited from the environment.
    pub fn new(dir: &Path) -> Self {
        Self::wrapped(dir, &[])
    }

    /// The same, started by another program (such as `setpriv …`) that ends by executing it.
    pub fn wrapped(dir: &Path, wrapper: &[&str]) -> Self {
        Self::wrapped_program(dir, wrapper, &programs::agent())
    }

    /// The same, with a copy of the agent.
    pub fn wrapped_program(dir: &Path, wrapper: &[&str], agent: &Path) -> Self {
        let command = match wrapper {
            [] => Command::new(agent),
            [program, args @ ..] => {
                let mut command = Command::new(program);
                command.args(args).arg(agent);
                command
            }
        };
        let mut setup = Self::of(dir, command);
        let inherited = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            name.starts_with("OTEL_") || name.starts_with("WARPGAUGE_")
        });
        for (name, _) in inherited {
            setup.command.env_remove(name);
        }
        setup.command.arg("run").env("WARPGAUGE_STATE_DIR", dir.join("state"));
        setup.command.env("WARPGAUGE_RUN_DIR", dir.join("run"));
        setup
    }

    /// A command that becomes an agent, just as it is; its log goes to `dir`.
    pub fn of(dir: &Path, command: Command) -> Self {
        Self { command, log: dir.join("agent.log"), output: dir.join("agent.out") }
    }

    /// More arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    /// An environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Exports to a collector at `address`, metrics every 200 ms; an emulated guest has time for one a second.
    #[must_use]
    pub fn to(self, address: &str) -> Self {
        let in_vm = std::env::var_os("WARPGAUGE_VM").is_some();
        let (interval, timeout) = if in_vm { ("1000", "10000") } else { ("200", "2000") };
        self.env("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}"))
            .env("OTEL_METRIC_EXPORT_INTERVAL", interval)
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", timeout)
    }

    /// Starts it; a second start appends to the same log.
    ///
    /// # Panics
    /// When it cannot be started.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn start(&mut self) -> Agent {
        let open = |path: &Path| File::options().create(true).append(true).open(path).expect("a log file");
        self.command.stdin(Stdio::null()).stdout(open(&self.output)).stderr(open(&self.log));
        let child = self.command.spawn().expect("the agent starts");
        Agent { child, log: self.log.clone(), output: self.output.clone() }
    }
}

impl Agent {
    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What it printed so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its exit status, once it has ended by itself.
    pub fn status(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten()?.code()
    }

    /// SIGTERM, and the wait for its end; the agent promises 5 s for its flush.
    ///
    /// # Panics
    /// When it does not end.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        wait_for("the agent to end after SIGTERM", 10, || self.child.try_wait().ok().flatten())
    }

    /// SIGKILL: no last word.
    ///
    /// # Panics
    /// When it does not end.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        wait_for("the agent to end after SIGKILL", 10, || self.child.try_wait().ok().flatten());
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal); // it may have ended by itself, which the wait will see
        }
    }
}

impl Drop for Agent {
    #[expect(clippy::print_stderr, reason = "a failing test shows what its agent said")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the agent's log:\n{}", self.log());
        }
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}
