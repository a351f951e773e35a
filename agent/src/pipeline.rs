//! The wiring, from top to bottom the way of the data. Nothing else connects stages.
//!
//! In: the checked configuration. Out: an agent that runs until it is told to stop, or a replay's findings.
//! What can go wrong: any single part; each is reported where it happens, and the rest goes on.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Config;
use crate::control;
use crate::correlate::Correlate;
use crate::enrich::lookup::Lookup;
use crate::enrich::{Ask, Attributor};
use crate::export::otlp::resource::HostFacts;
use crate::export::{self, ExportError};
use crate::host;
use crate::host::state_dir::{Lock, StateDir, StateDirError};
use crate::model::{Attributed, Delivery, Fact, MonoNs, Signal};
use crate::sources::host::HostValues;
use crate::sources::hpc_jobs::HpcJobs;
use crate::sources::kmsg::KernelLog;
use crate::sources::kmsg::state::{self, StateFile};
use crate::sources::kubelet::Kubelet;
use crate::sources::open_nodes::{self, NodeHolders};
use crate::sources::probes::schedule::{self, Order};
use crate::sources::probes::unload::UnloadAttempt;
use crate::sources::probes::{Never, Probes};
use crate::sources::replay::{self, BadLine};
use crate::sources::worker::board::Board;
use crate::sources::worker::hold::{DriverHold, Reason};
use crate::sources::worker::{self, Worker, desk};
use crate::sources::{self, Outlet};
use crate::supervise::{keep_up, supervise};
use crate::telemetry::Telemetry;

/// Signals waiting for the correlation. At 200 bytes each: 1.6 MB at most.
const SIGNALS_MAX: usize = 8_192;
/// Attributed facts waiting for the exporters.
const FACTS_MAX: usize = 4_096;
/// Attempts to unload the driver that were seen and not acted on yet; the first one counts.
const UNLOADS_MAX: usize = 4;
/// Orders to follow processes that wait for the probes; what finds no room is ordered again when its stall is told again.
const ORDERS_MAX: usize = 256;
/// Orders to look at the nodes that a process has open; what finds no room is made good for by the next round over all.
const LOOKS_MAX: usize = 1_024;
/// From being told to stop to the last delivery. With what follows it stays below 5 s.
const WITHIN: Duration = Duration::from_millis(4_000);
/// What the sources get of it to say what has ended meanwhile.
const SOURCES_STOP: Duration = Duration::from_millis(500);
/// What the disk gets afterwards to keep the kernel log's place.
const LAST_SAVE: Duration = Duration::from_millis(300);
/// How often time passes for the correlation when nothing happens.
const TICK: Duration = Duration::from_millis(250);

/// The pure stages, one after the other.
#[derive(Debug)]
pub struct Stages {
    correlate: Correlate,
    attributor: Attributor,
    lookup: Option<Lookup>,
    facts: Vec<Fact>,
    asks: Vec<Ask>,
}

impl Stages {
    /// Stages without any history; without `lookup`, processes are known from the signals alone.
    pub fn new(config: &Config, lookup: Option<Lookup>, telemetry: &Telemetry) -> Self {
        Self {
            correlate: Correlate::new(config.correlate.clone(), telemetry),
            attributor: Attributor::new(telemetry),
            lookup,
            facts: Vec::new(),
            asks: Vec::new(),
        }
    }

    /// Takes one signal down the stages.
    pub fn push(&mut self, signal: Signal, out: &mut Vec<Attributed<Fact>>) {
        let at = signal.at();
        self.correlate.push(signal, &mut self.facts);
        for fact in self.facts.drain(..) {
            self.attributor.asks(&fact, &mut self.asks);
            answer(&mut self.lookup, &mut self.attributor, &mut self.asks, at);
            let mut attributed = self.attributor.attribute(fact);
            self.attributor.name_asks(&attributed, at, &mut self.asks);
            if answer(&mut self.lookup, &mut self.attributor, &mut self.asks, at) {
                self.attributor.name(&mut attributed);
            }
            out.push(attributed);
        }
        self.attributor.uid_asks(at, &mut self.asks);
        answer(&mut self.lookup, &mut self.attributor, &mut self.asks, at);
        self.attributor.late(at, out);
    }
}

