//! The driver probes: which threads are inside the NVIDIA driver, for how long, and for whom.
//!
//! In: kernel programs on syscall tracepoints, through maps and a ring buffer. Out: calls, thread states, statistics.
//! What can go wrong: much of it may be missing on a node (BTF, tracefs, rights, the object itself): each is reported
//! as [`Exit::Unavailable`] with its remedy. Once at work, losses are counted in the kernel and published.
//!
//! Reading order: [`tactics`] (what is observed, and how) → [`functions`], [`symbols`] and [`hooks`] (what that comes
//! down to with this driver) → [`object`] and [`attached`] (loading, attaching) → [`watch`] (the loop's body) →
//! [`in_flight`] and [`inside`] (calls that hang), [`locks`] (who has them), [`events`] → [`readings`]: [`stats`] and
//! [`rm_calls`] (calls that ended), [`processes`], [`schedule`] (who is followed) → [`upkeep`] (a driver loaded again, the
//! probes' own cost), `came_off`; and [`unload`], on its own.

pub mod attached;
pub mod btf;
pub mod call_signal;
mod came_off;
pub mod cost;
pub mod events;
pub mod functions;
pub mod groups;
pub mod hooks;
pub mod in_flight;
pub mod inside;
pub mod kernel;
pub mod load_error;
pub mod locks;
pub mod majors;
pub mod map_bytes;
pub mod object;
pub mod offsets;
pub(super) mod prepare;
pub mod processes;
pub mod readings;
pub mod refusal;
pub mod reload;
pub mod report;
pub mod rm_calls;
pub mod run_stats;
pub mod schedule;
pub mod stats;
pub mod symbols;
pub mod syscalls;
pub mod tactics;
pub mod thread_files;
pub mod totals;
pub mod unload;
pub mod upkeep;
pub mod verify;
pub mod watch;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::config::ProbesConfig;
use crate::host::{HostRoot, mono_now};
use crate::model::Signal;
use crate::model::signal::SourceState;
use crate::telemetry::Telemetry;

use super::worker::board::Board;
use super::{Exit, Lack, Outlet, Source};
use cost::Budget;
use in_flight::Tracker;
use kernel::Support;
use load_error::{LoadError, RIGHTS};
use prepare::{Ready, prepare};
use refusal::Refusal;
use report::Report;
use schedule::Order;
use tactics::{Choice, Probe};
use thread_files::ThreadFiles;
use unload::UnloadAttempt;
use upkeep::Upkeep;
use watch::Watch;

/// A call this long is announced while it lasts, and its end is reported. Half of the shortest useful threshold.
pub const SLOW: Duration = Duration::from_millis(250);

/// How often the driver's majors are looked up again.
const MAJORS_INTERVAL: Duration = Duration::from_secs(10);

/// No interval is shorter: a configured 0 must not spin.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The source.
#[derive(Debug)]
pub struct Probes {
    config: ProbesConfig,
    host: HostRoot,
    telemetry: Telemetry,
    /// It was said that system calls of threads cannot be seen.
    said_blind: bool,
    unloads: Option<mpsc::Sender<UnloadAttempt>>,
    orders: Option<mpsc::Receiver<Order>>,
    board: Board,
    /// Dropped once nothing of this agent's is attached any more.
    attached: Option<mpsc::Sender<Never>>,
}

/// Nothing is ever sent: only the end of a channel tells.
#[derive(Clone, Copy, Debug)]
pub enum Never {}

impl Probes {
    /// Touches nothing yet.
    pub fn new(config: ProbesConfig, host: HostRoot, telemetry: &Telemetry) -> Self {
        Self {
            config,
            host,
            telemetry: telemetry.clone(),
            said_blind: false,
            unloads: None,
            orders: None,
            board: Board::default(),
            attached: None,
        }
    }

    /// Holds `end` until everything is detached, which may be after the end of the source.
    #[must_use]
    pub fn telling_detached(mut self, end: mpsc::Sender<Never>) -> Self {
        self.attached = Some(end);
        self
    }

