//! The worker source: DCGM and NVML, read by a child process so that they cannot take the agent down.
//!
//! In: the worker's reports; releases and takes of the driver; questions of the control socket. Out: signals of the
//! sources `dcgm`, `nvml` and `profiling`. What can go wrong: the child hangs, crashes, leaks or cannot even be killed:
//! seconds of its data are lost, and nothing else. There is one worker at a time, and at most one given up.
//!
//! Reading order: this loop → [`spawn`] → `session` (one worker's life) → [`deadline`], [`throttle`], [`memory`],
//! [`abandoned`], [`hold`] (its rules) → [`intake`] (what it reports) → [`states`] (what is said of its sources).

pub mod abandoned;
pub mod board;
pub mod clean;
pub mod deadline;
pub mod desk;
mod ended;
pub mod events;
pub mod hold;
pub mod intake;
pub mod inventory;
pub mod listed;
pub mod look;
pub mod memory;
pub mod orders;
mod output;
pub mod refused;
mod session;
pub mod spawn;
pub mod states;
pub mod tell;
pub mod throttle;
pub mod undelivered;
mod unlisted;
pub mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Exit, Lack, Outlet, Source};
use crate::config::WorkerConfig;
use crate::host::{HostRoot, mono_now};
use crate::model::signal::REPLACEMENT;
use crate::model::{MonoNs, Pid};
use crate::telemetry::{Counter, Gauge, Telemetry};
use abandoned::Abandoned;
use board::Board;
use desk::Questions;
use ended::{ENDED, Ended, HELD, Restarts, Why};
use hold::{AutoTake, DriverHold, Seen};
use intake::Intake;
use orders::Before;
use refused::Refused;
use session::Session;
use spawn::{Process, Program, Spawner};
use states::{States, Without};
use tell::Tell;
use throttle::Throttle;

const NAME: &str = "worker";
/// How often it is looked whether a worker may start.
const LOOK: Duration = Duration::from_millis(250);
/// The /proc of the agent's own pid namespace, which its children are in.
const PROC: &str = "/proc";

const RELEASED: Without = Without::of(
    "released",
    "the driver was let go of, so that it can be unloaded",
    "`warpgauge driver take` takes it again",
);
/// No fault: who reads the state is told that values pause, and nobody is alarmed.
const REPLACED: Without = Without::of(
    REPLACEMENT,
    "the worker has outgrown its memory budget and is exchanged for a new one",
    "nothing; if it happens often, raise worker.memory_limit, or update the vendor's libraries",
);
const ABANDONED: Without = Without::of(
    "abandoned",
    "a worker hangs in the kernel and cannot be ended; no new one may touch the driver meanwhile",
    "look at the kernel log for XIDs and hung tasks; the GPU may need a reset, the node a restart",
);
const NO_START: Without = Without::of(
    "no_start",
    "the worker process cannot be started",
    "look at the line before this one; the node may be out of processes or memory",
);

/// The source.
#[derive(Debug)]
pub struct Worker {
    shared: Shared,
    host: HostRoot,
    program: Program,
    spawner: Option<Spawner>,
    abandoned: Option<Given>,
    auto: Option<AutoTake>,
    restarts: Restarts,
    /// Why the last worker ended, or was none: said while the next one has to wait.
    last: Option<Without>,
    /// Lines of the worker that were left out, and its end for who reads them.
    output_dropped: Counter,
    ended: CancellationToken,
}

/// What outlives one worker.
#[derive(Debug)]
struct Shared {
    config: WorkerConfig,
    hold: DriverHold,
    questions: Questions,
    intake: Intake,
    states: States,
    tell: Tell,
    refused: Refused,
    throttle: Throttle,
    before: Before,
    gauges: Gauges,
}

#[derive(Debug)]
struct Gauges {
    /// There is a worker, and it has greeted.
    up: Gauge,
    memory: Gauge,
    cpu_user: Counter,
    cpu_system: Counter,
    abandoned: Gauge,
}

/// A worker that was given up. Our own child is waited for, so that the kernel can forget it.
#[derive(Debug)]
struct Given {
    abandoned: Abandoned,
    process: Option<Process>,
    /// It is not ours, and has this long to end before it counts as given up.
    ends_by: Option<MonoNs>,
}

