//! Sources: each watches one thing on the node and offers [`Signal`]s.
//!
//! In: the kernel log, the driver probes, the worker process, sysfs, procfs, the kubelet, a job mapping
//! directory, a replay file. Out: signals into one bounded queue.
//! What can go wrong: a source may be unavailable here, or fail; both are values ([`Exit`]) for the supervisor, and
//! never touch another source. A full queue drops the probes' signals, counted; the kernel log waits instead.

pub mod host;
pub mod hpc_jobs;
pub mod kmsg;
pub mod kubelet;
pub mod open_nodes;
pub mod probes;
pub mod replay;
pub mod worker;

use std::error::Error;
use std::future::Future;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::model::Signal;
use crate::telemetry::{Counter, Telemetry};

/// One thing that is watched.
pub trait Source: Send {
    /// The name in logs and in `warpgauge.source.up{source}`.
    fn name(&self) -> &'static str;

    /// Whether it publishes itself whether it is up; otherwise a run that lasts is taken for that.
    fn tells_itself(&self) -> bool {
        false
    }

    /// Watches until told to stop, or until it cannot go on. Called again after [`Exit::Failed`] and, rarely, after
    /// [`Exit::Unavailable`]; everything it holds on to must survive that.
    fn run(&mut self, outlet: &Outlet, stop: &CancellationToken) -> impl Future<Output = Exit> + Send;
}

/// How a source ended.
#[derive(Debug)]
pub enum Exit {
    /// It was told to.
    Stopped,
    /// Not on this node, or not with these rights: all that is missing, said once, looked at again now and then.
    Unavailable(Vec<Lack>),
    /// It worked, or should have: started again with backoff.
    Failed(Box<dyn Error + Send + Sync>),
}

/// Something that is missing, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// A short word for `warpgauge.source.lack{reason}`, such as `no_btf`.
    pub reason: &'static str,
    /// What is missing, with the system's own words.
    pub what: String,
    /// What the operator can do.
    pub remedy: &'static str,
}

/// The way into the pipeline.
#[derive(Clone, Debug)]
pub struct Outlet {
    tx: mpsc::Sender<Signal>,
    dropped: Counter,
}

/// The pipeline is gone.
#[derive(Debug, thiserror::Error)]
#[error("the pipeline has ended")]
pub struct Closed;

/// A bounded queue: the outlet for the source called `source`, and the pipeline's end.
pub fn queue(capacity: usize) -> (mpsc::Sender<Signal>, mpsc::Receiver<Signal>) {
    mpsc::channel(capacity)
}

impl Outlet {
    /// An outlet whose losses are counted under the source's name.
    pub fn new(tx: mpsc::Sender<Signal>, source: &'static str, telemetry: &Telemetry) -> Self {
        let dropped =
            telemetry.counter("warpgauge.signals.dropped", &[("place", source), ("reason", "queue_full")]);
        Self { tx, dropped }
    }

    /// Never waits: a slow exporter must not stop a source that cannot be held back. Drops are counted.
    pub fn offer(&self, signal: Signal) {
        // A pipeline that has ended takes no more signals of an agent that stops: that is no loss.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.tx.try_send(signal) {
            self.dropped.add(1);
        }
    }

    /// Waits for room: for a source whose own buffer is the better place to wait in.
    ///
    /// # Errors
    /// [`Closed`] once the pipeline has ended.
    pub async fn send(&self, signal: Signal) -> Result<(), Closed> {
        self.tx.send(signal).await.map_err(|_| Closed)
    }
}
