//! What is remembered between two runs of the agent on one boot: how far the kernel log was delivered.
//!
//! In: [`Delivery`], and the file `kmsg.state` of the previous run. Out: where to resume.
//! What can go wrong: an unsafe directory, a full or read-only disk, a file that is not ours; each
//! is logged once and counted (`warpgauge.state.errors`), the agent goes on, and writing is tried again.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::host::HostRoot;
use crate::host::state_dir::{StateDir, StateDirError};
use crate::model::Delivery;
use crate::telemetry::{Counter, Telemetry};

const FORMAT: u32 = 1;
const NAME: &str = "kmsg.state";
/// Longest content that is read: twenty times what is written.
const LONGEST: u64 = 4096;

/// Why the kernel log's place is not kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory or the file.
    #[error(transparent)]
    Dir(#[from] StateDirError),
    /// The file's content is not what the agent writes.
    #[error("the state file is damaged ({0}); it is ignored and replaced")]
    Content(#[from] serde_json::Error),
    /// The file is of another version of the agent.
    #[error("the state file has format {0}, which this version does not know; it is ignored and replaced")]
    Format(u32),
    /// The kernel's log does not reach as far as the state says.
    #[error(
        "the state file says that the kernel log was read up to record {resume}, but it ends at {tail} (a restored \
         snapshot?); it is ignored, and everything in the log is read again"
    )]
    Ahead {
        /// Where the state says to resume.
        resume: u64,
        /// Where the kernel's log ends.
        tail: u64,
    },
    /// Boots cannot be told apart.
    #[error("{path}: {cause}; without the boot id no state is kept, give the host's procfs with --host-proc")]
    BootId {
        /// Where the boot id should be.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

/// The file's content; JSON, since the next format has to be able to tell it apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    format: u32,
    boot_id: String,
    /// First sequence number that is not settled; none before anything was read.
    resume: Option<u64>,
    /// Records below were in the buffer before the first run on this boot.
    backlog_until: Option<u64>,
}

/// What the previous run on this boot left; nothing of it is set on the first run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Previous {
    /// First record that was not settled.
    pub resume: Option<u64>,
    /// Records below were in the buffer before the agent first started on this boot.
    pub backlog_until: Option<u64>,
}

/// The state file. Shared by the source, which says where it starts, and the pipeline, which saves.
#[derive(Debug)]
pub struct StateFile {
    dir: Option<StateDir>,
    boot_id: String,
    previous: Previous,
    errors: Counter,
    start: Mutex<Start>,
    /// Held while writing, so that writes never overlap: what was logged last, if it is still so.
    failing: Mutex<String>,
}

/// Where reading starts: what is written until something was read.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    resume: Option<u64>,
    backlog_until: Option<u64>,
}

impl StateFile {
    /// Reads what the previous run left in `dir`; with `None`, nothing is kept. Never fails: what cannot be read or
    /// belongs to another boot counts as nothing.
    pub fn load(dir: Option<PathBuf>, host: &HostRoot, telemetry: &Telemetry) -> Self {
        let mut file = Self {
            dir: dir.map(StateDir::new),
            boot_id: String::new(),
            previous: Previous::default(),
            errors: telemetry.counter("warpgauge.state.errors", &[]),
            start: Mutex::default(),
            failing: Mutex::default(),
        };
        let Some(dir) = &file.dir else { return file };
        match boot_id(host) {
            Ok(boot_id) => file.boot_id = boot_id,
            Err(error) => {
                file.report(&error);
                file.dir = None; // a state that cannot be told from another boot's does harm
                return file;
            }
        }
        let read = dir.read(NAME, LONGEST).map_err(StateError::from);
        match read.and_then(|bytes| bytes.map(|bytes| Content::parse(&bytes)).transpose()) {
            Ok(Some(content)) if content.boot_id == file.boot_id => file.previous = content.previous(),
            Ok(_) => {}
            Err(error) => file.tell(&mut lock(&file.failing), &error),
        }
        file.begin(file.previous.resume, file.previous.backlog_until);
        file
    }

