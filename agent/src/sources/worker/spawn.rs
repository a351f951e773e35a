//! Starting workers, by a thread that lives as long as the source.
//!
//! In: what to start. Out: the process, the agent's end of its socket, and of the pipe that is its standard error.
//! A child is told when its parent *thread* ends (PR_SET_PDEATHSIG), and threads of the runtime come and go: so one
//! thread starts all workers and does nothing else. What can go wrong: the system has no room for a process.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use super::output;

/// The agent's own file, even if it was replaced on the disk meanwhile.
const OWN_FILE: &str = "/proc/self/exe";
/// What is passed on of the agent's environment: what the loader and the vendors' libraries look at.
const KEPT: &[&str] = &["LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "RUST_BACKTRACE"];
const KEPT_PREFIXES: &[&str] = &["NVIDIA_", "DCGM_", "WARPGAUGE_", "__NVML_"];

/// What to start.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file; this agent's own, even if it was replaced on the disk meanwhile.
    pub file: PathBuf,
    /// The lock that says who has the driver.
    pub lock: Option<PathBuf>,
}

impl Program {
    /// This very program, with the lock file in `lock_dir`.
    pub fn own(lock_dir: Option<&Path>) -> Self {
        Self { file: OWN_FILE.into(), lock: lock_dir.map(|dir| dir.join("worker.lock")) }
    }
}

/// A worker process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: Option<OwnedFd>,
}

type Answer = io::Result<(Process, UnixStream)>;

/// The thread that starts workers.
#[derive(Debug)]
pub struct Spawner {
    tx: std::sync::mpsc::Sender<(Program, oneshot::Sender<Answer>)>,
}

impl Spawner {
    /// Starts the thread; it ends with the value, and every worker with it.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn new() -> io::Result<Self> {
        let (tx, rx) = std::sync::mpsc::channel::<(Program, oneshot::Sender<Answer>)>();
        let body = move || {
            for (program, reply) in rx {
                if let Err(Ok((mut process, _))) = reply.send(start(&program)) {
                    process.kill(); // nobody waits for it any more
                }
            }
        };
        std::thread::Builder::new().name("warpgauge-spawn".to_owned()).spawn(body)?;
        Ok(Self { tx })
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// What the system says.
    pub async fn start(&self, program: Program) -> Answer {
        let gone = || io::Error::other("the thread that starts workers is gone");
        let (tx, rx) = oneshot::channel();
        self.tx.send((program, tx)).map_err(|_| gone())?;
        rx.await.map_err(|_| gone())?
    }
}

fn start(program: &Program) -> Answer {
    let (process, socket) = spawn(program)?;
    socket.set_nonblocking(true)?;
    Ok((process, socket))
}

/// Starts a worker that ends with the calling *thread*; its socket blocks. What it writes goes to standard error.
///
/// # Errors
/// What the system says.
pub fn start_here(program: &Program) -> Answer {
    let (mut process, socket) = spawn(program)?;
    process.output().into_iter().for_each(output::show);
    Ok((process, socket))
}

fn spawn(program: &Program) -> Answer {
    let (ours, theirs) = UnixStream::pair()?;
    let (output, written) = output::ends()?;
    let mut command = Command::new(&program.file);
    command.arg0("warpgauge").arg("worker").arg("--parent").arg(std::process::id().to_string());
    if let Some(lock) = &program.lock {
        command.arg("--lock").arg(lock);
    }
    command.env_clear().envs(kept(std::env::vars_os()));
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(written);
    Ok((Process { child: command.spawn()?, output: Some(output) }, ours))
}

fn kept(all: impl Iterator<Item = (OsString, OsString)>) -> impl Iterator<Item = (OsString, OsString)> {
    all.filter(|(name, _)| {
        let name = name.to_string_lossy();
        KEPT.contains(&&*name) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    })
}

impl Process {
    /// Any process, for a test that plays the worker itself.
    #[cfg(test)]
    pub(super) fn of(child: Child) -> Self {
        Self { child, output: None }
    }

    /// The pipe with what it writes to standard error; once.
    pub(super) fn output(&mut self) -> Option<OwnedFd> {
        self.output.take()
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM: it lets go in order.
    pub fn terminate(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It was not waited for, so the pid is still its own; that it has ended is seen by the wait.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        // It has ended already: seen by the wait.
        let _ = self.child.kill();
    }

    /// How it ended, once it has; in words.
    pub fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit status {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => status.to_string(),
            }),
            Err(error) => Some(format!("unknown: {error}")), // no such child: it is gone
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_libraries_look_at_is_passed_on() {
        let all =
            ["LD_LIBRARY_PATH", "OTEL_EXPORTER_OTLP_HEADERS", "NVIDIA_VISIBLE_DEVICES", "DCGM_HOME_DIR"];
        let all = all.into_iter().chain(["AWS_SECRET_ACCESS_KEY", "WARPGAUGE_SIM_SCENARIO", "LD_PRELOAD"]);
        let names: Vec<_> = kept(all.map(|name| (name.into(), "x".into()))).map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES", "DCGM_HOME_DIR", "WARPGAUGE_SIM_SCENARIO"]
        );
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_an_error() {
        let spawner = Spawner::new().unwrap();
        let program = Program { file: "/nowhere/warpgauge".into(), lock: None };
        assert_eq!(spawner.start(program).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_seen() {
        let spawner = Spawner::new().unwrap();
        let program = Program { file: "/bin/false".into(), lock: None };
        let (mut process, socket) = spawner.start(program).await.unwrap();
        let socket = tokio::net::UnixStream::from_std(socket).unwrap();
        socket.readable().await.unwrap(); // its end of the socket is closed
        let ended = loop {
            match process.ended() {
                Some(ended) => break ended,
                None => tokio::task::yield_now().await,
            }
        };
        assert_eq!(ended, "exit status 1");
    }
}
