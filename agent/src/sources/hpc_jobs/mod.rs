//! Which batch jobs have which GPUs: a job mapping directory as dcgm-exporter's users have it.
//!
//! In: the directory, read every few seconds. Out: `Signal::JobDevices`, whenever it says something else than before.
//! What can go wrong: no directory (`Unavailable`; nobody has jobs then); single files that cannot be read, which are
//! counted and said once each. A read that hangs, on a file system of the network, is said as `slow` and waited for.
//!
//! Reading order: [`files`].

pub mod files;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Exit, Lack, Outlet, Source};
use crate::config::HpcJobsConfig;
use crate::host::mono_now;
use crate::model::signal::SourceState;
use crate::model::{JobDevices, Signal};
use crate::telemetry::{Counter, Telemetry};
use files::Listing;

/// Reading takes a millisecond; a round that takes this long hangs in a file system.
const SLOW: Duration = Duration::from_secs(3);

/// The source.
#[derive(Debug)]
pub struct HpcJobs {
    config: HpcJobsConfig,
    told: Option<Arc<JobDevices>>,
    /// Files that cannot be read now, and that was said.
    unreadable: BTreeMap<String, String>,
    malformed: u64,
    failures: [Counter; 2],
}

impl HpcJobs {
    /// Touches nothing yet.
    pub fn new(config: HpcJobsConfig, telemetry: &Telemetry) -> Self {
        let counter = |reason| {
            let attributes = [("stage", "job_mapping"), ("reason", reason)];
            telemetry.counter("warpgauge.mapping.failures", &attributes)
        };
        let failures = [counter("unreadable"), counter("malformed_job")];
        Self { config, told: None, unreadable: BTreeMap::new(), malformed: 0, failures }
    }

    /// The signal of a listing; `None` where it says what the one before did. What failed is counted once.
    fn take(&mut self, listing: Listing) -> Option<Arc<JobDevices>> {
        for (name, cause) in &listing.unreadable {
            if !self.unreadable.contains_key(name) {
                self.failures[0].add(1);
                warn!(
                    file = name,
                    cause, "A file of the job mapping directory cannot be read: its GPU has no job."
                );
            }
        }
        self.unreadable = listing.unreadable;
        self.failures[1].add(listing.malformed.saturating_sub(self.malformed));
        self.malformed = listing.malformed;
        self.tell(listing.jobs)
    }

    fn tell(&mut self, jobs: JobDevices) -> Option<Arc<JobDevices>> {
        if self.told.as_deref() == Some(&jobs) {
            return None;
        }
        let jobs = Arc::new(jobs);
        self.told = Some(Arc::clone(&jobs));
        Some(jobs)
    }
}

impl Source for HpcJobs {
    fn name(&self) -> &'static str {
        "hpc_jobs"
    }

    async fn run(&mut self, outlet: &Outlet, stop: &CancellationToken) -> Exit {
        let Some(directory) = self.config.directory.clone() else {
            return Exit::Unavailable(vec![Lack {
                reason: "disabled",
                what: "no job mapping directory is configured".to_owned(),
                remedy: "name it with --hpc-job-mapping-dir",
            }]);
        };
        let mut ticks = interval(self.config.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Exit::Stopped,
                _ = ticks.tick() => {}
            }
            let path = directory.clone();
            let reading = tokio::task::spawn_blocking(move || files::read(&path));
            let read = tokio::select! {
                biased;
                () = stop.cancelled() => return Exit::Stopped,
                read = in_time(reading, outlet) => read,
            };
            let (news, end) = match read {
                Ok(Ok(listing)) => (self.take(listing), None),
                Ok(Err(e)) => {
                    let what = format!("{}: {e}", directory.display());
                    let exit = match e.kind() {
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => lack("no_directory", what),
                        io::ErrorKind::PermissionDenied => lack("not_permitted", what),
                        _ => Exit::Failed(what.into()),
                    };
                    let news = self.told.is_some().then(|| self.tell(JobDevices::default())).flatten();
                    (news, Some(exit))
                }
                Err(e) => return Exit::Failed(Box::new(e)),
            };
            if let Some(jobs) = news {
                tokio::select! {
                    biased;
                    // it is said once, so it is not dropped
                    sent = outlet.send(Signal::JobDevices { at: mono_now(), jobs }) => {
                        if sent.is_err() {
                            return Exit::Stopped;
                        }
                    }
                    () = stop.cancelled() => return Exit::Stopped,
                }
            }
            if let Some(exit) = end {
                return exit;
            }
        }
    }
}