/// What the source needs.
#[derive(Debug)]
pub struct Parts {
    /// What to do.
    pub config: WorkerConfig,
    /// Where the host's file systems are.
    pub host: HostRoot,
    /// Where the lock file is; `None`: no lock.
    pub lock_dir: Option<PathBuf>,
    /// Who has the driver.
    pub hold: DriverHold,
    /// What the control socket asks.
    pub questions: Questions,
    /// Where it is put up what is said of the sources.
    pub board: Board,
}

impl Worker {
    /// Starts nothing yet.
    pub fn new(parts: Parts, telemetry: &Telemetry) -> Self {
        let Parts { config, host, lock_dir, hold, questions, board } = parts;
        let refused = Refused::new(telemetry);
        let cpu = |mode| telemetry.counter("warpgauge.worker.cpu.time", &[("cpu.mode", mode)]);
        let shared = Shared {
            intake: Intake::new(Pid(std::process::id()), refused.clone()),
            states: States::new(config.dcgm, config.nvml),
            tell: Tell::new(telemetry, refused.clone(), board),
            throttle: Throttle::default(),
            before: Before::default(),
            gauges: Gauges {
                up: telemetry.gauge("warpgauge.source.up", &[("source", NAME)]),
                memory: telemetry.gauge("warpgauge.worker.memory.usage", &[]),
                cpu_user: cpu("user"),
                cpu_system: cpu("system"),
                abandoned: telemetry.gauge("warpgauge.worker.abandoned", &[]),
            },
            config,
            hold,
            questions,
            refused,
        };
        Self {
            shared,
            host,
            program: Program::own(lock_dir.as_deref()),
            spawner: None,
            abandoned: None,
            auto: None,
            last: None,
            output_dropped: telemetry.counter("warpgauge.worker.output.dropped", &[]),
            ended: CancellationToken::new(),
            restarts: Restarts::new(telemetry),
        }
    }

    /// What a session shares with the next one, for its tests.
    #[cfg(test)]
    fn into_shared(self) -> Shared {
        self.shared
    }

    /// Why no worker may be started now.
    fn blocked(&mut self) -> Option<Without> {
        let now = mono_now();
        if let Some(given) = &mut self.abandoned {
            let reaped = given.process.as_mut().is_some_and(|process| process.ended().is_some());
            if !reaped && given.abandoned.lives(Path::new(PROC)) {
                let pid = given.abandoned.pid;
                match given.ends_by {
                    Some(ends_by) if now < ends_by => return Some(Without { pid, ..HELD }),
                    Some(_) => {
                        given.ends_by = None;
                        warn!(pid, "Another worker has the driver and does not end: it hangs in the kernel.");
                        self.shared.gauges.abandoned.set(1);
                    }
                    None => {}
                }
                return Some(Without { pid, ..ABANDONED });
            }
            self.abandoned = None;
            self.shared.gauges.abandoned.set(0);
            self.shared.hold.set_worker(false);
        }
        if let Some((reason, since)) = self.shared.hold.now().released {
            let auto = self.auto.get_or_insert_with(|| AutoTake::new(since));
            auto.began_at(since);
            if !reason.is_automatic() || !auto.look(now, Seen::look(&self.host, reason)) {
                return Some(RELEASED);
            }
            self.shared.hold.take_after(reason);
        }
        self.auto = None;
        let wait = self.shared.throttle.wait(now);
        let again_s = u64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
        (again_s > 0).then(|| Without { again_s, ..self.last.clone().unwrap_or(Why::Crashed.waiting()) })
    }

    /// Waits for a change, for at most a moment; refuses what is asked meanwhile.
    async fn wait(&mut self, why: Without, outlet: &Outlet) {
        let refusal = format!("there is no worker: {}; {}", why.words(), why.remedy);
        self.shared.states.none(why);
        self.tell(outlet).await;
        let mut hold = self.shared.hold.subscribe();
        tokio::select! {
            _ = hold.changed() => {}
            Some(asked) = self.shared.questions.recv() => {
                if let Some(asked) = asked.unless_known(|| self.shared.intake.listed()) {
                    asked.refuse(&refusal);
                }
            }
            () = tokio::time::sleep(LOOK) => {}
        }
    }

    async fn tell(&mut self, outlet: &Outlet) {
        let changes = self.shared.states.changes();
        self.shared.tell.changes(outlet, changes).await;
    }

