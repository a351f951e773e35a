//! Records that could not be delivered before the agent stopped, kept for the next run.
//!
//! In: encoded records. Out: the file `undelivered.pb` in the state directory: an OTLP `LogsData`, which any tool that
//! knows OTLP can read. Written whole under another name, then renamed; 0600; links are not followed.
//! What can go wrong: no room or no rights (the records are dropped, counted); a file that is not ours or not whole is
//! set aside as `undelivered.bad`, reported, and never stops the agent.

use std::path::PathBuf;

use opentelemetry_proto::tonic::logs::v1::{LogRecord, LogsData, ResourceLogs, ScopeLogs};
use prost::Message;

use crate::host::state_dir::{StateDir, StateDirError};

const NAME: &str = "undelivered.pb";
const ASIDE: &str = "undelivered.bad";
/// Larger than any queue may be; a file beyond it is not ours.
const LARGEST: u64 = 32 << 20;

/// A spool that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The directory or the file.
    #[error(transparent)]
    Dir(#[from] StateDirError),
    /// Not a spool of ours.
    #[error("{0}; the file was set aside as {ASIDE}, and its records are lost")]
    Unreadable(String),
}

/// The spool of one state directory.
#[derive(Clone, Debug)]
pub struct Spool {
    dir: StateDir,
}

impl Spool {
    /// In this directory, which need not exist yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: StateDir::new(dir.into()) }
    }

    /// The records of the previous run, oldest first, encoded; the file stays until [`Self::remove`].
    ///
    /// # Errors
    /// [`SpoolError::Unreadable`] for a file that is not a spool, which is set aside.
    pub fn load(&self) -> Result<Vec<Vec<u8>>, SpoolError> {
        let bytes = match self.dir.read(NAME, LARGEST) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Vec::new()),
            Err(error @ StateDirError::File { .. }) => return Err(self.set_aside(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        match LogsData::decode(bytes.as_slice()) {
            Ok(data) => Ok(records(data).map(|record| record.encode_to_vec()).collect()),
            Err(error) => Err(self.set_aside(format!("{NAME}: {error}"))),
        }
    }

    /// Keeps these records for the next run, in place of any that were kept before.
    ///
    /// # Errors
    /// [`SpoolError::Dir`]; what was kept before is then still there.
    pub fn store<'a>(&self, items: impl Iterator<Item = &'a [u8]>) -> Result<(), SpoolError> {
        // What this program encoded decodes again.
        let log_records = items.filter_map(|bytes| LogRecord::decode(bytes).ok()).collect();
        let scope_logs = vec![ScopeLogs { log_records, ..ScopeLogs::default() }];
        let data = LogsData { resource_logs: vec![ResourceLogs { scope_logs, ..ResourceLogs::default() }] };
        Ok(self.dir.write(NAME, &data.encode_to_vec())?)
    }

    /// Nothing of the previous run is left.
    ///
    /// # Errors
    /// [`SpoolError::Dir`]; its records will be sent again by the next run.
    pub fn remove(&self) -> Result<(), SpoolError> {
        Ok(self.dir.remove(NAME)?)
    }

    /// Renaming keeps the evidence and makes the report once instead of at every start.
    fn set_aside(&self, what: String) -> SpoolError {
        match self.dir.set_aside(NAME, ASIDE) {
            Ok(()) => SpoolError::Unreadable(what),
            Err(error) => error.into(),
        }
    }
}

fn records(data: LogsData) -> impl Iterator<Item = LogRecord> {
    let scopes = data.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
    scopes.flat_map(|scope| scope.log_records)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::test_dir::TestDir;

    fn record(name: &str) -> Vec<u8> {
        LogRecord { event_name: name.into(), ..LogRecord::default() }.encode_to_vec()
    }

    #[test]
    fn what_is_stored_is_loaded_until_it_is_removed() {
        let dir = TestDir::new();
        let spool = Spool::new(dir.path());
        assert_eq!(spool.load().unwrap(), Vec::<Vec<u8>>::new());
        let kept = [record("a"), record("b")];
        spool.store([record("old")].iter().map(Vec::as_slice)).unwrap();
        spool.store(kept.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(spool.load().unwrap(), kept);
        let mode = fs::metadata(dir.path().join("undelivered.pb")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        spool.remove().unwrap();
        spool.remove().unwrap();
        assert_eq!(spool.load().unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn garbage_is_set_aside_and_reported_once() {
        let dir = TestDir::new();
        let (spool, path) = (Spool::new(dir.path()), dir.path().join("undelivered.pb"));
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        fs::write(&path, [0xff_u8; 64]).unwrap();
        assert!(matches!(spool.load(), Err(SpoolError::Unreadable(_))));
        assert_eq!(spool.load().unwrap().len(), 0);
        symlink(&victim, &path).unwrap();
        assert!(matches!(spool.load(), Err(SpoolError::Unreadable(_))), "a link is not followed");
        symlink(&victim, dir.path().join("undelivered.pb.new")).unwrap();
        symlink(&victim, &path).unwrap();
        spool.store([record("a")].iter().map(Vec::as_slice)).unwrap();
        assert_eq!(
            fs::read_to_string(&victim).unwrap(),
            "mine",
            "written beside the links, not through them"
        );
        assert_eq!(spool.load().unwrap(), [record("a")]);
    }

    #[test]
    fn a_directory_that_cannot_be_is_an_error_that_names_it() {
        let dir = TestDir::new();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = Spool::new(dir.path().join("file")).store(std::iter::empty()).unwrap_err();
        assert!(error.to_string().contains(&format!("{}/file", dir.path().display())), "{error}");
    }
}
