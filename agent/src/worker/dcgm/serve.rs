//! From one connection to the next: connect, work, answer requests, connect again.
//!
//! In: orders and a way to connect. Out: reports, until `End`. What can go wrong: no engine answers; that is said once
//! and tried again within a second, for ever. A refused connection may still have written a handle, and one that hung
//! may "succeed": an engine counts as connected when it told its version.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::choose::{self, Choice};
use super::engine::{Caller, Dcgm, EntityGroup, ReturnCode, is_gone};
use super::session::Session;
use super::task::{Memory, Task};
use super::{MISSING, Presence, TRYING, UP, plan, state};
use crate::model::MonoNs;
use crate::wire::order::Configure;
use crate::wire::report::{self, Kind};
use crate::worker::link::{Ask, Asks, Link};
use crate::worker::moment::Moment;
use crate::worker::numa::NumaNode;

/// A library and the engines that it reaches.
pub(super) trait Connect {
    type Engine<'a>: Dcgm
    where
        Self: 'a;

    /// Release of the library.
    fn version(&self) -> String;
    /// The file it was loaded from.
    fn path(&self) -> String;
    /// Level of a field that our table does not have; `None` where the library does not know it either.
    fn level_of(&self, field: u16) -> Option<EntityGroup>;
    /// Connects, or starts the embedded engine.
    ///
    /// # Errors
    /// Why not, in words.
    fn connect(&self, choice: &Choice) -> Result<Self::Engine<'_>, String>;
}

/// How long an embedded engine may be without a GPU before a new one is begun: the first time, and at most.
const EMPTY_FIRST: Duration = Duration::from_secs(60);
const EMPTY_LONGEST: Duration = Duration::from_secs(600);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The agent asked for it.
    Asked,
    /// An embedded engine that has no GPU.
    Empty,
    Gone(ReturnCode),
    TooOld(ReturnCode),
}

/// What the agent knows of DCGM: a state is told when it is another one.
#[derive(Debug)]
struct Told {
    /// The library's file and release, with which it is told.
    library: String,
    last: Option<(bool, String, String)>,
}

impl Told {
    fn tell(&mut self, link: &Link, state: Kind) {
        let Kind::State(said) = &state else { return };
        let word = (said.up, said.reason.clone(), said.how.clone());
        if self.last.as_ref() != Some(&word) {
            self.last = Some(word);
            link.send(state::by(&self.library, state));
        }
    }
}

/// Works until the agent asks to end.
pub(super) fn serve<C: Connect>(
    library: &C,
    configure: &Configure,
    link: &Link,
    asks: &Asks,
    presence: &Presence,
    numa: &dyn NumaNode,
    clock: &dyn Fn() -> Moment,
) {
    // How an earlier worker paused it is not known; the first engine tells.
    let paused = configure.paused.then_some(super::profiling::PausedBy::Unwatched);
    let mut memory = Memory { paused, ..Memory::default() };
    let (groups, unknown) = plan::resolve(&configure.groups, |id| library.level_of(id));
    let mut rounds = 0_u32;
    let mut host_gone: Option<MonoNs> = None;
    let file = format!("{}, {}", library.path(), library.version());
    let mut told = Told { library: file.clone(), last: None };
    let mut patience = EMPTY_FIRST;
    for connection in 1_u64.. {
        let ago = host_gone.and_then(|at| clock().mono.since(at));
        let Some((choice, engine, version)) =
            reach(library, choose::candidates(&configure.engine, ago, &configure.skip), link, &mut told)
        else {
            presence.set(if host_gone.is_none() { MISSING } else { TRYING });
            if wait(asks, link, choose::wait(rounds), clock) {
                return;
            }
            rounds = rounds.saturating_add(1);
            continue;
        };
        let versions = match library.version() {
            ours if ours == version => version,
            ours => format!("{ours}/{version}"),
        };
        let now = clock();
        let task = Task {
            groups: &groups,
            health_every: Duration::from_millis(configure.health_interval_ms),
            only_look: configure.only_look,
            version: &versions,
            library: &file,
            unknown: &unknown,
            numa,
        };
        let prefix = format!("warpgauge-{}-{}-{connection}", std::process::id(), now.mono.0);
        let ended = match Session::open(Caller::new(&engine, link), task, &mut memory, prefix, now) {
            Ok(mut session) => {
                told.tell(link, state::up(&choice.name()));
                for field in &unknown {
                    link.send(state::unknown_field(&field.group, &field.name));
                }
                rounds = 0;
                let patience = (choice == Choice::Embedded).then_some(patience);
                work(&mut session, link, asks, presence, patience, clock)
            }
            Err(code) if is_gone(code) => Ended::Gone(code),
            Err(code) => Ended::TooOld(code),
        };
        presence.set(TRYING);
        drop(engine);
        match ended {
            Ended::Asked => return,
            // An engine that began without a driver never finds one: a new one is begun, less and less often.
            Ended::Empty => patience = patience.saturating_mul(2).min(EMPTY_LONGEST),
            Ended::Gone(code) => told.tell(link, state::engine_down(state::code(code))),
            Ended::TooOld(code) => told.tell(link, state::engine_too_old(code, choice == Choice::Embedded)),
        }
        if matches!(choice, Choice::Host(_)) {
            host_gone = Some(clock().mono);
        }
        // An engine that just went away is tried at once; one that goes away each time is not.
        if rounds > 0 && wait(asks, link, choose::wait(rounds), clock) {
            return;
        }
        rounds = rounds.saturating_add(1);
    }
}

