//! Records that could not be delivered before the agent stopped, kept for the next run.
//!
//! In: encoded records. Out: the file `undelivered.pb` in the state directory: an OTLP `LogsData`, which any tool that
//! knows OTLP can read. Written whole under another name, then renamed; 0600; links are not followed.
//! What can go wrong: no room, no rights or no answer of the disk (the records are dropped, counted); a file that is
//! not ours or not whole is set aside as `undelivered.bad`, reported, and never stops the agent.

use std::path::PathBuf;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, LogsData, ResourceLogs, ScopeLogs};
use prost::Message;
use tokio::time::Instant;

use crate::export::state_writer::StateWriter;
use crate::host::state_dir::{StateDir, StateDirError};
use crate::telemetry::Counter;

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
    /// A disk that hangs.
    #[error("the disk of the state directory does not answer")]
    Hangs,
}

/// What the previous run left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// To be sent, oldest first, encoded.
    pub records: Vec<Vec<u8>>,
    /// Records of this boot's kernel log by their numbers: they are read again, and sent then.
    pub reread: Vec<(u64, Vec<u8>)>,
}

/// The spool of one state directory.
#[derive(Clone, Debug)]
pub struct Spool {
    dir: StateDir,
    /// None: this boot cannot be told from another, so that nothing may count on its kernel log.
    boot_id: Option<String>,
    writer: StateWriter,
    errors: Counter,
}

impl Spool {
    /// In this directory, which need not exist yet; `errors` counts what goes wrong.
    pub fn new(
        dir: impl Into<PathBuf>,
        boot_id: Option<String>,
        writer: StateWriter,
        errors: Counter,
    ) -> Self {
        Self { dir: StateDir::new(dir.into()), boot_id, writer, errors }
    }

    /// The records of the previous run; the file stays until [`Self::remove`] or [`Self::store`]. Blocks on the disk.
    ///
    /// # Errors
    /// [`SpoolError::Unreadable`] for a file that is not a spool, which is set aside.
    pub fn load(&self) -> Result<Loaded, SpoolError> {
        self.read().inspect_err(|_| self.errors.add(1))
    }

    /// Keeps these records for the next run, in place of any that were kept before. Waits until the deadline at most.
    ///
    /// # Errors
    /// [`SpoolError::Dir`]; what was kept before is then still there. [`SpoolError::Hangs`]; it may still be done.
    pub async fn store(&self, items: Vec<Vec<u8>>, deadline: Instant) -> Result<(), SpoolError> {
        let dir = self.dir.clone();
        let stored = self.writer.answer(deadline, move || {
            // What this program encoded decodes again.
            let log_records = items.iter().filter_map(|bytes| LogRecord::decode(bytes.as_slice()).ok());
            let scope_logs = vec![ScopeLogs { log_records: log_records.collect(), ..ScopeLogs::default() }];
            let data =
                LogsData { resource_logs: vec![ResourceLogs { scope_logs, ..ResourceLogs::default() }] };
            dir.write(NAME, &data.encode_to_vec())
        });
        let stored = stored.await.map_or(Err(SpoolError::Hangs), |written| Ok(written?));
        stored.inspect_err(|_| self.errors.add(1))
    }

    /// Nothing of the previous run is left. Never waits; should it fail, its records will be sent again.
    pub fn remove(&self) {
        let (dir, errors) = (self.dir.clone(), self.errors.clone());
        let asked = self.writer.ask(move || {
            if let Err(error) = dir.remove(NAME) {
                errors.add(1);
                tracing::warn!("delivered records will be sent again after a restart: {error}");
            }
        });
        if !asked {
            self.errors.add(1);
        }
    }

