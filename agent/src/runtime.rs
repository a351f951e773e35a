//! The runtime, with all of its threads from the first moment on.
//!
//! In: how many threads. Out: a runtime that never makes another one: a node or a container that runs out of processes
//! later cannot hurt it, since work that blocks (and look-ups of names, inside libraries) waits for a thread that is
//! there. What can go wrong: there is no room for the threads at the start; then the start ends with a message.

use std::io::{self, Write};
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::process::exit;
use std::sync::mpsc::{channel, sync_channel};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

/// What the threads get to come up; a busy node needs milliseconds.
const UP_WITHIN: Duration = Duration::from_secs(5);
/// A thread that has nothing to do stays: ten years.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// No runtime.
#[derive(Debug, thiserror::Error)]
pub enum NoRuntime {
    /// The system refused.
    #[error("cannot start the runtime: {0}")]
    Refused(#[from] io::Error),
    /// Some threads did not come up.
    #[error(
        "cannot start the runtime: no room for {0} threads; raise the limit of processes (pids limit, ulimit -u)"
    )]
    Threads(usize),
}

/// Builds a runtime with `blocking` threads for work that blocks, all of them started. While a [`Starting`] is held, a
/// thread that the system refuses ends the process with a message; else tokio panics.
///
/// # Errors
/// [`NoRuntime`].
pub fn build(builder: &mut Builder, blocking: usize) -> Result<Runtime, NoRuntime> {
    let runtime = builder.max_blocking_threads(blocking).thread_keep_alive(FOR_EVER).enable_all().build()?;
    let (started, starts) = sync_channel(blocking);
    let end = Instant::now() + UP_WITHIN;
    let mut held = Vec::with_capacity(blocking);
    for _ in 0..blocking {
        let (hold, until) = channel::<()>();
        held.push(hold);
        let started = started.clone();
        runtime.spawn_blocking(move || {
            // The other end is gone only where the start has failed.
            let _ = started.send(());
            let _ = until.recv(); // until all are there, so that each is a thread of its own
        });
    }
    let up =
        (0..blocking).all(|_| starts.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok());
    drop(held);
    if !up {
        runtime.shutdown_background();
        return Err(NoRuntime::Threads(blocking));
    }
    Ok(runtime)
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync + 'static>;

/// The agent is starting. Libraries panic where the system refuses them a thread, and then wait for ever for others of
/// theirs; while this is held, a panic in any thread is a message and the end instead.
pub struct Starting {
    before: Hook,
}

impl Starting {
    /// From now on.
    pub fn begin() -> Self {
        let before = take_hook();
        set_hook(Box::new(|panic| {
            let what = panic.payload_as_str().unwrap_or("a fault of the agent");
            // Nothing to do when nobody reads it.
            let _ = writeln!(
                io::stderr(),
                "warpgauge: cannot start: {what}; if the limit of processes is reached (pids limit, ulimit -u), raise it"
            );
            exit(1);
        }));
        Self { before }
    }

    /// It has started: a panic is again an affair of the part it happens in.
    pub fn done(self) {
        set_hook(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads of this name, which the kernel cuts at 15 bytes.
    fn threads(name: &str) -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|comm| comm.trim_end() == name).count()
    }

    #[test]
    fn all_threads_are_there_at_once_and_stay() {
        let name = "wg-test-threads";
        let runtime = build(Builder::new_multi_thread().worker_threads(2).thread_name(name), 3).unwrap();
        assert_eq!(threads(name), 5);
        let tasks: Vec<_> = (0..9).map(|n| runtime.spawn_blocking(move || n)).collect();
        let sum = runtime.block_on(async {
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!((sum, threads(name)), (36, 5));
    }
}
