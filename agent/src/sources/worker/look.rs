//! One look through a worker of its own: for `doctor` and `fields` where no agent runs.
//!
//! In: what the worker is to do, and until when. Out: what it said of its sources, its devices, its answer on fields, and
//! which calls had not come back ([`Look`]). It blocks its thread, never beyond the deadline but for a moment.
//! What can go wrong: everything of a vendor's library: then the look ends late or early and says how ([`Ended`]); the
//! worker is killed in any case.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::Access;

use super::board::Standing;
use super::clean;
use super::intake::Intake;
use super::listed::Listed;
use super::refused::Refused;
use super::spawn::{Process, Program, start_here};
use super::states::States;
use crate::config::Config;
use crate::host::mono_now;
use crate::model::{MonoNs, Origin, Pid, Signal};
use crate::telemetry::Telemetry;
use crate::wire::order::{Configure, End, Request};
use crate::wire::report::{self, Kind};
use crate::wire::{Decoder, Order, PROTOCOL, Report, encode, order};

/// How often it is looked whether to ask.
const LOOK: Duration = Duration::from_millis(100);
/// How long the end of the worker is waited for.
const LET_GO: Duration = Duration::from_millis(700);
/// A call that is open for longer may hang.
const LONG: Duration = Duration::from_secs(1);
/// Lines of an answer that are kept; DCGM has some 700 fields and a node 64 devices.
const LINES_MAX: usize = 20_000;
/// The id of the only request.
const FIELDS: u64 = 1;

/// What was seen.
#[derive(Debug)]
pub struct Look {
    /// What the worker said of its sources.
    pub standings: Vec<Standing>,
    /// JSON lines of the answer on fields.
    pub lines: Vec<String>,
    /// Devices, and who runs on them.
    pub devices: Vec<Listed>,
    /// Calls that had not come back at the end, as `function (device)`.
    pub hanging: Vec<String>,
    /// How it ended.
    pub ended: Ended,
}

/// How a look ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All that was asked was answered, if only by a refusal.
    Complete,
    /// The deadline passed.
    Late,
    /// The worker ended by itself, such as `signal 11`.
    Crashed(String),
    /// Another process holds the worker's lock, and perhaps the driver: its pid.
    Held(u32),
    /// It could not be started.
    NotStarted(String),
    /// It said what cannot be.
    Garbage(String),
}

/// When fields are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As soon as the sources are up.
    AtOnce,
    /// This long after the first values came.
    AfterValues(Duration),
}

