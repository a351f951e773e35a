//! Whether the previous run ended on purpose.
//!
//! In: the state directory. Out: a [`Gap`] where the previous run was killed; what was only in its memory is lost, and
//! that is reported instead of being passed over.
//! The file `session` holds the boot and the time the run was last known to be alive; a run that ends on purpose
//! removes it. What can go wrong: it cannot be written; then a kill goes unnoticed, and the errors are counted.

use std::path::PathBuf;

use super::record::Gap;
use crate::host::state_dir::{StateDir, StateDirError};
use crate::model::WallNs;
use crate::telemetry::Counter;

const NAME: &str = "session";

/// The mark of this run.
#[derive(Debug)]
pub struct Session {
    dir: StateDir,
    boot_id: String,
    errors: Counter,
}

impl Session {
    /// Begins a run; returns the gap that the previous one left.
    pub fn begin(dir: PathBuf, boot_id: &str, now: WallNs, errors: Counter) -> (Self, Option<Gap>) {
        let session = Self { dir: StateDir::new(dir), boot_id: boot_id.to_owned(), errors };
        let before = session.count(session.dir.read(NAME, 4_096)).flatten();
        let gap = before.and_then(|bytes| session.gap(&String::from_utf8_lossy(&bytes)));
        session.alive(now);
        (session, gap)
    }

    /// The run is still going.
    pub fn alive(&self, now: WallNs) {
        let line = format!("{} {}\n", self.boot_id, now.0);
        self.count(self.dir.write(NAME, line.as_bytes()));
    }

    /// The run ends on purpose.
    pub fn end(self) {
        self.count(self.dir.remove(NAME));
    }

    /// The kernel log's place is kept in the same directory, and says what is wrong with it.
    fn count<T>(&self, result: Result<T, StateDirError>) -> Option<T> {
        result.inspect_err(|_| self.errors.add(1)).ok()
    }

    fn gap(&self, text: &str) -> Option<Gap> {
        let (boot_id, last_seen) = text.trim_end().split_once(' ')?;
        Some(Gap { last_seen: WallNs(last_seen.parse().ok()?), rebooted: boot_id != self.boot_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;
    use std::fs;

    fn begin(dir: &std::path::Path, boot_id: &str) -> (Session, Option<Gap>) {
        Session::begin(dir.to_owned(), boot_id, WallNs(5), Counter::default())
    }

    #[test]
    fn only_a_run_that_did_not_end_on_purpose_leaves_a_gap() {
        let dir = TestDir::new();
        let (first, gap) = begin(dir.path(), "boot");
        assert_eq!(gap, None);
        first.end();
        let (second, gap) = begin(dir.path(), "boot");
        assert_eq!(gap, None);
        second.alive(WallNs(77));
        drop(second); // killed
        assert_eq!(begin(dir.path(), "boot").1, Some(Gap { last_seen: WallNs(77), rebooted: false }));
        assert_eq!(begin(dir.path(), "next").1, Some(Gap { last_seen: WallNs(5), rebooted: true }));
    }

    #[test]
    fn garbage_is_no_gap_and_a_directory_that_cannot_be_is_counted() {
        let dir = TestDir::new();
        fs::write(dir.path().join("session"), [0xff, b' ', b'x']).unwrap();
        assert_eq!(begin(dir.path(), "boot").1, None);
        let errors = Counter::default();
        fs::write(dir.path().join("file"), "").unwrap();
        let (_, gap) = Session::begin(dir.path().join("file"), "boot", WallNs(5), errors.clone());
        assert_eq!((gap, errors.get()), (None, 2), "reading and writing");
    }
}
