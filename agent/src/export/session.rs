//! Whether the previous run ended on purpose, with all that it had delivered or kept.
//!
//! In: the state directory. Out: a [`Gap`] where the previous run was killed, or had to drop what was left: what was only
//! in its memory is lost, and that is reported instead of being passed over.
//! The file `session` holds the boot and the time the run was last known to be alive; a run that ends on purpose
//! removes it. Until the record of a gap is settled the file also says when that gap began, so that it is not forgotten
//! when the run that reports it is killed as well.
//! What can go wrong: it cannot be written; then a kill goes unnoticed, and the errors are counted.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::record::Gap;
use super::state_writer::StateWriter;
use crate::host::state_dir::{StateDir, StateDirError};
use crate::model::{MonoNs, WallAnchor, WallNs};
use crate::telemetry::Counter;

const NAME: &str = "session";
/// The time between two marks: how exact the beginning of a gap is.
pub(super) const EVERY: Duration = Duration::from_secs(5);

/// Whether the record of the gap needs no more sending. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct GapSettled(Arc<AtomicBool>);

impl GapSettled {
    /// Acknowledged, printed, kept for the next run, or dropped and counted.
    pub fn settle(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A run that was alive at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alive {
    boot_id: String,
    at: WallNs,
}

/// The mark of this run.
#[derive(Debug)]
pub struct Session {
    dir: StateDir,
    boot_id: String,
    pub(super) writer: StateWriter,
    errors: Counter,
    /// Where the gap that nobody has heard of yet began.
    owed: Option<Alive>,
    settled: GapSettled,
    /// When the mark was made.
    marked: Option<MonoNs>,
}

impl Session {
    /// Begins a run; returns the gap that the previous one left, whose record tells `settled` of its end.
    pub fn begin(
        dir: PathBuf,
        boot_id: &str,
        now: WallAnchor,
        writer: StateWriter,
        errors: Counter,
        settled: GapSettled,
    ) -> (Self, Option<Gap>) {
        let dir = StateDir::new(dir);
        let before = counted(&errors, dir.read(NAME, 4_096)).flatten();
        let owed = before.and_then(|bytes| parse(&String::from_utf8_lossy(&bytes)));
        let gap = owed.as_ref().map(|alive| Gap { last_seen: alive.at, rebooted: alive.boot_id != boot_id });
        let boot_id = boot_id.to_owned();
        let mut session = Self { dir, boot_id, writer, errors, owed, settled, marked: None };
        session.alive(now);
        (session, gap)
    }

    /// The run is still going. To be called often: it makes a mark when the last one is old or says too much, and
    /// never waits for the disk.
    pub fn alive(&mut self, now: WallAnchor) {
        if self.owed.is_some() && self.settled.get() {
            (self.owed, self.marked) = (None, None);
        }
        let due = self.marked.is_none_or(|at| now.mono.since(at).is_none_or(|age| age >= EVERY));
        if !due || !self.writer.idle() {
            return;
        }
        let mut line = format!("{} {}", self.boot_id, now.wall.0);
        if let Some(owed) = &self.owed {
            line.push_str(&format!(" {} {}", owed.boot_id, owed.at.0));
        }
        line.push('\n');
        let (dir, errors) = (self.dir.clone(), self.errors.clone());
        let asked = self.writer.ask(move || {
            counted(&errors, dir.write(NAME, line.as_bytes()));
        });
        self.marked = asked.then_some(now.mono);
    }

    /// The run ends on purpose. Waits for the disk, at most until the deadline. `lost`: records were neither delivered nor
    /// kept.
    pub async fn end(self, deadline: Instant, lost: bool) {
        if lost || self.owed.is_some() && !self.settled.get() {
            return; // nobody has heard of the gap: the mark makes the next run report it
        }
        let (dir, errors) = (self.dir, self.errors.clone());
        let removed = self.writer.answer(deadline, move || counted(&errors, dir.remove(NAME))).await;
        if removed.is_none() {
            self.errors.add(1);
            tracing::warn!("The disk does not answer: the next start will take this run for a killed one.");
        }
    }
}

/// The kernel log's place is kept in the same directory, and says what is wrong with it.
fn counted<T>(errors: &Counter, result: Result<T, StateDirError>) -> Option<T> {
    result.inspect_err(|_| errors.add(1)).ok()
}

/// The earliest time since which something is unaccounted for.
fn parse(text: &str) -> Option<Alive> {
    let fields: Vec<&str> = text.trim_end().split(' ').collect();
    let (boot_id, at) = match fields.as_slice() {
        [boot_id, at] | [_, _, boot_id, at] => (*boot_id, *at),
        _ => return None,
    };
    Some(Alive { boot_id: boot_id.to_owned(), at: WallNs(at.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::export::state_writer::tests::soon;
    use crate::test_dir::TestDir;

    fn at(seconds: u64) -> WallAnchor {
        WallAnchor { mono: MonoNs(seconds * 1_000_000_000), wall: WallNs(seconds) }
    }

    fn begin(dir: &Path, boot_id: &str, seconds: u64) -> (Session, Option<Gap>) {
        let (writer, settled) = (StateWriter::start().unwrap(), GapSettled::default());
        Session::begin(dir.to_owned(), boot_id, at(seconds), writer, Counter::default(), settled)
    }

    /// The session's file once all its writes are done.
    async fn file(session: &Session, dir: &Path) -> String {
        session.writer.settled().await;
        fs::read_to_string(dir.join("session")).unwrap()
    }

    fn gap(last_seen: u64, rebooted: bool) -> Option<Gap> {
        Some(Gap { last_seen: WallNs(last_seen), rebooted })
    }

    #[tokio::test]
    async fn only_a_run_that_did_not_end_on_purpose_leaves_a_gap() {
        let dir = TestDir::new();
        let (first, none) = begin(dir.path(), "boot", 5);
        assert_eq!(none, None);
        first.end(soon(), false).await;
        let (mut second, none) = begin(dir.path(), "boot", 6);
        assert_eq!(none, None);
        assert_eq!(file(&second, dir.path()).await, "boot 6\n");
        second.alive(at(10));
        assert_eq!(file(&second, dir.path()).await, "boot 6\n", "4 s are not worth a write");
        second.alive(at(11));
        assert_eq!(file(&second, dir.path()).await, "boot 11\n");
        drop(second); // killed
        assert_eq!(begin(dir.path(), "next", 20).1, gap(11, true));
    }

    #[tokio::test]
    async fn a_run_that_lost_records_at_its_end_leaves_a_gap() {
        let dir = TestDir::new();
        let (first, _) = begin(dir.path(), "boot", 5);
        first.writer.settled().await;
        first.end(soon(), true).await;
        assert_eq!(begin(dir.path(), "boot", 9).1, gap(5, false));
    }

    #[tokio::test]
    async fn the_oldest_gap_is_kept_until_its_record_is_settled() {
        let dir = TestDir::new();
        let (first, _) = begin(dir.path(), "boot", 5);
        first.writer.settled().await;
        drop(first); // killed, and so is the next, on another boot, before anybody heard of it
        let (mut second, seen) = begin(dir.path(), "next", 100);
        assert_eq!(seen, gap(5, true));
        assert_eq!(file(&second, dir.path()).await, "next 100 boot 5\n");
        second.alive(at(205));
        assert_eq!(file(&second, dir.path()).await, "next 205 boot 5\n");
        drop(second);
        let (mut third, seen) = begin(dir.path(), "next", 300);
        assert_eq!(seen, gap(5, true), "not from 205 on");
        third.writer.settled().await;
        third.settled.settle();
        third.alive(at(301));
        assert_eq!(file(&third, dir.path()).await, "next 301\n", "at once, and in its normal form");
        drop(third);
        let (fourth, seen) = begin(dir.path(), "next", 400);
        assert_eq!(seen, gap(301, false));
        fourth.writer.settled().await;
        fourth.end(soon(), false).await;
        let (fifth, seen) = begin(dir.path(), "next", 500);
        assert_eq!(seen, gap(301, false), "ended on purpose, but nobody heard of the gap");
        fifth.settled.settle();
        fifth.end(soon(), false).await;
        assert_eq!(begin(dir.path(), "next", 600).1, None);
    }

    #[tokio::test]
    async fn a_frozen_disk_holds_up_neither_a_mark_nor_the_end() {
        let dir = TestDir::new();
        let (mut session, _) = begin(dir.path(), "boot", 5);
        session.writer.settled().await;
        let thaw = session.writer.freeze().await;
        session.alive(at(100));
        session.alive(at(200));
        let (errors, began) = (session.errors.clone(), Instant::now());
        session.end(began + Duration::from_millis(50), false).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(errors.get(), 1);
        assert_eq!(fs::read_to_string(dir.path().join("session")).unwrap(), "boot 5\n");
        drop(thaw);
    }

    #[tokio::test]
    async fn garbage_is_no_gap_and_a_directory_that_cannot_be_is_counted() {
        let dir = TestDir::new();
        for garbage in [&[0xff, b' ', b'x'][..], b"boot", b"boot 1 2", b"boot 1 boot x", b"a b c d e"] {
            fs::write(dir.path().join("session"), garbage).unwrap();
            let (session, none) = begin(dir.path(), "boot", 5);
            assert_eq!(none, None, "{garbage:?}");
            session.writer.settled().await;
        }
        let (errors, writer) = (Counter::default(), StateWriter::start().unwrap());
        fs::write(dir.path().join("file"), "").unwrap();
        let (path, settled) = (dir.path().join("file"), GapSettled::default());
        let (_, none) = Session::begin(path, "boot", at(5), writer.clone(), errors.clone(), settled);
        writer.settled().await;
        assert_eq!((none, errors.get()), (None, 2), "reading and writing");
    }
}