fn lack(reason: &'static str, what: String) -> Exit {
    let remedy =
        "mount the directory that the scheduler's prolog writes, or name it with --hpc-job-mapping-dir";
    Exit::Unavailable(vec![Lack { reason, what, remedy }])
}

/// Waits for a round as long as it takes, and says so when that is long.
async fn in_time<T>(mut reading: JoinHandle<T>, outlet: &Outlet) -> Result<T, tokio::task::JoinError> {
    if let Ok(read) = timeout(SLOW, &mut reading).await {
        return read;
    }
    warn!("The job mapping directory does not answer; the round waits for it, and the last jobs hold.");
    tell_slow(outlet, true).await;
    let read = reading.await;
    tell_slow(outlet, false).await;
    read
}

async fn tell_slow(outlet: &Outlet, slow: bool) {
    let reason = slow.then(|| "slow".to_owned());
    let source = SourceState { name: "hpc_jobs".to_owned(), up: !slow, reason, late: None };
    // A pipeline that has ended needs to know nothing more.
    let _ = outlet.send(Signal::Source { at: mono_now(), source }).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JobGrant;
    use crate::sources::queue;
    use crate::test_dir::TestDir;

    /// Runs the source on a directory; the test ends it by dropping the receiver or the token.
    async fn jobs(rx: &mut tokio::sync::mpsc::Receiver<Signal>) -> Vec<JobGrant> {
        let signal = timeout(Duration::from_secs(30), rx.recv()).await.unwrap().unwrap();
        let Signal::JobDevices { jobs, .. } = signal else { panic!("{signal:?}") };
        jobs.grants.clone()
    }

    fn grant(gpu: u32, job: &str) -> JobGrant {
        JobGrant { gpu, instance: None, jobs: vec![job.to_owned()] }
    }

    #[tokio::test]
    async fn only_changes_are_told_and_a_directory_that_goes_takes_its_jobs_along() {
        let dir = TestDir::new();
        let path = dir.path().join("jobs");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("0"), "4711\n").unwrap();
        std::fs::create_dir(path.join("3")).unwrap();
        let telemetry = Telemetry::default();
        let config = HpcJobsConfig { directory: Some(path.clone()), interval: Duration::from_millis(5) };
        let mut source = HpcJobs::new(config, &telemetry);
        let (tx, mut rx) = queue(16);
        let outlet = Outlet::new(tx, "hpc_jobs", &telemetry);
        let stop = CancellationToken::new();
        let running = tokio::spawn(async move { source.run(&outlet, &stop).await });
        assert_eq!(jobs(&mut rx).await, [grant(0, "4711")]);
        std::fs::write(path.join("1.new"), "4712\n").unwrap();
        std::fs::rename(path.join("1.new"), path.join("1")).unwrap();
        assert_eq!(jobs(&mut rx).await, [grant(0, "4711"), grant(1, "4712")]);
        std::fs::remove_file(path.join("0")).unwrap();
        assert_eq!(jobs(&mut rx).await, [grant(1, "4712")]);
        let failures = [("stage", "job_mapping"), ("reason", "unreadable")];
        assert_eq!(
            telemetry.counter("warpgauge.mapping.failures", &failures).get(),
            1,
            "once, not each round"
        );
        std::fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        assert_eq!(jobs(&mut rx).await, []);
        let Exit::Unavailable(lacks) = running.await.unwrap() else { panic!("not there") };
        assert_eq!(lacks[0].reason, "no_directory");
        assert!(rx.recv().await.is_none());
    }
}
