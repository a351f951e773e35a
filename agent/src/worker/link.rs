//! The link: what the collecting threads of the worker share with the one that talks to the agent.
//!
//! In: reports, and the begin and end of calls. Out: a bounded queue and a table for the io thread.
//! What can go wrong: the agent does not read. Then values find no room first, and everything else later; both are
//! counted and told in the next heartbeat. Nothing here ever waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

pub use super::asks::{Ask, Asks};
pub use super::calls::Calling;
use super::calls::Calls;
use crate::host::mono_now;
use crate::model::Origin;
use crate::wire::report::{self, Kind};

/// Reports that wait for the agent. A batch of values has about 3 KiB: at most 12 MiB.
const QUEUE_MAX: usize = 4_096;
/// Values are refused from here on: what is left is for states, devices and answers.
const VALUES_MAX: usize = 3_072;

/// Cheap to clone; clones share.
#[derive(Clone, Debug)]
pub struct Link {
    way: Way,
    calls: Arc<Calls>,
}

#[derive(Clone, Debug)]
enum Way {
    Queue(Arc<Queue>),
    #[cfg(test)]
    Test(std::sync::mpsc::Sender<Kind>),
}

/// Reports on their way to the io thread.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<VecDeque<Kind>>,
    woken: Notify,
    dropped_values: AtomicU64,
    dropped_others: AtomicU64,
    dcgm_up: AtomicBool,
}

impl Link {
    /// A link, and the end of its queue.
    pub(super) fn new() -> (Self, Arc<Queue>) {
        let queue = Arc::new(Queue::default());
        (Self { way: Way::Queue(Arc::clone(&queue)), calls: Arc::default() }, queue)
    }

    /// A link whose reports come out of a channel.
    #[cfg(test)]
    pub fn for_tests() -> (Self, std::sync::mpsc::Receiver<Kind>) {
        let (tx, rx) = std::sync::mpsc::channel();
        (Self { way: Way::Test(tx), calls: Arc::default() }, rx)
    }

    /// Sends without waiting: what finds no room is dropped and counted, values first.
    pub fn send(&self, kind: Kind) {
        match &self.way {
            Way::Queue(queue) => queue.push(kind),
            #[cfg(test)]
            Way::Test(tx) => drop(tx.send(kind)), // the test may have seen enough
        }
    }

    /// Counts values that were lost before they became reports.
    pub fn lose(&self, values: u64) {
        match &self.way {
            Way::Queue(queue) => drop(queue.dropped_values.fetch_add(values, Ordering::Relaxed)),
            #[cfg(test)]
            Way::Test(_) => {}
        }
    }

    /// Notes a call in flight; `hw_id` is empty where it is about all devices.
    pub fn begin(&self, origin: Origin, call: &'static str, hw_id: &str) -> Calling {
        self.calls.begin(origin, call, hw_id, || mono_now().0)
    }

    /// What the calls do, without what the queue knows.
    pub(super) fn calls(&self) -> report::Heartbeat {
        self.calls.heartbeat()
    }
}

impl Queue {
    fn push(&self, kind: Kind) {
        if let Kind::State(state) = &kind
            && state.name == Origin::Dcgm.name()
        {
            self.dcgm_up.store(state.up, Ordering::Relaxed);
        }
        let values = matches!(kind, Kind::Samples(_) | Kind::Processes(_));
        let mut waiting = self.lock();
        if waiting.len() < if values { VALUES_MAX } else { QUEUE_MAX } {
            waiting.push_back(kind);
            drop(waiting);
            self.woken.notify_one();
        } else {
            drop(waiting);
            let dropped = if values { &self.dropped_values } else { &self.dropped_others };
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The oldest report.
    pub(super) fn pop(&self) -> Option<Kind> {
        self.lock().pop_front()
    }

    /// Waits until a report was put in since the last wait.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }

    /// A report that cannot be sent at all.
    pub(super) fn refuse(&self) {
        self.dropped_others.fetch_add(1, Ordering::Relaxed);
    }

    /// Values and others that found no room since the worker began.
    pub(super) fn dropped(&self) -> (u64, u64) {
        (self.dropped_values.load(Ordering::Relaxed), self.dropped_others.load(Ordering::Relaxed))
    }

    /// Whether the DCGM thread said last that it is up.
    pub(super) fn is_dcgm_up(&self) -> bool {
        self.dcgm_up.load(Ordering::Relaxed)
    }

    /// Poisoned only by a panic, which ends the worker anyway.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Kind>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, up: bool) -> Kind {
        Kind::State(report::State { name: name.to_owned(), up, ..report::State::default() })
    }

    #[test]
    fn an_agent_that_does_not_read_costs_values_first_and_each_loss_counts() {
        let (link, queue) = Link::new();
        for _ in 0..VALUES_MAX + 7 {
            link.send(Kind::Samples(report::Samples::default()));
        }
        assert_eq!(queue.dropped(), (7, 0));
        for _ in 0..QUEUE_MAX - VALUES_MAX + 2 {
            link.send(state("nvml", true));
        }
        assert_eq!(queue.dropped(), (7, 2));
        assert!(matches!(queue.pop(), Some(Kind::Samples(_))), "the oldest comes out first");
        link.send(Kind::Samples(report::Samples::default()));
        assert_eq!(queue.dropped(), (8, 2), "the room is kept for states");
        link.send(state("nvml", false));
        assert_eq!(queue.dropped(), (8, 2));
    }

    #[test]
    fn the_link_knows_whether_dcgm_is_up() {
        let (link, queue) = Link::new();
        for (name, up, want) in
            [("nvml", true, false), ("dcgm", true, true), ("nvml", false, true), ("dcgm", false, false)]
        {
            link.send(state(name, up));
            assert_eq!(queue.is_dcgm_up(), want, "{name} {up}");
        }
    }
}