/// Answers what was asked, where there is anybody to ask. Returns whether something was.
fn answer(to: &mut Option<Lookup>, attributor: &mut Attributor, asks: &mut Vec<Ask>, at: MonoNs) -> bool {
    let asked = !asks.is_empty();
    if let (true, Some(lookup)) = (asked, to) {
        // Reads of /proc, and now and then a walk of the cgroups: other tasks move aside meanwhile.
        tokio::task::block_in_place(|| asks.drain(..).for_each(|ask| lookup.answer(ask, at, attributor)));
    }
    asks.clear();
    asked
}

/// An agent that cannot go on, or cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// A configuration that cannot work.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A part that must not end ended by itself.
    #[error("the {0} ended by itself, which is a fault of the agent; it should be started again")]
    Ended(&'static str),
}

/// Runs the agent until `stop`; returns after everything that can be delivered was, within 5 s of being told to.
///
/// # Errors
/// [`PipelineError`]; what was running was stopped in order.
pub async fn run(
    mut config: Config,
    facts_of_host: HostFacts,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> Result<(), PipelineError> {
    let _lock = lock_state(&mut config).await;
    let delivery = Arc::new(Delivery::default());
    let state = Arc::new(StateFile::load(config.state_dir.clone(), &config.host, &telemetry));
    let deadline = Arc::new(OnceLock::new());

    let (facts_tx, facts_rx) = mpsc::channel(FACTS_MAX);
    let parts = export::Parts {
        config: config.export.clone(),
        facts: facts_of_host,
        host: config.host.clone(),
        state_dir: config.state_dir.clone(),
        delivery: Arc::clone(&delivery),
        telemetry: telemetry.clone(),
        stdout: Box::new(std::io::stdout()),
    };
    let mut exporter =
        tokio::spawn(export::Exporter::new(parts)?.ending_by(Arc::clone(&deadline)).run(facts_rx));

    let stages =
        Stages::new(&config, Some(Lookup::here(config.host.clone(), config.probes.cgroup)), &telemetry);
    let (signals_tx, signals_rx) = sources::queue(SIGNALS_MAX);
    let (orders_tx, orders_rx) = mpsc::channel(ORDERS_MAX);
    let (looks_tx, looks_rx) = mpsc::channel(LOOKS_MAX);
    let mut pipe = tokio::spawn(pass_on(stages, signals_rx, facts_tx, (orders_tx, looks_tx)));

    let (attached, mut detached) = mpsc::channel(1);
    let ends = Ends { signals: signals_tx, orders: orders_rx, looks: looks_rx, attached };
    let mut running = start_sources(&config, &state, &delivery, ends, &telemetry, &stop);
    let to = config.export.otlp.as_ref().map_or("standard output", |otlp| otlp.endpoint.as_str());
    info!(to, "Watching; findings go there as they come.");
    let (kept, of, ending) = (Arc::clone(&state), Arc::clone(&delivery), stop.clone());
    let keep = move || state::keep(Arc::clone(&kept), Arc::clone(&of), ending.clone());
    let keeper = tokio::spawn(keep_up("state", stop.clone(), keep));

    let ended = tokio::select! {
        biased; // told to stop, the parts end in a moment, and that is no fault
        () = stop.cancelled() => None,
        _ = &mut pipe => Some("correlation"),
        _ = &mut exporter => Some("export"),
    };
    info!("Stopping: what is queued is delivered first.");
    let end = Instant::now() + WITHIN;
    deadline.get_or_init(|| end);
    stop.cancel();
    // The last source drops the last sender, which ends `pipe`, which ends the exporter.
    let stopped = async { while running.join_next().await.is_some() {} };
    if timeout(SOURCES_STOP, stopped).await.is_err() {
        running.abort_all();
    }
    if ended != Some("correlation") && timeout_at(end, &mut pipe).await.is_err() {
        pipe.abort();
    }
    if ended != Some("export") && timeout_at(end, &mut exporter).await.is_err() {
        exporter.abort();
    }
    if timeout_at(end, detached.recv()).await.is_err() {
        warn!(
            "The kernel takes long to detach probes: what is left there disturbs nobody, and the next start clears it."
        );
    }
    keeper.abort(); // it may be waiting for a disk that does not answer
    let saved = tokio::task::spawn_blocking(move || state.save(&delivery));
    if timeout(LAST_SAVE, saved).await.is_err() {
        warn!("The disk does not answer: the next start reads the kernel log from an earlier place.");
    }
    ended.map_or(Ok(()), |part| Err(PipelineError::Ended(part)))
}

/// How long a state directory that somebody has is waited for.
const STATE_WAIT: Duration = Duration::from_secs(2);
/// And how often it is tried.
const STATE_RETRY: Duration = Duration::from_millis(50);

/// Two agents on one state directory would take each other's marks; the second runs without. Somebody who only looks
/// (`warpgauge doctor`), or an agent that ends just now, has it for a moment.
async fn lock_state(config: &mut Config) -> Option<Lock> {
    let dir = StateDir::new(config.state_dir.clone()?);
    let end = Instant::now() + STATE_WAIT;
    let mut lock = dir.lock();
    while matches!(lock, Err(StateDirError::Held { .. })) && Instant::now() < end {
        tokio::time::sleep(STATE_RETRY).await;
        lock = dir.lock();
    }
    match lock {
        Ok(lock) => Some(lock),
        Err(error @ StateDirError::Held { .. }) => {
            warn!(reason = "state_held", what = %error, "No state is kept by this agent; the rest goes on.");
            config.state_dir = None;
            None
        }
        // Who uses the directory says what is wrong with it.
        Err(_) => None,
    }
}

/// The sources' ends of channels.
struct Ends {
    signals: mpsc::Sender<Signal>,
    orders: mpsc::Receiver<Order>,
    looks: mpsc::Receiver<open_nodes::order::Order>,
    attached: mpsc::Sender<Never>,
}

fn start_sources(
    config: &Config,
    state: &Arc<StateFile>,
    delivery: &Arc<Delivery>,
    ends: Ends,
    telemetry: &Telemetry,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let Ends { signals, orders, looks, attached } = ends;
    let mut running = JoinSet::new();
    let kernel_log = KernelLog::new(
        config.kernel_log.clone(),
        config.host.clone(),
        Arc::clone(state),
        Arc::clone(delivery),
        telemetry,
    );
    let outlet = Outlet::new(signals.clone(), "kmsg", telemetry);
    running.spawn(supervise(kernel_log, outlet, stop.clone(), telemetry.clone()));
    let hold = DriverHold::kept_in(config.run_dir.as_deref());
    let (unloads, mut attempts) = mpsc::channel::<UnloadAttempt>(UNLOADS_MAX);
    let releasing = hold.clone();
    running.spawn(async move {
        // Ends with the probes, which hold the other end.
        while attempts.recv().await.is_some() {
            releasing.release(Reason::Unload);
        }
    });
    let board = Board::default();
    let probes = Probes::new(config.probes.clone(), config.host.clone(), telemetry)
        .telling_detached(attached)
        .telling_unloads(unloads)
        .following(orders)
        .on_board(board.clone());
    let outlet = Outlet::new(signals.clone(), "probes", telemetry);
    running.spawn(supervise(probes, outlet, stop.clone(), telemetry.clone()));
    let host_values = HostValues::new(config.host_values.clone(), config.host.clone());
    let outlet = Outlet::new(signals.clone(), "host", telemetry);
    running.spawn(supervise(host_values, outlet, stop.clone(), telemetry.clone()));
    let holders = NodeHolders::new(config.host.clone(), config.probes.majors.clone(), looks, telemetry);
    let outlet = Outlet::new(signals.clone(), "open_nodes", telemetry);
    running.spawn(supervise(holders, outlet, stop.clone(), telemetry.clone()));
    let kubelet = Kubelet::new(config.kubelet.clone(), telemetry);
    let outlet = Outlet::new(signals.clone(), "kubelet", telemetry);
    running.spawn(supervise(kubelet, outlet, stop.clone(), telemetry.clone()));
    if config.hpc_jobs.directory.is_some() {
        let jobs = HpcJobs::new(config.hpc_jobs.clone(), telemetry);
        let outlet = Outlet::new(signals.clone(), "hpc_jobs", telemetry);
        running.spawn(supervise(jobs, outlet, stop.clone(), telemetry.clone()));
    }
    let (desk, questions) = desk::desk();
    let parts = worker::Parts {
        config: config.worker.clone(),
        host: config.host.clone(),
        lock_dir: lock_dir(config),
        hold: hold.clone(),
        questions,
        board: board.clone(),
    };
    let worker = Worker::new(parts, telemetry);
    let outlet = Outlet::new(signals, "worker", telemetry);
    running.spawn(supervise(worker, outlet, stop.clone(), telemetry.clone()));
    let desk = config.worker.is_on().then_some(desk);
    let parts = control::Parts { run_dir: config.run_dir.clone(), hold, desk, board };
    let (counts, ending) = (telemetry.clone(), stop.clone());
    let control = move || control::run(parts.clone(), counts.clone(), ending.clone());
    running.spawn(keep_up("control", stop.clone(), control));
    running
}

/// Where the worker's lock is: in the first directory that is not somebody else's. The worker looks again.
fn lock_dir(config: &Config) -> Option<PathBuf> {
    let dirs = [&config.state_dir, &config.run_dir].into_iter().flatten().cloned();
    dirs.into_iter().find(|dir| StateDir::new(dir.clone()).look().is_ok())
}

/// Correlates, attributes and hands on, until no source is left.
async fn pass_on(
    mut stages: Stages,
    mut signals: mpsc::Receiver<Signal>,
    facts: mpsc::Sender<Attributed<Fact>>,
    (orders, looks): (mpsc::Sender<Order>, mpsc::Sender<open_nodes::order::Order>),
) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut out = Vec::new();
    loop {
        let signal = tokio::select! {
            signal = signals.recv() => signal,
            _ = tick.tick() => Some(Signal::Tick { at: host::mono_now() }),
        };
        let ended = signal.is_none();
        stages.push(signal.unwrap_or_else(|| Signal::End { at: host::mono_now() }), &mut out);
        for fact in out.drain(..) {
            for order in schedule::orders(&fact.item) {
                let _ = orders.try_send(order); // nobody waits for the probes, which may be away
            }
            if let Some(order) = open_nodes::order::order(&fact.item) {
                let _ = looks.try_send(order); // nor for that source
            }
            if facts.send(fact).await.is_err() {
                return; // the exporter is gone; that was reported where it happened
            }
        }
        if ended {
            return;
        }
    }
}

