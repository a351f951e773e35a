//! Records that could not be delivered before the agent stopped, kept for the next run.
//!
//! In: encoded records. Out: the file `undelivered.pb` in the state directory: an OTLP `LogsData`, which any tool that
//! knows OTLP can read. Written whole under another name, then renamed; 0600; links are not followed.
//! What can go wrong: no room or no rights (the records are dropped, counted); a file that is not ours or not whole is
//! set aside as `undelivered.bad`, reported, and never stops the agent.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use opentelemetry_proto::tonic::logs::v1::{LogRecord, LogsData, ResourceLogs, ScopeLogs};
use prost::Message;

use crate::export::state_file::{read_regular, write_whole};

/// Larger than any queue may be; a file beyond it is not ours.
const LARGEST: u64 = 32 << 20;

/// A spool that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The system refused.
    #[error("{path}: {error}; check that the state directory exists, is writable and has room")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// Not a spool of ours.
    #[error("{path}: {what}; the file was set aside and its records are lost")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// The spool of one state directory.
#[derive(Clone, Debug)]
pub struct Spool {
    dir: PathBuf,
}

impl Spool {
    /// In this directory, which need not exist yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The records of the previous run, oldest first, encoded; the file stays until [`Self::remove`].
    ///
    /// # Errors
    /// [`SpoolError::Unreadable`] for a file that is not a spool, which is set aside.
    pub fn load(&self) -> Result<Vec<Vec<u8>>, SpoolError> {
        let path = self.file("undelivered.pb");
        let bytes = match read_regular(&path, LARGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.set_aside(path, error.to_string())),
        };
        match LogsData::decode(bytes.as_slice()) {
            Ok(data) => Ok(records(data).map(|record| record.encode_to_vec()).collect()),
            Err(error) => Err(self.set_aside(path, error.to_string())),
        }
    }

    /// Keeps these records for the next run, in place of any that were kept before.
    ///
    /// # Errors
    /// [`SpoolError::Io`]; what was kept before is then still there.
    pub fn store<'a>(&self, items: impl Iterator<Item = &'a [u8]>) -> Result<(), SpoolError> {
        // What this program encoded decodes again.
        let log_records = items.filter_map(|bytes| LogRecord::decode(bytes).ok()).collect();
        let scope_logs = vec![ScopeLogs { log_records, ..ScopeLogs::default() }];
        let data = LogsData { resource_logs: vec![ResourceLogs { scope_logs, ..ResourceLogs::default() }] };
        let (new, path) = (self.file("undelivered.new"), self.file("undelivered.pb"));
        write_whole(&new, &data.encode_to_vec(), true)
            .and_then(|()| fs::rename(&new, &path))
            .and_then(|()| File::open(&self.dir)?.sync_all())
            .map_err(|error| SpoolError::Io { path, error })
    }

    /// Nothing of the previous run is left.
    ///
    /// # Errors
    /// [`SpoolError::Io`]; its records will be sent again by the next run.
    pub fn remove(&self) -> Result<(), SpoolError> {
        let path = self.file("undelivered.pb");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SpoolError::Io { path, error }),
            _ => Ok(()),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Renaming keeps the evidence and makes the report once instead of at every start.
    fn set_aside(&self, path: PathBuf, what: String) -> SpoolError {
        match fs::rename(&path, self.file("undelivered.bad")) {
            Ok(()) => SpoolError::Unreadable { path, what },
            Err(error) => SpoolError::Io { path, error },
        }
    }
}

fn records(data: LogsData) -> impl Iterator<Item = LogRecord> {
    let scopes = data.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
    scopes.flat_map(|scope| scope.log_records)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn record(name: &str) -> Vec<u8> {
        LogRecord { event_name: name.into(), ..LogRecord::default() }.encode_to_vec()
    }

    #[test]
    fn what_is_stored_is_loaded_until_it_is_removed() {
        let dir = crate::export::samples::scratch("spool");
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
        let dir = crate::export::samples::scratch("spool");
        let (spool, path) = (Spool::new(dir.path()), dir.path().join("undelivered.pb"));
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        fs::write(&path, [0xff_u8; 64]).unwrap();
        assert!(matches!(spool.load(), Err(SpoolError::Unreadable { .. })));
        assert_eq!(spool.load().unwrap().len(), 0);
        symlink(&victim, &path).unwrap();
        assert!(matches!(spool.load(), Err(SpoolError::Unreadable { .. })), "a link is not followed");
        symlink(&victim, dir.path().join("undelivered.new")).unwrap();
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
    fn a_missing_directory_is_an_error_that_names_the_file() {
        let dir = crate::export::samples::scratch("spool");
        let error = Spool::new(dir.path().join("missing")).store(std::iter::empty()).unwrap_err();
        assert!(error.to_string().contains("missing/undelivered.pb"), "{error}");
    }
}
