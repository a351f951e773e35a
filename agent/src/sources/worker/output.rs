//! What the worker and the vendors' libraries write to standard error: read, cleaned and limited.
//!
//! In: a pipe that they write to. Out: lines of the agent's log, or of its standard error for a command.
//! What can go wrong: lines without end are cut, too many are left out (`warpgauge.worker.output.dropped`), and what
//! comes faster than it is read never enters the pipe, uncounted: its end there does not block, so that nobody who
//! writes can be held up.

use std::fs::File;
use std::io::{self, PipeWriter, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio_util::sync::CancellationToken;

use super::clean;
use crate::host::mono_now;
use crate::model::MonoNs;
use crate::telemetry::Counter;

/// Bytes of a line that are kept, more than the text that [`clean::text`] leaves.
const LINE_MAX: usize = 2_048;
/// What is left gets this long after the worker's end: another process may still have the pipe, and write on.
const LAST: Duration = Duration::from_secs(1);
/// Bytes of one read.
const BUFFER: usize = 8 * 1_024;
/// Lines at once, and how often there may be one more.
const BURST: u32 = 100;
const EVERY: Duration = Duration::from_millis(200);
/// The wait between two reads while lines are left out: a flood must not cost a processor.
const BREATH: Duration = Duration::from_millis(20);

/// Both ends: ours, and the worker's.
///
/// # Errors
/// No descriptors are left.
pub(super) fn ends() -> io::Result<(OwnedFd, PipeWriter)> {
    let (ours, theirs) = pipe()?;
    fcntl_setfl(&theirs, fcntl_getfl(&theirs)? | OFlags::NONBLOCK)?;
    Ok((ours.into(), theirs))
}

/// Logs what comes, until nobody can write any more or `ended`; what is in the pipe then is still read.
pub(super) async fn log(ours: OwnedFd, pid: u32, dropped: Counter, ended: CancellationToken) {
    let mut pipe = match Receiver::from_owned_fd(ours) {
        Ok(pipe) => pipe,
        Err(error) => return tracing::warn!(pid, %error, "What the worker writes cannot be read."),
    };
    let mut lines = Lines::new(mono_now());
    let mut buffer = vec![0; BUFFER];
    let say =
        |line: &str| tracing::info!(target: "warpgauge::worker::output", pid, line, "The worker wrote.");
    let mut last = pin!(async {
        ended.cancelled().await;
        tokio::time::sleep(LAST).await;
    });
    loop {
        let read = tokio::select! {
            biased;
            () = &mut last => 0,
            read = pipe.read(&mut buffer) => read.unwrap_or(0),
        };
        if read == 0 {
            break;
        }
        let left_out = lines.push(buffer.get(..read).unwrap_or_default(), mono_now(), say);
        dropped.add(left_out);
        if left_out > 0 {
            tokio::time::sleep(BREATH).await;
        }
    }
    dropped.add(lines.end(mono_now(), say));
}

/// Writes what comes to standard error, for a command that people look at; by a thread of its own.
pub(super) fn show(ours: OwnedFd) {
    let body = move || {
        let (mut pipe, mut buffer) = (File::from(ours), vec![0; BUFFER]);
        let mut lines = Lines::new(mono_now());
        // Nothing to do when the terminal is gone.
        let say = |line: &str| drop(writeln!(io::stderr(), "{line}"));
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            lines.push(buffer.get(..read).unwrap_or_default(), mono_now(), say);
        }
        lines.end(mono_now(), say);
    };
    // Without a thread nobody reads it, and nobody waits for that.
    drop(std::thread::Builder::new().name("warpgauge-output".to_owned()).spawn(body));
}

/// Bytes → lines, cleaned and limited.
struct Lines {
    line: Vec<u8>,
    may: u32,
    since: MonoNs,
    left_out: u64,
}

impl Lines {
    fn new(now: MonoNs) -> Self {
        Self { line: Vec::new(), may: BURST, since: now, left_out: 0 }
    }

