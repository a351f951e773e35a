//! The worker's loop: orders in, reports out, a heartbeat twice a second whatever the libraries do.
//!
//! In: the socket, and the threads' queue. Out: bytes; at the end, how it ended. No call into a library is made here.
//! What can go wrong: the agent does not read (nothing grows: see [`OUT_MAX`]), is gone, or sends what is no order.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::link::{Ask, Link, Queue};
use super::threads::{Collectors, Threads};
use crate::model::Origin;
use crate::wire::report::{Hello, Kind};
use crate::wire::{Decoder, FrameError, Order, Report, encode, order};

/// Between two heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// From the order to end to the threads' return. An engine inside this process takes two seconds to stop. Source: measured.
const LET_GO: Duration = Duration::from_secs(4);
/// Bytes that may wait for the socket before the queue is left alone; one frame more at most.
const OUT_MAX: usize = 256 * 1024;

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// As ordered: every thread has let go of its library.
    InOrder,
    /// A thread did not return in time.
    Hung,
    /// The agent is gone.
    AgentGone,
    /// It cannot go on.
    Fault(String),
}

/// Talks to the agent until one of them ends.
///
/// # Errors
/// The socket or the signal handler cannot be used at all.
pub(super) async fn serve(stream: StdStream, collectors: Collectors, hello: Hello) -> io::Result<Ended> {
    let stream = UnixStream::from_std(stream)?;
    let (link, queue) = Link::new();
    let mut talk = Talk {
        out: Out { bytes: Vec::new(), written: 0, beat_is_due: false },
        decoder: Decoder::default(),
        link,
        queue,
        returned: Arc::default(),
        collectors: Some(collectors),
        threads: Threads::default(),
        end_by: None,
    };
    if hello.abandoned.is_some() {
        talk.end();
    }
    talk.encode(Kind::Hello(hello));
    let mut term = signal(SignalKind::terminate())?;
    let mut beat = interval(HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A thread is over a moment after it said so: then the next beat finds it.
        if let Some(ended) = talk.thread_returned() {
            return Ok(ended);
        }
        talk.fill();
        if talk.end_by.is_some() && talk.threads.all_returned() && talk.out.is_empty() {
            return Ok(Ended::InOrder);
        }
        let full = talk.out.is_full();
        let end_by = talk.end_by;
        let step = tokio::select! {
            ready = stream.readable() => ready.map(|()| talk.read(&stream)).unwrap_or_else(gone),
            ready = stream.writable(), if !talk.out.is_empty() => {
                ready.map(|()| talk.out.write(&stream)).unwrap_or_else(gone)
            }
            _ = beat.tick() => {
                talk.out.beat_is_due = true;
                None
            }
            () = talk.queue.woken(), if !full => None,
            () = talk.returned.notified() => None,
            _ = term.recv() => {
                talk.end();
                None
            }
            () = sleep_until(end_by.unwrap_or_else(Instant::now)), if end_by.is_some() => Some(Ended::Hung),
        };
        if let Some(ended) = step {
            return Ok(ended);
        }
    }
}

fn gone(_: io::Error) -> Option<Ended> {
    Some(Ended::AgentGone)
}

#[derive(Debug)]
struct Talk {
    out: Out,
    decoder: Decoder,
    link: Link,
    queue: Arc<Queue>,
    returned: Arc<Notify>,
    collectors: Option<Collectors>,
    threads: Threads,
    end_by: Option<Instant>,
}

/// Bytes on their way.
#[derive(Debug)]
struct Out {
    bytes: Vec<u8>,
    written: usize,
    beat_is_due: bool,
}

impl Out {
    fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    fn is_full(&self) -> bool {
        self.bytes.len() - self.written >= OUT_MAX
    }

    fn write(&mut self, stream: &UnixStream) -> Option<Ended> {
        match stream.try_write(self.bytes.get(self.written..).unwrap_or_default()) {
            Ok(0) => return Some(Ended::AgentGone),
            Ok(n) => self.written += n,
            Err(e) if is_passing(&e) => {}
            Err(_) => return Some(Ended::AgentGone),
        }
        if self.is_empty() {
            self.bytes.clear();
            self.written = 0;
        } else if self.written >= OUT_MAX {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        None
    }
}

impl Talk {
    /// Takes from the queue what may wait here; a heartbeat goes before it, and there is never more than one.
    fn fill(&mut self) {
        if self.out.beat_is_due && !self.out.is_full() {
            self.out.beat_is_due = false;
            let mut beat = self.link.calls();
            (beat.dropped_values, beat.dropped_others) = self.queue.dropped();
            self.encode(Kind::Heartbeat(beat));
        }
        while !self.out.is_full() {
            let Some(kind) = self.queue.pop() else { return };
            self.encode(kind);
        }
    }

    fn encode(&mut self, kind: Kind) {
        if encode(&Report { kind: Some(kind) }, &mut self.out.bytes).is_err() {
            self.queue.refuse();
        }
    }

    fn read(&mut self, stream: &UnixStream) -> Option<Ended> {
        let mut buffer = [0; 16 * 1024];
        match stream.try_read(&mut buffer) {
            Ok(0) => return Some(Ended::AgentGone),
            Ok(n) => self.decoder.push(buffer.get(..n).unwrap_or_default()),
            Err(e) if is_passing(&e) => return None,
            Err(_) => return Some(Ended::AgentGone),
        }
        loop {
            match self.decoder.take::<Order>() {
                Ok(None) => return None,
                Ok(Some(order)) => {
                    if let Err(what) = self.obey(order) {
                        return Some(Ended::Fault(what));
                    }
                }
                Err(error @ (FrameError::TooLong(_) | FrameError::NotAMessage(_))) => {
                    return Some(Ended::Fault(format!("the agent sent {error}")));
                }
            }
        }
    }

    fn obey(&mut self, order: Order) -> Result<(), String> {
        let Some(kind) = order.kind else { return Ok(()) }; // of a newer agent
        match kind {
            order::Kind::Configure(configure) => {
                // Only the first one counts, and none once the end has begun.
                let Some(collectors) = self.collectors.take().filter(|_| self.end_by.is_none()) else {
                    return Ok(());
                };
                self.threads = Threads::start(&configure, collectors, &self.link, &self.returned)
                    .map_err(|error| format!("cannot start a thread: {error}"))?;
            }
            order::Kind::Pause(request) => {
                self.threads.ask(Origin::Dcgm, Ask::Pause(request.id), request.until_ns, &self.link);
            }
            order::Kind::Resume(request) => {
                self.threads.ask(Origin::Dcgm, Ask::Resume(request.id), request.until_ns, &self.link);
            }
            order::Kind::Fields(request) => {
                let by_nvml = !self.queue.is_dcgm_up() && self.threads.has(Origin::Nvml);
                let origin = if by_nvml { Origin::Nvml } else { Origin::Dcgm };
                self.threads.ask(origin, Ask::Fields(request.id), request.until_ns, &self.link);
            }
            order::Kind::End(_) => self.end(),
        }
        Ok(())
    }

    fn end(&mut self) {
        if self.end_by.is_none() {
            self.end_by = Some(Instant::now() + LET_GO);
            self.threads.end();
        }
    }

    /// A thread that returns unasked has lost its mind: the agent starts a new worker.
    fn thread_returned(&self) -> Option<Ended> {
        let origin = self.threads.returned().filter(|_| self.end_by.is_none())?;
        Some(Ended::Fault(format!("the {} thread returned by itself", origin.name())))
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