    fn read(&self) -> Result<Loaded, SpoolError> {
        let bytes = match self.dir.read(NAME, LARGEST) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Loaded::default()),
            Err(error @ StateDirError::File { .. }) => return Err(self.set_aside(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let data = match LogsData::decode(bytes.as_slice()) {
            Ok(data) => data,
            Err(error) => return Err(self.set_aside(format!("{NAME}: {error}"))),
        };
        let mut loaded = Loaded::default();
        for record in records(data) {
            match self.seq(&record) {
                Some(seq) => loaded.reread.push((seq, record.encode_to_vec())),
                None => loaded.records.push(record.encode_to_vec()),
            }
        }
        Ok(loaded)
    }

    /// The record's number in the kernel log of this boot. The log of an earlier boot is gone.
    fn seq(&self, record: &LogRecord) -> Option<u64> {
        let uid = record.attributes.iter().find(|pair| pair.key == "log.record.uid")?;
        let Some(Value::StringValue(uid)) = &uid.value.as_ref()?.value else { return None };
        let seq = uid.strip_prefix(self.boot_id.as_deref()?)?.strip_prefix(':')?;
        seq.bytes().all(|b| b.is_ascii_digit()).then(|| seq.parse().ok())?
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
    use crate::export::otlp::encode::text_pair;
    use crate::export::state_writer::tests::soon;
    use crate::test_dir::TestDir;

    fn record(uid: &str) -> Vec<u8> {
        LogRecord { attributes: vec![text_pair("log.record.uid", uid)], ..LogRecord::default() }
            .encode_to_vec()
    }

    fn spool(dir: impl Into<PathBuf>) -> Spool {
        Spool::new(dir, Some("boot".into()), StateWriter::start().unwrap(), Counter::default())
    }

    fn only(records: &[Vec<u8>]) -> Loaded {
        Loaded { records: records.to_vec(), reread: Vec::new() }
    }

    #[tokio::test]
    async fn what_is_stored_is_loaded_until_it_is_removed() {
        let dir = TestDir::new();
        let spool = spool(dir.path());
        assert_eq!(spool.load().unwrap(), Loaded::default());
        let kept = [record("a"), record("b")];
        spool.store(vec![record("old")], soon()).await.unwrap();
        spool.store(kept.to_vec(), soon()).await.unwrap();
        assert_eq!(spool.load().unwrap(), only(&kept));
        let mode = fs::metadata(dir.path().join("undelivered.pb")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        spool.remove();
        spool.remove();
        spool.writer.settled().await;
        assert_eq!(spool.load().unwrap(), Loaded::default());
        assert_eq!(spool.errors.get(), 0);
    }

    #[tokio::test]
    async fn only_this_boots_kernel_log_is_read_again() {
        let dir = TestDir::new();
        let mut spool = spool(dir.path());
        let uids = ["boot:7", "old:8", "boot:stall-1:begin", "boot:", "boot:9x", "boot2:3", "boot:+5"];
        spool.store(uids.map(record).to_vec(), soon()).await.unwrap();
        let loaded = spool.load().unwrap();
        assert_eq!(loaded.reread, [(7, record("boot:7"))]);
        assert_eq!(loaded.records, uids[1..].iter().map(|uid| record(uid)).collect::<Vec<_>>());
        spool.boot_id = None;
        assert_eq!(spool.load().unwrap().records.len(), uids.len(), "an unknown boot may be another");
    }

    #[tokio::test]
    async fn garbage_is_set_aside_and_reported_once() {
        let dir = TestDir::new();
        let (spool, path) = (spool(dir.path()), dir.path().join("undelivered.pb"));
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        fs::write(&path, [0xff_u8; 64]).unwrap();
        assert!(matches!(spool.load(), Err(SpoolError::Unreadable(_))));
        assert_eq!((spool.load().unwrap(), spool.errors.get()), (Loaded::default(), 1));
        symlink(&victim, &path).unwrap();
        assert!(matches!(spool.load(), Err(SpoolError::Unreadable(_))), "a link is not followed");
        symlink(&victim, dir.path().join("undelivered.pb.new")).unwrap();
        symlink(&victim, &path).unwrap();
        spool.store(vec![record("a")], soon()).await.unwrap();
        let written = fs::read_to_string(&victim).unwrap();
        assert_eq!(written, "mine", "written beside the links, not through them");
        assert_eq!(spool.load().unwrap(), only(&[record("a")]));
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_is_an_error_that_names_it() {
        let dir = TestDir::new();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = spool(dir.path().join("file")).store(Vec::new(), soon()).await.unwrap_err();
        assert!(error.to_string().contains(&format!("{}/file", dir.path().display())), "{error}");
    }
}
