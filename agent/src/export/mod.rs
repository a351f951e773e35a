//! Export: findings leave at once as records and lines, metrics at their interval.
//!
//! In: attributed facts. Out: OTLP to a collector, and lines for people where there is none (or both).
//! What can go wrong: a receiver is away, slow or refuses; it loses its own batches only, counted, and no other
//! receiver and no earlier stage ever waits for it. A configuration that cannot work is an error at start.

pub mod catalog;
pub mod console;
pub mod device_catalog;
pub mod devices;
pub mod driver_catalog;
pub mod findings;
pub mod kubelet_catalog;
pub mod metrics_page;
pub mod otlp;
pub mod own_logs;
pub mod own_points;
pub mod places;
pub mod point;
pub mod probe_catalog;
pub mod record;
#[cfg(test)]
mod samples;
pub mod series;
pub mod series_key;
mod series_state;
pub mod session;
pub mod snapshot;
pub mod stalls;
pub mod state_writer;
pub mod status_record;
#[cfg(test)]
mod tests;
pub mod whose;
pub mod workload_catalog;
pub mod workloads;

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use self::console::{Console, Settles};
use self::otlp::resource::HostFacts;
use self::otlp::{Connector, Left, Otlp, OtlpError, Setup, Spool};
use self::point::Batch;
use self::record::{Record, Recorder};
use self::series::Limits;
use self::session::{GapSettled, Session};
use self::snapshot::Snapshot;
use self::state_writer::StateWriter;
use crate::config::ExportConfig;
use crate::host::{HostRoot, wall_anchor};
use crate::model::operation::Majors;
use crate::model::{Attributed, Delivery, Fact, WallAnchor};
use crate::telemetry::Telemetry;

/// What everything still queued gets at the end, in all, where nobody set a deadline.
const LAST: Duration = Duration::from_secs(5);

/// What the exporters are made of.
pub struct Parts {
    /// What was configured.
    pub config: ExportConfig,
    /// Whose telemetry this is.
    pub facts: HostFacts,
    /// Where /proc is.
    pub host: HostRoot,
    /// Where undelivered records are kept; must exist, 0700. `None` keeps none.
    pub state_dir: Option<PathBuf>,
    /// Whom to tell of settled kernel-log records.
    pub delivery: Arc<Delivery>,
    /// The agent's own numbers.
    pub telemetry: Telemetry,
    /// Where the console prints.
    pub stdout: Box<dyn Write + Send>,
}

/// Exporters that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The OTLP configuration cannot work.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    /// No thread for the console.
    #[error("no thread for the console: {0}; raise the limit of processes")]
    Console(std::io::Error),
    /// No thread for the state directory.
    #[error("no thread for the state directory: {0}; raise the limit of processes")]
    State(std::io::Error),
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Findings taken in.
    pub findings: u64,
    /// What became of records that could not be delivered.
    pub left: Left,
}

/// All exporters, started.
#[derive(Debug)]
pub struct Exporter {
    snapshot: Snapshot,
    recorder: Recorder,
    majors: Majors,
    otlp: Option<Otlp>,
    console: Option<Console>,
    session: Option<Session>,
    host: HostRoot,
    interval: Duration,
    findings: u64,
    deadline: Arc<OnceLock<Instant>>,
}

impl Exporter {
    /// Starts the exporters; must be called on the runtime. Nothing needs to be reachable.
    ///
    /// # Errors
    /// [`ExportError`], for a configuration that cannot work.
    pub fn new(parts: Parts) -> Result<Self, ExportError> {
        let Parts { config, facts, host, state_dir, delivery, telemetry, stdout } = parts;
        let boot_id = facts.boot_id.clone().unwrap_or_else(|| "unknown".to_owned());
        let recorder = Recorder::new(&boot_id);
        let now = wall_anchor();
        let gap_settled = GapSettled::default();
        let writer = match &state_dir {
            Some(_) => Some(StateWriter::start().map_err(ExportError::State)?),
            None => None,
        };
        let state = state_dir.zip(writer);
        let errors = telemetry.counter("warpgauge.state.errors", &[]);
        let (console, otlp) = match &config.otlp {
            None => {
                let settles = Settles { delivery, gap: gap_settled.clone() };
                (Some(Console::start(stdout, Some(settles), &telemetry)), None)
            }
            Some(otlp) => {
                let attributes =
                    otlp::resource::attributes(&facts, &config.service_name, &config.resource_attributes);
                let spool = |(dir, writer): (PathBuf, StateWriter)| {
                    Spool::new(dir, facts.boot_id.clone(), writer, errors.clone())
                };
                let setup = Setup {
                    connector: Arc::new(Connector::new(otlp.clone())?),
                    resource: otlp::resource(&attributes),
                    policy: otlp::retry::Policy::default(),
                    delivery,
                    gap: gap_settled.clone(),
                    spool: state.clone().map(spool),
                    telemetry: telemetry.clone(),
                    reach: otlp::reach::Reach::default(),
                };
                // With a collector, only its acknowledgement settles a record.
                let console = config.console.then(|| Console::start(stdout, None, &telemetry));
                (console, Some(Otlp::start(setup)?))
            }
        };
        let console = console.transpose().map_err(ExportError::Console)?;
        let majors = majors(&host);
        let mut exporter = Self {
            snapshot: Snapshot::new(now.wall, majors, Limits::default(), telemetry.clone()),
            recorder,
            majors,
            otlp,
            console,
            session: None,
            host,
            interval: config.metric_interval.max(Duration::from_millis(1)),
            findings: 0,
            deadline: Arc::default(),
        };
        let gaps = telemetry.counter("warpgauge.restart.gaps", &[]);
        if let Some((dir, writer)) = state {
            let (session, gap) = Session::begin(dir, &boot_id, now, writer, errors, gap_settled);
            exporter.session = Some(session);
            if let Some(gap) = gap {
                gaps.add(1);
                exporter.note(&exporter.recorder.gap(&gap, now));
            }
        }
        Ok(exporter)
    }