    async fn start(&mut self) -> std::io::Result<(Process, UnixStream)> {
        if self.spawner.is_none() {
            self.spawner = Some(Spawner::new()?);
        }
        let Some(spawner) = &self.spawner else { return Err(std::io::ErrorKind::NotFound.into()) };
        let (mut process, socket) = spawner.start(self.program.clone()).await?;
        self.ended = CancellationToken::new();
        if let Some(pipe) = process.output() {
            tokio::spawn(output::log(pipe, process.pid(), self.output_dropped.clone(), self.ended.clone()));
        }
        Ok((process, UnixStream::from_std(socket)?))
    }

    async fn work(&mut self, outlet: &Outlet, stop: &CancellationToken) {
        // First this, then the look: who releases now waits for the worker, or there will be none.
        self.shared.hold.set_worker(true);
        if self.shared.hold.now().released.is_some() {
            return self.shared.hold.set_worker(false);
        }
        self.shared.throttle.started(mono_now());
        let (mut process, stream) = match self.start().await {
            Ok(started) => started,
            Err(error) => {
                warn!(%error, "The worker cannot be started.");
                self.restarts.start.add(1);
                self.shared.hold.set_worker(false);
                self.shared.throttle.ended(mono_now());
                let why = Without { detail: error.to_string(), ..NO_START };
                self.last = Some(why.clone());
                self.shared.states.none(why);
                return self.tell(outlet).await;
            }
        };
        self.shared.states.begin();
        let flavour = orders::driver_flavour(&self.host);
        self.shared.intake.begin(Pid(process.pid()), flavour);
        let configure = self.shared.before.configure(mono_now(), &self.shared.config, &self.host);
        let session = Session::new(&mut self.shared, &mut process, outlet);
        let ended = session.run(stream, configure, stop).await;
        let stopped = ended.why == Why::Stopped;
        let planned = matches!(ended.why, Why::Replaced | Why::TooBig) && !ended.abandoned;
        self.ended(ended, process);
        if !stopped {
            let why = self.blocked().unwrap_or(if planned { REPLACED } else { ENDED });
            self.shared.states.none(why);
            self.tell(outlet).await;
        }
    }

    /// Books the end of a worker.
    fn ended(&mut self, ended: Ended, process: Process) {
        self.ended.cancel();
        let now = mono_now();
        self.restarts.of(ended.why).into_iter().for_each(|counter| counter.add(1));
        self.last = Some(ended.why.waiting());
        match ended.why {
            Why::Stopped | Why::Released => {}
            Why::Replaced => self.shared.throttle.replaced(now),
            Why::Crashed | Why::TooBig | Why::Hung | Why::Protocol | Why::Held(_) => {
                self.shared.throttle.ended(now);
            }
        }
        let abandoned = |pid| Abandoned::new(Path::new(PROC), pid);
        match ended.why {
            Why::Held(pid) => {
                let ends_by = Some(now.after(deadline::REAP));
                self.abandoned = Some(Given { abandoned: abandoned(pid), process: None, ends_by });
            }
            _ if ended.abandoned => {
                let pid = process.pid();
                warn!(pid, "A worker cannot be ended: it hangs in the kernel.");
                let process = Some(process);
                self.abandoned = Some(Given { abandoned: abandoned(pid), process, ends_by: None });
                self.shared.gauges.abandoned.set(1);
            }
            _ => self.shared.hold.set_worker(false),
        }
    }
}

impl Source for Worker {
    fn name(&self) -> &'static str {
        NAME
    }

    /// This source runs on without a worker process; it knows itself whether there is one.
    fn tells_itself(&self) -> bool {
        true
    }

    async fn run(&mut self, outlet: &Outlet, stop: &CancellationToken) -> Exit {
        if !self.shared.config.is_on() {
            return Exit::Unavailable(vec![Lack {
                reason: "disabled",
                what: "the worker is switched off by the configuration".to_owned(),
                remedy: "set worker.enabled to true, and worker.dcgm or worker.nvml",
            }]);
        }
        if self.shared.config.dcgm {
            for what in unlisted::words(&self.shared.config.groups) {
                let remedy =
                    "correct it in worker.groups, unless the installed DCGM is newer than this agent";
                warn!(reason = "unlisted_field", what, remedy, "A configured field may not exist.");
            }
        }
        while !stop.is_cancelled() {
            match self.blocked() {
                None => self.work(outlet, stop).await,
                Some(why) => {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = self.wait(why, outlet) => {}
                    }
                }
            }
        }
        Exit::Stopped
    }
}

#[cfg(test)]
mod intake_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod start_tests;