    /// Tells `holder` of every attempt to unload the driver. Nothing waits for it: of a full channel it learns enough.
    #[must_use]
    pub fn telling_unloads(mut self, holder: mpsc::Sender<UnloadAttempt>) -> Self {
        self.unloads = Some(holder);
        self
    }

    /// Takes orders to follow processes.
    #[must_use]
    pub fn following(mut self, orders: mpsc::Receiver<Order>) -> Self {
        self.orders = Some(orders);
        self
    }

    /// Puts up there what is given up for its cost.
    #[must_use]
    pub fn on_board(mut self, board: Board) -> Self {
        self.board = board;
        self
    }

    /// Once, not at every restart: the calls are followed all the same.
    fn say_if_blind(&mut self) {
        if !self.said_blind && !ThreadFiles::may_see_syscalls(&self.host) {
            self.said_blind = true;
            tracing::warn!(
                remedy = RIGHTS,
                "The system calls of threads may not be seen (CAP_SYS_PTRACE): stalls are told with low confidence."
            );
        }
    }
}

impl Source for Probes {
    fn name(&self) -> &'static str {
        "probes"
    }

    async fn run(&mut self, outlet: &Outlet, stop: &CancellationToken) -> Exit {
        let (config, host) = (self.config.clone(), self.host.clone());
        // reading the kernel's types and verifying programs takes a while: not on the runtime's threads
        let loading = tokio::task::spawn_blocking(move || prepare(&config, &host));
        let ready =
            loading.await.unwrap_or_else(|error| Err(vec![LoadError::Interrupted(error.to_string())]));
        let ready = match ready {
            Ok(ready) => ready,
            Err(errors) => return exit(errors, kernel::locked_down(&self.host)),
        };
        let mut report = Report::new(&self.telemetry, &self.board);
        report.publish(ready.loaded.attached.choices());
        let bytes = map_bytes::map_bytes(ready.kernel.possible_cpus);
        self.telemetry.gauge("warpgauge.probe.map.bytes", &[]).set(bytes);
        self.say_if_blind();
        self.watch(ready, report, outlet, stop).await
    }
}