/// Connects to the first that answers. That none does is said once.
fn reach<'a, C: Connect>(
    library: &'a C,
    candidates: Vec<Choice>,
    link: &Link,
    told: &mut Told,
) -> Option<(Choice, C::Engine<'a>, String)> {
    let mut why = Vec::new();
    for choice in candidates {
        match connect(library, &choice, link) {
            Ok((engine, version)) => return Some((choice, engine, version)),
            Err(words) => why.push(format!("{}: {words}", choice.name())),
        }
    }
    told.tell(link, state::no_engine(why.join("; ")));
    None
}

/// An engine that told its version.
fn connect<'a, C: Connect>(
    library: &'a C,
    choice: &Choice,
    link: &Link,
) -> Result<(C::Engine<'a>, String), String> {
    let origin = crate::model::Origin::Dcgm;
    let name = match choice {
        Choice::Host(_) => "dcgmConnect_v2",
        Choice::Embedded => "dcgmStartEmbedded_v2",
    };
    let calling = link.begin(origin, name, "");
    let engine = library.connect(choice);
    calling.end(engine.is_ok());
    let engine = engine?;
    let version = Caller::new(&engine, link).call("dcgmHostengineIsHealthy", "", Dcgm::version);
    let version = version.map_err(|code| format!("it took the connection but does not answer: {code}"))?;
    Ok((engine, version))
}

/// Reads what is due and answers requests.
fn work<D: Dcgm>(
    session: &mut Session<'_, D>,
    link: &Link,
    asks: &Asks,
    presence: &Presence,
    patience: Option<Duration>,
    clock: &dyn Fn() -> Moment,
) -> Ended {
    let mut had_gpu = clock().mono;
    loop {
        let due = match session.step(clock) {
            Ok(due) => due,
            Err(code) => {
                session.remember();
                return Ended::Gone(code);
            }
        };
        let now = clock().mono;
        // While no GPU has a name none has values, and the basic ones are read elsewhere.
        presence.set(if session.has_named_gpu() { UP } else { TRYING });
        if session.has_gpu() {
            had_gpu = now;
        }
        if patience.is_some_and(|patience| now.since(had_gpu).unwrap_or_default() >= patience) {
            return if session.end().is_ok() {
                Ended::Empty
            } else {
                Ended::Gone(ReturnCode::CONNECTION_NOT_VALID)
            };
        }
        let pause = due.since(now).unwrap_or_default();
        let answered = match asks.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) | Ok(Ask::End) => {
                // What is left undone ends with the connection, and with an engine of our own at once.
                if patience.is_none() {
                    let _gone = session.end();
                }
                return Ended::Asked;
            }
            Ok(Ask::Pause(id)) => session.pause(clock()).map(|(done, text)| answer(link, id, done, text)),
            Ok(Ask::Resume(id)) => session.resume(clock()).map(|(done, text)| answer(link, id, done, text)),
            Ok(Ask::Fields(id)) => session.tell_fields(id),
        };
        if let Err(code) = answered {
            return Ended::Gone(code);
        }
    }
}

/// Waits without an engine; true when the agent asks to end.
pub(super) fn wait(asks: &Asks, link: &Link, pause: Duration, clock: &dyn Fn() -> Moment) -> bool {
    let until = clock().mono.after(pause);
    loop {
        let left = until.since(clock().mono).unwrap_or_default();
        match asks.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) | Ok(Ask::End) => return true,
            Ok(Ask::Pause(id) | Ask::Resume(id) | Ask::Fields(id)) => {
                answer(link, id, false, "DCGM is not up".to_owned());
            }
        }
    }
}

/// The only answer to a request.
pub(super) fn answer(link: &Link, id: u64, done: bool, text: String) {
    link.send(Kind::Answer(report::Answer { id, done, text, more: false }));
}