    /// Gives each whole line to `say`, and returns how many it did not.
    fn push(&mut self, mut bytes: &[u8], now: MonoNs, say: impl Fn(&str)) -> u64 {
        let mut dropped = 0;
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(at);
            self.keep(line);
            dropped += self.whole(now, &say);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.keep(bytes);
        dropped
    }

    /// The last line may have no end.
    fn end(&mut self, now: MonoNs, say: impl Fn(&str)) -> u64 {
        let dropped = self.whole(now, &say);
        self.tell(&say);
        dropped
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_MAX.saturating_sub(self.line.len());
        self.line.extend(bytes.iter().take(room));
    }

    fn whole(&mut self, now: MonoNs, say: &impl Fn(&str)) -> u64 {
        let text = clean::text(&String::from_utf8_lossy(&self.line));
        self.line.clear();
        let Some(text) = text else { return 0 };
        if !self.may(now) {
            self.left_out += 1;
            return 1;
        }
        self.tell(say);
        say(&text);
        0
    }

    fn tell(&mut self, say: &impl Fn(&str)) {
        if self.left_out > 0 {
            say(&format!("({} lines are left out)", self.left_out));
            self.left_out = 0;
        }
    }

    fn may(&mut self, now: MonoNs) -> bool {
        let every = EVERY.as_nanos();
        let more = now.since(self.since).map_or(0, |passed| passed.as_nanos() / every);
        if more > 0 {
            self.may = u32::try_from(more).unwrap_or(BURST).saturating_add(self.may).min(BURST);
            self.since = now;
        }
        let may = self.may > 0;
        self.may = self.may.saturating_sub(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn lines_are_cleaned_and_cut_and_an_open_one_is_said_at_the_end() {
        let said = RefCell::new(Vec::new());
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        let mut lines = Lines::new(MonoNs(0));
        assert_eq!(lines.push(b"one\n\n\x1b[31mt", MonoNs(1), say), 0);
        assert_eq!(lines.push(b"wo\xe2\x80\xae\r\n\xff", MonoNs(2), say), 0);
        let long = [b'x'; 100_000];
        lines.push(&long, MonoNs(3), say);
        assert!(lines.line.len() <= LINE_MAX && lines.line.capacity() <= 2 * LINE_MAX);
        lines.end(MonoNs(4), say);
        let said = said.into_inner();
        assert_eq!(said[..2], ["one", "[31mtwo"]);
        assert_eq!((said.len(), said[2].chars().count()), (3, 512));
    }

    #[test]
    fn a_flood_is_left_out_and_said() {
        let said = RefCell::new(Vec::new());
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        let mut lines = Lines::new(MonoNs(0));
        let flood = "a\n".repeat(1_000);
        assert_eq!(lines.push(flood.as_bytes(), MonoNs(0), say), 900);
        assert_eq!(said.borrow().len(), 100);
        assert_eq!(lines.push(b"b\nb\nb\nb\nb\nb\n", MonoNs(S), say), 1, "five more in a second");
        assert_eq!(said.borrow()[100], "(900 lines are left out)");
        assert_eq!(lines.push(flood.as_bytes(), MonoNs(3_600 * S), say), 900, "never more at once");
    }

    #[tokio::test]
    async fn who_writes_is_never_held_up_and_the_rest_is_read_at_the_end() {
        let (ours, mut theirs) = ends().unwrap();
        let mut written = 0;
        let refused = loop {
            match theirs.write(b"0123456\n") {
                Ok(bytes) => written += u64::from(bytes == 8), // a whole line or nothing
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(refused, io::ErrorKind::WouldBlock, "nobody reads");
        let (dropped, ended) = (Counter::default(), CancellationToken::new());
        ended.cancel();
        log(ours, 1, dropped.clone(), ended).await; // though the other end is open
        let said = written - dropped.get();
        let most = u64::from(BURST) + 5; // as many more as there may be until it gives up
        assert!((u64::from(BURST)..=most).contains(&said), "{said} of {written}");
        assert_eq!(theirs.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
