//! How the collecting threads report.
//!
//! In: reports and the names of vendor calls in flight. Out: the io thread's queue. What can go wrong: the queue is
//! full; the report is dropped.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::model::sample::Origin;
use crate::wire::report;

/// What the collecting threads are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Pause profiling; the request's id.
    Pause(u64),
    /// Resume profiling.
    Resume(u64),
    /// Say which fields there are.
    Fields(u64),
    /// Let go and return.
    End,
}

/// Where a thread gets its requests.
pub type Asks = Receiver<Ask>;

/// The way out.
#[derive(Clone, Debug)]
pub struct Link {
    queue: SyncSender<report::Kind>,
}

impl Link {
    /// Queues a report; never blocks.
    pub fn send(&self, kind: report::Kind) {
        let _full = self.queue.try_send(kind);
    }

    /// Notes that a vendor call begins.
    pub fn begin(&self, origin: Origin, call: &'static str, hw_id: &str) -> Calling {
        let _noted = (origin, call, hw_id);
        Calling
    }

    /// A link whose reports come out of the other end.
    pub fn for_tests() -> (Self, Receiver<report::Kind>) {
        let (queue, out) = sync_channel(4_096);
        (Self { queue }, out)
    }
}

/// A call in flight.
#[derive(Debug)]
pub struct Calling;

impl Calling {
    /// The call came back.
    pub fn end(self, ok: bool) {
        let _ = ok;
    }
}