/// Takes a replay file through the same stages; `out` gets every attributed fact.
///
/// # Errors
/// When the file cannot be read; lines that are not in the format are returned instead.
pub fn replay(
    config: &Config,
    input: impl BufRead,
    mut out: impl FnMut(Attributed<Fact>),
) -> std::io::Result<Vec<BadLine>> {
    let mut stages = Stages::new(config, None, &Telemetry::default());
    let mut facts = Vec::new();
    replay::replay(input, |signal| {
        stages.push(signal, &mut facts);
        facts.drain(..).for_each(&mut out);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[tokio::test(start_paused = true)]
    async fn a_state_directory_that_is_held_for_a_moment_is_waited_for() {
        let dir = TestDir::new();
        let path = dir.path().join("state");
        let configured = || Config { state_dir: Some(path.clone()), ..Config::default() };
        let held = StateDir::new(path.clone()).lock().unwrap();
        let mut without = configured();
        assert!(lock_state(&mut without).await.is_none());
        assert_eq!(without.state_dir, None, "held for good: the rest goes on");
        let mut with = configured();
        let looking = tokio::spawn(async move {
            tokio::time::sleep(STATE_WAIT / 2).await;
            drop(held);
        });
        assert!(lock_state(&mut with).await.is_some());
        assert_eq!((looking.await.is_ok(), with.state_dir), (true, Some(path)));
    }
}
