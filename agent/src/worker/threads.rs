//! The collecting threads: one for each vendor's library, asked by messages, never waited for.
//!
//! In: the configuration, and what the agent asks. Out: the threads' reports, by their [`Link`].
//! What can go wrong: a thread hangs in a call and takes no message; its queue is bounded, and the agent is told. A
//! library hangs while it is loaded: the system's loader is locked then, and with it the start of threads and the
//! first use of a thread's own memory. So the calls are noted before the threads exist, and no library is loaded
//! before all threads have begun.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use tokio::sync::Notify;

use super::asks::{Ask, Asker, Asks, asks};
use super::link::{Calling, Link};
use super::{dcgm, nvml};
use crate::model::{MonoNs, Origin};
use crate::wire::order::Configure;
use crate::wire::report::{Answer, Kind};

/// The system's function that loads a library, as it is named in reports.
pub(super) const LOAD: &str = "dlopen";

/// Collects until it is asked to end. The call that loads the library was begun already.
pub(super) type Collector = Box<dyn FnOnce(&Configure, &Link, &Asks, Calling) + Send>;

thread_local! {
    /// Something that is dropped with its thread: the first such thing takes the loader's lock.
    static SETTLED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// From here on this thread needs nothing of the loader.
fn settle() {
    SETTLED.with_borrow_mut(|settled| settled.push(1));
}

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
    asks: Asker,
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
        settle();
        let configure = Arc::new(configure.clone());
        let begun = Arc::new(Barrier::new(wanted.iter().filter(|(wanted, ..)| *wanted).count()));
        let start = |(_, origin, collector): (bool, Origin, Collector)| {
            let (tx, asks) = asks();
            let (configure, link, returned) = (Arc::clone(&configure), link.clone(), Arc::clone(returned));
            let (begun, loading) = (Arc::clone(&begun), link.begin(origin, LOAD, ""));
            let body = move || {
                settle();
                // Where a thread cannot be started the others wait here until the process ends, which is at once.
                begun.wait();
                collector(&configure, &link, &asks, loading);
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
    /// After `until` (0: never) nobody waits for the answer, and it is withdrawn.
    pub(super) fn ask(&self, origin: Origin, ask: Ask, until_ns: u64, link: &Link) {
        let until = (until_ns > 0).then_some(MonoNs(until_ns));
        let thread = self.running.iter().find(|thread| thread.origin == origin);
        let refusal = match thread.map(|thread| thread.asks.ask(ask, until)) {
            Some(true) => return,
            Some(false) => format!("{} is busy with a call that has not come back", origin.name()),
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
            let _ = thread.asks.ask(Ask::End, None);
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