impl Probes {
    async fn watch(
        &mut self,
        mut ready: Ready,
        report: Report,
        outlet: &Outlet,
        stop: &CancellationToken,
    ) -> Exit {
        let host_pids = ready.kernel.host_pids;
        if host_pids == Support::No {
            tell_foreign(outlet);
        }
        let lost_returns = self.telemetry.counter("warpgauge.probe.lost_returns", &[]);
        // apart from the loop below, which waits where the pipeline is full; ends with this run
        let mut beside = JoinSet::new();
        if let Some(ring) = ready.loaded.unloads.take() {
            beside.spawn(unload::watch(ring, self.unloads.clone()));
        }
        let limit = self.config.budget.unwrap_or_else(|| cost::default_budget(ready.kernel.online_cpus));
        let (kernel, driver, group) = (ready.kernel, ready.driver, ready.group);
        let budget = Budget::new(limit);
        let mut upkeep =
            Upkeep::new(self.host.clone(), kernel, group, driver, budget, report, &self.telemetry);
        let mut watch = Watch::new(
            ready.loaded,
            self.host.clone(),
            host_pids,
            ready.majors,
            self.config.majors.is_some(),
            Tracker::new(SLOW, lost_returns),
            &self.telemetry,
        );
        let every = |interval: Duration| {
            let interval = interval.max(SHORTEST_INTERVAL);
            let mut ticks = interval_at(Instant::now() + interval, interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let mut scan = every(self.config.scan_interval);
        let mut read = every(self.config.read_interval);
        let mut majors = every(MAJORS_INTERVAL);
        let mut beat = every(upkeep::BEAT);
        let exit = loop {
            let done = tokio::select! {
                () = stop.cancelled() => {
                    // what has ended meanwhile is still said
                    let last = match watch.scan(outlet).await {
                        Ok(()) => watch.read(outlet).await,
                        Err(error) => Err(error),
                    };
                    break last.map_or_else(|error| LoadError::from(error).exit(false), |()| Exit::Stopped);
                }
                _ = scan.tick() => watch.scan(outlet).await,
                _ = read.tick() => watch.read(outlet).await,
                _ = majors.tick() => watch.look_for_majors(),
                Some(order) = schedule::next(&mut self.orders) => watch.take_order(order),
                _ = beat.tick() => match upkeep.beat(watch.attached()).await {
                    true => watch.look_for_majors(), // UVM has another one after each load
                    false => Ok(()),
                },
                Some(ended) = beside.join_next() => match ended {
                    Ok(()) => Ok(()),
                    // attempts to unload the driver would not be seen any more
                    Err(error) => break LoadError::Interrupted(error.to_string()).exit(false),
                },
                // one at a time: what is due meanwhile comes in between
                () = std::future::ready(()), if upkeep.has_plans() => {
                    tokio::task::block_in_place(|| upkeep.change_next(watch.attached()));
                    watch.clear_what_came_off()
                }
            };
            if let Err(error) = done {
                watch.forget(outlet).await;
                break LoadError::from(error).exit(false);
            }
        };
        upkeep.retract();
        self.detach(watch, &exit).await;
        exit
    }

    /// The kernel takes some ten milliseconds to let go of each event: not on the runtime's threads.
    async fn detach(&self, watch: Watch, exit: &Exit) {
        let attached = self.attached.clone();
        let detaching = tokio::task::spawn_blocking(move || {
            drop(watch);
            drop(attached);
        });
        // a restart finds nothing of this run; at the end, what is still to be delivered does not wait
        if !matches!(exit, Exit::Stopped) {
            let _ = detaching.await; // a panic there is said by itself, and leaves nothing to be done here
        }
    }
}

/// The numbers that the programs see mean other processes here.
fn tell_foreign(outlet: &Outlet) {
    let source = SourceState {
        name: "pid_namespace".to_owned(),
        up: false,
        reason: Some("foreign".to_owned()),
        late: None,
    };
    tracing::warn!(
        "procfs is of another pid namespace: no attribution by pid (run with the host's, hostPID)"
    );
    outlet.offer(Signal::Source { at: mono_now(), source });
}

/// Loads and attaches everything for a moment, and says what became of each probe. Blocks for up to some seconds.
///
/// # Errors
/// Everything that is missing.
pub fn look(config: &ProbesConfig, host: &HostRoot) -> Result<Vec<Choice>, Vec<Lack>> {
    let mut ready =
        prepare(config, host).map_err(|errors| match exit(errors, kernel::locked_down(host)) {
            Exit::Unavailable(lacks) => lacks,
            Exit::Failed(cause) => {
                vec![Lack { reason: "failed", what: cause.to_string(), remedy: "the message says why" }]
            }
            Exit::Stopped => Vec::new(),
        })?;
    // what is attached on demand is tried, too
    let armed = ready.loaded.arm_scheduler();
    let mut choices: Vec<Choice> = ready.loaded.attached.choices().cloned().collect();
    for choice in choices.iter_mut().filter(|choice| choice.probe == Probe::Scheduler) {
        if let (Some(tactic), Err(error)) = (choice.tactic, &armed) {
            (choice.tactic, choice.refused) = (None, vec![Refusal::by_kernel(tactic, error)]);
        }
    }
    Ok(choices)
}

/// All that is missing, or the first thing that went wrong.
fn exit(errors: Vec<LoadError>, locked_down: bool) -> Exit {
    let mut lacks = Vec::new();
    for error in errors {
        match error.lack(locked_down) {
            Some(lack) => lacks.push(lack),
            None => return Exit::Failed(Box::new(error)),
        }
    }
    Exit::Unavailable(lacks)
}

#[cfg(test)]
#[path = "probes_tests.rs"]
mod tests;