/// Where the agent's workers have their lock, for a look of this user. A folder that is not made yet holds none, and
/// one that this user cannot write to is another user's agent's: the worker would only complain of it.
pub fn lock_dir(config: &Config) -> Option<&Path> {
    let may_write =
        |dir: &&Path| dir.is_dir() && rustix::fs::access(*dir, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    config.state_dir.as_deref().or(config.run_dir.as_deref()).filter(may_write)
}

/// Starts a worker, looks, and ends it.
pub fn look(program: &Program, configure: &Configure, when: When, until: Instant) -> Look {
    let states = States::new(configure.dcgm, configure.nvml);
    let own = Pid(std::process::id());
    let mut watcher = Watcher {
        states,
        intake: Intake::new(own, Refused::new(&Telemetry::default())),
        signals: Vec::new(),
        heard: [!configure.dcgm, !configure.nvml],
        up: [false; 2],
        first_value: None,
        impatient: Instant::now() + until.saturating_duration_since(Instant::now()) / 2,
        asked: false,
        standings: Vec::new(),
        lines: Vec::new(),
        hanging: Vec::new(),
    };
    let ended = match start_here(program) {
        Err(error) => Ended::NotStarted(error.to_string()),
        Ok((mut process, socket)) => {
            let ended = watcher.follow(&mut process, socket, configure, when, until);
            process.kill(); // it has ended, or is not worth waiting for
            ended
        }
    };
    let devices = watcher.intake.listed();
    let Watcher { standings, lines, hanging, .. } = watcher;
    Look { standings, lines, devices, hanging, ended }
}

struct Watcher {
    states: States,
    /// For the devices.
    intake: Intake,
    /// What it tells beside that, which nobody reads.
    signals: Vec<Signal>,
    /// DCGM and NVML have said whether they are up.
    heard: [bool; 2],
    up: [bool; 2],
    first_value: Option<Instant>,
    /// From then on it is asked with what is there.
    impatient: Instant,
    asked: bool,
    standings: Vec<Standing>,
    lines: Vec<String>,
    hanging: Vec<String>,
}

impl Watcher {
    fn follow(
        &mut self,
        process: &mut Process,
        mut socket: UnixStream,
        configure: &Configure,
        when: When,
        until: Instant,
    ) -> Ended {
        let mut decoder = Decoder::default();
        if let Err(error) = say(&mut socket, order::Kind::Configure(configure.clone())) {
            return Ended::Garbage(error.to_string());
        }
        loop {
            match self.take(&mut decoder) {
                Ok(None) => {}
                Ok(Some(ended)) => {
                    let until = Instant::now() + LET_GO;
                    // What it says on its way out is of no interest, only that it is gone.
                    if say(&mut socket, order::Kind::End(End {})).is_ok() {
                        while matches!(read(&mut socket, &mut Decoder::default(), until), Ok(true)) {}
                    }
                    return ended;
                }
                Err(why) => return Ended::Garbage(why),
            }
            if self.may_ask(when) {
                self.asked = true;
                if say(&mut socket, order::Kind::Fields(Request { id: FIELDS, until_ns: 0 })).is_err() {
                    return crashed(process);
                }
            }
            if self.is_silent() {
                return Ended::Complete;
            }
            // Looked at again when the values have settled, or patience is over.
            let step = if self.asked { until } else { Instant::now() + LOOK };
            match read(&mut socket, &mut decoder, until.min(step)) {
                Ok(true) => {}
                Ok(false) => return crashed(process),
                Err(()) if Instant::now() < until => {}
                Err(()) => return Ended::Late,
            }
        }
    }

    /// Takes what is there; the end of the look, when that is what was said.
    fn take(&mut self, decoder: &mut Decoder) -> Result<Option<Ended>, String> {
        while let Some(report) = decoder.take::<Report>().map_err(|error| error.to_string())? {
            match report.kind {
                Some(Kind::Hello(hello)) if hello.protocol != PROTOCOL => {
                    return Err("the program was replaced on the disk meanwhile".to_owned());
                }
                Some(Kind::Hello(report::Hello { abandoned: Some(pid), .. })) => {
                    return Ok(Some(Ended::Held(pid)));
                }
                Some(Kind::State(state)) => self.state(state),
                Some(Kind::Heartbeat(beat)) => {
                    let name = |call: &report::InFlight| {
                        let clean = |told: &str| clean::text(told).unwrap_or_default();
                        match clean(&call.hw_id) {
                            device if device.is_empty() => clean(&call.call),
                            device => format!("{} for {device}", clean(&call.call)),
                        }
                    };
                    let now = mono_now();
                    let long = |call: &&report::InFlight| {
                        now.since(MonoNs(call.began_ns)).is_some_and(|open| open >= LONG)
                    };
                    self.hanging = beat.in_flight.iter().filter(long).take(8).map(name).collect();
                }
                Some(kind @ (Kind::Inventory(_) | Kind::Processes(_))) => {
                    self.intake.push(mono_now(), kind, &mut self.signals);
                    self.signals.clear();
                }
                Some(Kind::Samples(_)) => self.first_value = self.first_value.or(Some(Instant::now())),
                Some(Kind::Answer(answer)) if answer.id == FIELDS => {
                    let room = LINES_MAX.saturating_sub(self.lines.len());
                    self.lines.extend(answer.text.lines().take(room).map(str::to_owned));
                    if !answer.done {
                        self.lines.clear();
                    }
                    if !answer.more {
                        // What was asked without waiting for the other library tells nothing of that one.
                        let complete = self.heard == [true; 2];
                        return Ok(Some(if complete { Ended::Complete } else { Ended::Late }));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn state(&mut self, state: report::State) {
        for (place, origin) in [Origin::Dcgm, Origin::Nvml].into_iter().enumerate() {
            if state.name == origin.name()
                && let (Some(heard), Some(up)) = (self.heard.get_mut(place), self.up.get_mut(place))
            {
                (*heard, *up) = (true, state.up);
            }
        }
        self.states.report(state);
        for change in self.states.changes() {
            let standing = Standing::from(&change);
            self.standings.retain(|known| known.source != standing.source);
            self.standings.push(standing);
        }
    }

    fn may_ask(&self, when: When) -> bool {
        let late = self.impatient <= Instant::now();
        let known = self.up != [false; 2] && (late || self.heard == [true; 2]);
        let settled = match when {
            When::AtOnce => true,
            When::AfterValues(time) => self.first_value.is_some_and(|first| first.elapsed() >= time),
        };
        known && (settled || late) && !self.asked
    }

    /// Nothing is up, so there is nobody to ask.
    fn is_silent(&self) -> bool {
        self.heard == [true; 2] && self.up == [false; 2]
    }
}

fn say(socket: &mut UnixStream, kind: order::Kind) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    encode(&Order { kind: Some(kind) }, &mut bytes).map_err(std::io::Error::other)?;
    socket.set_write_timeout(Some(LET_GO))?;
    socket.write_all(&bytes)
}

/// Reads something; false at the end of the stream, an error when the time is over.
fn read(socket: &mut UnixStream, decoder: &mut Decoder, until: Instant) -> Result<bool, ()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
        return Err(());
    }
    let mut buffer = [0; 16 * 1024];
    match socket.read(&mut buffer) {
        Ok(0) => Ok(false),
        Ok(n) => {
            decoder.push(buffer.get(..n).unwrap_or_default());
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(()),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
        Err(_) => Ok(false),
    }
}

/// The socket is closed: the process is ending.
fn crashed(process: &mut Process) -> Ended {
    let until = Instant::now() + LET_GO;
    while Instant::now() < until {
        if let Some(how) = process.ended() {
            return Ended::Crashed(how);
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    Ended::Crashed("it closed its socket".to_owned())
}