    /// What the previous run on this boot left.
    pub fn previous(&self) -> Previous {
        self.previous
    }

    /// The source begins to read here; kept until [`Delivery`] knows better.
    pub(super) fn begin(&self, resume: Option<u64>, backlog_until: Option<u64>) {
        *lock(&self.start) = Start { resume, backlog_until };
    }

    /// Something is wrong with what was kept: said and counted, never fatal.
    pub(super) fn report(&self, error: &StateError) {
        self.errors.add(1);
        tracing::warn!(%error, "the kernel log's place is not kept across restarts as it should be");
    }

    /// The same, logged once as long as it stays so: reading and writing fail alike.
    fn tell(&self, said: &mut String, error: &StateError) {
        let words = error.to_string();
        if *said == words {
            return self.errors.add(1);
        }
        self.report(error);
        *said = words;
    }

    /// Writes how far `delivery` is. Blocks on the disk. Returns whether the file is written (or none is wanted).
    pub fn save(&self, delivery: &Delivery) -> bool {
        let Some(dir) = &self.dir else { return true };
        let mut failing = lock(&self.failing);
        let start = *lock(&self.start);
        let content = Content {
            format: FORMAT,
            boot_id: self.boot_id.clone(),
            resume: delivery.resume_at().or(start.resume),
            backlog_until: start.backlog_until,
        };
        let written = serde_json::to_vec(&content)
            .map_err(StateError::from)
            .and_then(|bytes| Ok(dir.write(NAME, &bytes)?));
        match &written {
            Ok(()) => failing.clear(),
            Err(error) => self.tell(&mut failing, error),
        }
        written.is_ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Content {
    fn parse(bytes: &[u8]) -> Result<Self, StateError> {
        let content: Self = serde_json::from_slice(bytes)?;
        if content.format != FORMAT {
            return Err(StateError::Format(content.format));
        }
        Ok(content)
    }

    fn previous(&self) -> Previous {
        Previous { resume: self.resume, backlog_until: self.backlog_until }
    }
}

/// Keeps the file up to date until told to stop; the last write is the pipeline's, after the flush.
pub async fn keep(file: Arc<StateFile>, delivery: Arc<Delivery>, stop: CancellationToken) {
    /// The time between two writes while records come in.
    const BUSY: Duration = Duration::from_secs(1);
    /// The time between two attempts while the disk refuses.
    const REFUSED: Duration = Duration::from_secs(10);

    let mut ticks = tokio::time::interval(BUSY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<(Option<u64>, bool, Instant)> = None;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let resume = delivery.resume_at();
        let due =
            last.is_none_or(|(saved, done, at)| if done { saved != resume } else { at.elapsed() >= REFUSED });
        if due {
            let (file, delivery) = (Arc::clone(&file), Arc::clone(&delivery));
            let done = tokio::task::spawn_blocking(move || file.save(&delivery)).await;
            last = Some((resume, done.unwrap_or(false), Instant::now()));
        }
    }
}

fn boot_id(host: &HostRoot) -> Result<String, StateError> {
    let path = host.proc("sys/kernel/random/boot_id");
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(cause) => Err(StateError::BootId { path, cause }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn load(dir: &TestDir, boot_id: &str) -> (StateFile, u64) {
        let telemetry = Telemetry::default();
        let file = StateFile::load(Some(dir.path().join("state")), &dir.host(boot_id), &telemetry);
        (file, telemetry.counter("warpgauge.state.errors", &[]).get())
    }

    fn delivered(seqs: &[(u64, bool)]) -> Delivery {
        let delivery = Delivery::default();
        seqs.iter().for_each(|(seq, owed)| delivery.read(*seq, *owed));
        delivery
    }

    #[test]
    fn a_run_takes_up_where_the_previous_one_was_settled() {
        let dir = TestDir::new();
        let (file, _) = load(&dir, "boot-1\n");
        assert_eq!(file.previous(), Previous::default());
        file.begin(None, Some(7));
        assert!(file.save(&delivered(&[(3, false), (4, true), (5, false)])));
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("state"), mode("state/kmsg.state")), (0o700, 0o600));

        let (file, errors) = load(&dir, "boot-1");
        let left = Previous { resume: Some(4), backlog_until: Some(7) };
        assert_eq!((file.previous(), errors), (left, 0));

        assert!(file.save(&Delivery::default()), "nothing was read yet: the place is kept");
        assert_eq!(load(&dir, "boot-1").0.previous(), left);

        assert_eq!(load(&dir, "boot-2").0.previous(), Previous::default(), "another boot");
    }

    #[test]
    fn what_is_not_ours_counts_as_nothing_and_is_replaced() {
        for hostile in [
            &b""[..],
            b"\0\xff",
            b"{}",
            b"[[[[",
            br#"{"format":1,"boot_id":"b","resume":-1,"backlog_until":null}"#,
            br#"{"format":2,"boot_id":"b","resume":1,"backlog_until":null}"#,
            &[b'['; 100_000],
        ] {
            let dir = TestDir::new();
            load(&dir, "b").0.save(&delivered(&[(1, false)]));
            fs::write(dir.path().join("state/kmsg.state"), hostile).unwrap();
            let (file, errors) = load(&dir, "b");
            assert_eq!((file.previous(), errors), (Previous::default(), 1), "{}", hostile.escape_ascii());
            assert!(file.save(&delivered(&[(9, false)])));
            assert_eq!(load(&dir, "b").0.previous().resume, Some(10));
        }
    }

    #[test]
    fn failures_are_counted_each_time_and_the_file_comes_back() {
        let dir = TestDir::new();
        let telemetry = Telemetry::default();
        let errors = telemetry.counter("warpgauge.state.errors", &[]);
        let state = dir.path().join("state");
        fs::write(&state, "in the way").unwrap();
        let file = StateFile::load(Some(state.clone()), &dir.host("b"), &telemetry);
        let said = || lock(&file.failing).clone();
        let at_first = said();
        assert!(at_first.contains("Not a directory"), "{at_first}");
        assert!(!file.save(&delivered(&[(1, false)])) && !file.save(&delivered(&[(1, false)])));
        assert_eq!(said(), at_first, "the same words are logged once");
        assert_eq!(errors.get(), 3);
        fs::remove_file(&state).unwrap();
        assert!(file.save(&delivered(&[(1, false)])));
        assert_eq!(said(), "");
        assert_eq!((errors.get(), load(&dir, "b").0.previous().resume), (3, Some(2)));
    }

    #[test]
    fn without_a_boot_id_or_a_directory_nothing_is_kept() {
        let dir = TestDir::new();
        let telemetry = Telemetry::default();
        let nowhere = HostRoot { proc: dir.path().join("none"), ..HostRoot::default() };
        let file = StateFile::load(Some(dir.path().join("state")), &nowhere, &telemetry);
        assert!(file.save(&Delivery::default()) && !dir.path().join("state").exists());
        assert_eq!(telemetry.counter("warpgauge.state.errors", &[]).get(), 1);
        assert!(StateFile::load(None, &nowhere, &telemetry).save(&Delivery::default()));
    }

    #[tokio::test]
    async fn the_file_is_kept_from_the_start_and_until_told_to_stop() {
        let dir = TestDir::new();
        let file = Arc::new(load(&dir, "b").0);
        let (delivery, stop) = (Arc::new(delivered(&[(1, false)])), CancellationToken::new());
        let keeping = tokio::spawn(keep(file, Arc::clone(&delivery), stop.clone()));
        let path = dir.path().join("state/kmsg.state");
        while !path.exists() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        keeping.await.unwrap();
        assert_eq!(load(&dir, "b").0.previous().resume, Some(2));
    }
}
