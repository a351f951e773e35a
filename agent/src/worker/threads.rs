//! The collecting threads: one for each vendor's library, asked by messages, never waited for.
//!
//! In: the configuration, and what the agent asks. Out: the threads' reports, by their [`Link`].
//! What can go wrong: a thread hangs in a call and takes no message; its queue is bounded, and the agent is told.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::Notify;

use super::link::{Ask, Asks, Link};
use super::{dcgm, nvml};
use crate::model::Origin;
use crate::wire::order::Configure;
use crate::wire::report::{Answer, Kind};

/// What the agent may have asked of a thread that has not taken it yet.
const ASKS_MAX: usize = 64;

/// Collects until it is asked to end.
pub(super) type Collector = Box<dyn FnOnce(&Configure, &Link, &Asks) + Send>;

/// One for each library.
pub(super) struct Collectors {
    pub(super) dcgm: Collector,
    pub(super) nvml: Collector,
}

impl Collectors {
    /// The real ones.
    pub(super) fn of_vendors() -> Self {
        Self { dcgm: Box::new(dcgm::run), nvml: Box::new(nvml::run) }
    }
}

impl fmt::Debug for Collectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collectors")
    }
}

/// The threads at work.
#[derive(Debug, Default)]
pub(super) struct Threads {
    running: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    origin: Origin,
    asks: SyncSender<Ask>,
    handle: JoinHandle<()>,
}

impl Threads {
    /// Starts what the configuration wants; `returned` is woken when a thread has returned.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn start(
        configure: &Configure,
        collectors: Collectors,
        link: &Link,
        returned: &Arc<Notify>,
    ) -> std::io::Result<Self> {
        let wanted = [
            (configure.dcgm, Origin::Dcgm, collectors.dcgm),
            (configure.nvml, Origin::Nvml, collectors.nvml),
        ];
        let configure = Arc::new(configure.clone());
        let start = |(_, origin, collector): (bool, Origin, Collector)| {
            let (tx, asks) = sync_channel(ASKS_MAX);
            let (configure, link, returned) = (Arc::clone(&configure), link.clone(), Arc::clone(returned));
            let body = move || {
                collector(&configure, &link, &asks);
                returned.notify_one();
            };
            let name = format!("warpgauge-{}", origin.name());
            let handle = std::thread::Builder::new().name(name).spawn(body)?;
            Ok(Thread { origin, asks: tx, handle })
        };
        let running = wanted.into_iter().filter(|(wanted, ..)| *wanted).map(start);
        Ok(Self { running: running.collect::<std::io::Result<_>>()? })
    }

    /// Asks the thread of `origin`; where there is none, or it takes nothing, the answer says so.
    pub(super) fn ask(&self, origin: Origin, ask: Ask, link: &Link) {
        let thread = self.running.iter().find(|thread| thread.origin == origin);
        let refusal = match thread.map(|thread| thread.asks.try_send(ask)) {
            Some(Ok(())) => return,
            Some(Err(_)) => format!("{} is busy with a call that has not come back", origin.name()),
            None => format!("{} is switched off by the configuration", origin.name()),
        };
        if let Ask::Pause(id) | Ask::Resume(id) | Ask::Fields(id) = ask {
            link.send(Kind::Answer(Answer { id, done: false, text: refusal, more: false }));
        }
    }

    /// Asks all of them to let go and return.
    pub(super) fn end(&self) {
        for thread in &self.running {
            // One whose queue is full hangs; it has its time as well, and no more.
            let _ = thread.asks.try_send(Ask::End);
        }
    }

    /// Whether there is one for `origin`.
    pub(super) fn has(&self, origin: Origin) -> bool {
        self.running.iter().any(|thread| thread.origin == origin)
    }

    /// Whether all have returned.
    pub(super) fn all_returned(&self) -> bool {
        self.running.iter().all(|thread| thread.handle.is_finished())
    }

    /// One that has returned.
    pub(super) fn returned(&self) -> Option<Origin> {
        self.running.iter().find(|thread| thread.handle.is_finished()).map(|thread| thread.origin)
    }
}
