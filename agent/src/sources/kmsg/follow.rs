//! The loop over the records: read all there is, wait, again.
//!
//! In: a [`RecordReader`]. Out: signals, and how the source ended.
//! What can go wrong: overruns and over-long records are counted and passed over; any other error ends the loop, and
//! the supervisor starts it again where it stopped.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::device::RecordReader;
use super::intake::Intake;
use super::record;
use super::state::StateError;
use super::state::StateFile;
use crate::model::Signal;
use crate::sources::Outlet;

/// Larger than any record: kernels print at most 8 KiB.
pub(super) const BUFFER: usize = 16 * 1024;

/// Records between two looks at the rest of the runtime: about 100 µs of work.
const STRETCH: u32 = 128;

/// Overruns and over-long records in a row after which the device is taken for broken.
const MOST_STUMBLES: u32 = 10_000;

/// What the disk gets before the first record is read.
const LONGEST_SAVE: Duration = Duration::from_secs(1);

/// Why the loop ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    #[error("reading the kernel log: {0}")]
    Read(#[from] io::Error),
    #[error("the kernel log ended, which /dev/kmsg never does; is it the kernel's device?")]
    Ended,
    #[error("the kernel log gave no record in {MOST_STUMBLES} reads")]
    Stuck,
}

/// Finds out where to begin: what the previous run left, checked against where the log ends now.
///
/// Looking ahead for the end, before anything is taken, tells old lines from those that come while the old are sent.
pub(super) async fn begin(
    reader: &mut impl RecordReader,
    buffer: &mut [u8],
    intake: &mut Intake,
    state: &Arc<StateFile>,
) -> Result<(), FollowError> {
    let tail = tail(reader, buffer).await?;
    reader.rewind()?;
    let previous = state.previous();
    let (mut resume, mut backlog_until) = (previous.resume, previous.backlog_until);
    if let Some(ahead) = resume.filter(|resume| *resume > tail) {
        state.report(&StateError::Ahead { resume: ahead, tail });
        (resume, backlog_until) = (None, None);
    }
    let backlog_until = backlog_until.map_or(tail, |until| until.min(tail));
    state.begin(resume, Some(backlog_until));
    intake.begin(resume, backlog_until);
    save(state, intake).await;
    Ok(())
}

/// Puts what is backlog on the disk before anything is read: a run that is killed before its first regular save would
/// else leave the next one to take all that came in between for backlog. A disk that hangs is not waited for.
async fn save(state: &Arc<StateFile>, intake: &Intake) {
    let (state, delivery) = (Arc::clone(state), intake.delivery());
    let saving = tokio::task::spawn_blocking(move || state.save(&delivery)); // says itself what goes wrong
    if tokio::time::timeout(LONGEST_SAVE, saving).await.is_err() {
        tracing::warn!("The disk takes long to keep the kernel log's place; the log is read all the same.");
    }
}

/// The sequence number behind the newest record.
async fn tail(reader: &mut impl RecordReader, buffer: &mut [u8]) -> Result<u64, FollowError> {
    let mut tail = 0;
    let mut pace = Pace::default();
    while let Some(read) = next(reader, buffer)? {
        pace.step(matches!(read, Read::Record(_))).await?;
        if let Read::Record(length) = read
            && let Some(record) = record::parse(&buffer[..length])
        {
            tail = record.seq.saturating_add(1);
        }
    }
    Ok(tail)
}

/// Reads until told to stop. Never drops a signal: while the pipeline is full, the kernel's buffer holds the rest.
pub(super) async fn follow(
    reader: &mut impl RecordReader,
    buffer: &mut [u8],
    intake: &mut Intake,
    outlet: &Outlet,
    stop: &CancellationToken,
) -> Result<(), FollowError> {
    let mut waited = false;
    loop {
        let mut pace = Pace::default();
        while let Some(read) = next(reader, buffer)? {
            pace.step(matches!(read, Read::Record(_))).await?;
            match read {
                Read::Record(length) => {
                    let live = std::mem::take(&mut waited);
                    let signal = intake.take(&buffer[..length], reader.now(), live);
                    if let Some(signal) = signal
                        && !sent(signal, outlet, stop).await
                    {
                        return Ok(());
                    }
                }
                Read::Overrun => {
                    waited = false; // what comes next has waited in the buffer
                    intake.counts.overruns.add(1);
                }
                Read::TooLong => intake.too_long(),
            }
            if stop.is_cancelled() {
                return Ok(());
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            ready = reader.readable() => ready?,
        }
        waited = true;
    }
}

/// `false` where the agent is stopping: the record stays owed, and is read again by the next run.
async fn sent(signal: Signal, outlet: &Outlet, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        sent = outlet.send(signal) => sent.is_ok(),
        () = stop.cancelled() => false,
    }
}

/// What one read gave.
#[derive(Clone, Copy)]
enum Read {
    Record(usize),
    Overrun,
    TooLong,
}

/// Reads once; `None` where there is nothing more for now.
fn next(reader: &mut impl RecordReader, buffer: &mut [u8]) -> Result<Option<Read>, FollowError> {
    loop {
        return match reader.read(buffer) {
            Ok(0) => Err(FollowError::Ended),
            Ok(length) => Ok(Some(Read::Record(length))),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::AGAIN) => Ok(None),
                Some(Errno::PIPE) => Ok(Some(Read::Overrun)),
                Some(Errno::INVAL) => Ok(Some(Read::TooLong)),
                Some(Errno::INTR) => continue,
                _ => Err(error.into()),
            },
        };
    }
}

/// Leaves the thread to others now and then, and ends a loop that gets nowhere.
#[derive(Default)]
struct Pace {
    steps: u32,
    stumbles: u32,
}

impl Pace {
    async fn step(&mut self, got_record: bool) -> Result<(), FollowError> {
        self.stumbles = if got_record { 0 } else { self.stumbles + 1 };
        if self.stumbles > MOST_STUMBLES {
            return Err(FollowError::Stuck);
        }
        self.steps += 1;
        if self.steps >= STRETCH {
            self.steps = 0;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