    /// The end has a deadline: whoever sets it before the inlet closes says by when [`Self::run`] returns.
    #[must_use]
    pub fn ending_by(mut self, deadline: Arc<OnceLock<Instant>>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Exports until the inlet closes or a sender has died, then delivers what is left, until the deadline or within 5 s.
    pub async fn run(mut self, mut inlet: mpsc::Receiver<Attributed<Fact>>) -> Report {
        let mut ticks = interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut marks = interval_at(Instant::now() + session::EVERY, session::EVERY);
        marks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                fact = inlet.recv() => match fact {
                    Some(fact) => self.take(&fact),
                    None => break,
                },
                _ = ticks.tick() => {
                    if self.otlp.as_ref().is_some_and(Otlp::is_dead) {
                        break; // whoever runs this sees that it has ended, and starts the agent again
                    }
                    self.tick();
                }
                _ = marks.tick() => self.alive(wall_anchor()),
            }
        }
        self.finish().await
    }

    fn take(&mut self, fact: &Attributed<Fact>) {
        self.snapshot.push(fact);
        let Fact::Finding(finding) = &fact.item else { return };
        self.findings += 1;
        let now = wall_anchor();
        let record = self.recorder.finding(finding, fact, &self.majors, now);
        if let Some(otlp) = &self.otlp {
            otlp.emit(&record);
        }
        if let Some(console) = &self.console {
            console.finding(finding, fact, &record, &self.majors, now);
        }
    }

    fn note(&self, record: &Record) {
        if let Some(otlp) = &self.otlp {
            otlp.emit(record);
        }
        if let Some(console) = &self.console {
            console.note(record);
        }
    }

    fn tick(&mut self) {
        // UVM's major is dynamic, and its module may be loaded after the agent.
        self.majors = majors(&self.host);
        self.snapshot.set_majors(self.majors);
        let now = wall_anchor();
        self.alive(now);
        match &self.otlp {
            Some(otlp) => {
                let batch = collect(&mut self.snapshot, otlp.zeros_settled(), &self.host, self.interval);
                otlp.offer(batch);
            }
            None => self.snapshot.expire(),
        }
    }

    fn alive(&mut self, now: WallAnchor) {
        if let Some(session) = &mut self.session {
            session.alive(now);
        }
    }

    async fn finish(mut self) -> Report {
        let deadline = self.deadline.get().copied().unwrap_or_else(|| Instant::now() + LAST);
        let (snapshot, host) = (&mut self.snapshot, &self.host);
        let printed = async {
            if let Some(console) = self.console {
                console.finish(otlp::part(deadline, 0.8)).await;
            }
        };
        // The mark of this run goes once it is known what became of the record of the gap before it.
        let ended = async |left: Left| {
            if let Some(session) = self.session {
                session.end(deadline, left.dropped > 0).await;
            }
        };
        let left = if let Some(otlp) = self.otlp {
            let settled = otlp.zeros_settled();
            let last = || collect(snapshot, settled, host, self.interval);
            tokio::join!(otlp.finish(deadline, last, ended), printed).0
        } else {
            printed.await;
            ended(Left::default()).await;
            Left::default()
        };
        Report { findings: self.findings, left }
    }
}

fn collect(snapshot: &mut Snapshot, settled: u64, host: &HostRoot, interval: Duration) -> Batch {
    snapshot.settle_zeros(settled);
    snapshot.collect(wall_anchor(), interval, own_points::usage(host))
}

/// Empty where /proc/devices cannot be read: UVM's operations are numbers then.
fn majors(host: &HostRoot) -> Majors {
    Majors::from_proc_devices(&std::fs::read_to_string(host.proc("devices")).unwrap_or_default())
}
