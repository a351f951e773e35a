//! The probes at work: regular looks at the maps the kernel programs fill.
//!
//! In: loaded programs, the time. Out: signals; the agent's own numbers; deleted keys.
//! What can go wrong: a map read may fail (then the source fails and starts again); everything else is a count.
//! What is read once a second is in [`super::readings`].

use std::collections::BTreeSet;
use std::fs;
use std::io;

use aya::Pod;
use aya::maps::{HashMap, MapData, MapError};
use warpgauge_ebpf::calls::{InFlight, InFlightKey, SlowCall, flags, kind, layer, major};
use warpgauge_ebpf::event::Event;
use warpgauge_ebpf::histogram::{Histogram, HistogramKey};
use warpgauge_ebpf::lock::{Held, HeldKey, number};
use warpgauge_ebpf::loss::Loss;
use warpgauge_ebpf::maps::{HELD_ENTRIES, IN_FLIGHT_ENTRIES};

use super::attached::Attached;
use super::call_signal::{Names, expected};
use super::events::{Events, Said};
use super::in_flight::{Look, Node, Tracker};
use super::inside::{Sample, judge};
use super::kernel::Support;
use super::locks::{Garbage, holders};
use super::majors::Majors;
use super::object::Loaded;
use super::processes::Processes;
use super::readings::Lives;
use super::rm_calls::RmCalls;
use super::schedule::Schedule;
use super::stats::Stats;
use super::thread_files::ThreadFiles;
use crate::host::{HostRoot, mono_now, suspended_ns};
use crate::model::{Inside, MonoNs, Pid, Signal, StartTicks, ThreadState, Tid};
use crate::sources::Outlet;
use crate::telemetry::{Counter, Gauge, Telemetry};

/// Everything that is held while the probes work.
pub struct Watch {
    pub(super) loaded: Loaded,
    pub(super) host: HostRoot,
    pub(super) host_pids: Support,
    pub(super) names: Names,
    configured_majors: bool,
    pub(super) tracker: Tracker,
    pub(super) stats: Stats,
    pub(super) rm_calls: RmCalls,
    pub(super) processes: Processes,
    pub(super) events: Events,
    pub(super) garbage: Garbage,
    pub(super) schedule: Schedule,
    /// Whether reports of errors are seen, as it was last said.
    pub(super) reports_xids: Option<bool>,
    /// It was said that nobody can be followed.
    pub(super) said_unfollowed: bool,
    pub(super) files: ThreadFiles,
    /// Readings so far.
    pub(super) readings: u64,
    // used again from look to look
    pub(super) in_flight: Vec<(InFlightKey, InFlight)>,
    pub(super) histograms: Vec<(HistogramKey, Histogram)>,
    pub(super) held: Vec<(HeldKey, Held)>,
    pub(super) calling: BTreeSet<u32>,
    pub(super) lives: Lives,
    /// Signals that wait to be sent.
    pub(super) said: Vec<Signal>,
    pub(super) numbers: Numbers,
}

/// The agent's own numbers.
pub(super) struct Numbers {
    /// With what each counter stood at when this watch began: the kernel counts from 0 after every load.
    lost: Vec<(Counter, u64)>,
    in_flight: Gauge,
    pub(super) histograms: Gauge,
    pub(super) processes: Gauge,
    pub(super) rm_calls: Gauge,
    pub(super) held: Gauge,
    pub(super) armed: Gauge,
}

impl Watch {
    /// Begins with empty maps.
    pub fn new(
        loaded: Loaded,
        host: HostRoot,
        host_pids: Support,
        majors: Majors,
        configured_majors: bool,
        tracker: Tracker,
        telemetry: &Telemetry,
    ) -> Self {
        let began_ns = mono_now().0.saturating_add(suspended_ns());
        let processes = Processes::new(began_ns, super::prepare::own_pid(&host));
        Self {
            loaded,
            host,
            host_pids,
            names: Names { majors, ..Names::default() },
            configured_majors,
            tracker,
            stats: Stats::default(),
            rm_calls: RmCalls::default(),
            processes,
            events: Events::default(),
            garbage: Garbage::default(),
            schedule: Schedule::default(),
            reports_xids: None,
            said_unfollowed: false,
            files: ThreadFiles::default(),
            readings: 0,
            in_flight: Vec::new(),
            histograms: Vec::new(),
            held: Vec::new(),
            calling: BTreeSet::new(),
            lives: Lives::default(),
            said: Vec::new(),
            numbers: Numbers::new(telemetry),
        }
    }

    /// What is attached, to be looked after.
    pub fn attached(&mut self) -> &mut Attached {
        &mut self.loaded.attached
    }

    /// Events and ends of slow calls, then calls in flight.
    ///
    /// # Errors
    /// The map cannot be changed.
    pub async fn scan(&mut self, outlet: &Outlet) -> Result<(), MapError> {
        let looked = self.look_at_calls();
        self.send(outlet).await;
        looked
    }

    /// Finished calls and other sums.
    ///
    /// # Errors
    /// The map cannot be changed.
    pub async fn read(&mut self, outlet: &Outlet) -> Result<(), MapError> {
        let read = self.read_sums();
        self.send(outlet).await;
        read
    }

    /// Closes what is open, since this watch is over.
    pub async fn forget(&mut self, outlet: &Outlet) {
        self.tracker.forget(&self.names, &mut |signal| self.said.push(signal));
        self.send(outlet).await;
    }

    /// Entries, ends and differences are said once: one that is dropped is missing for good, so the pipeline is waited
    /// for. A thread's state and a lock's holders are said again at the next scan.
    async fn send(&mut self, outlet: &Outlet) {
        for signal in self.said.drain(..) {
            if matches!(signal, Signal::Thread { .. } | Signal::LockHolders { .. }) {
                outlet.offer(signal);
            } else if outlet.send(signal).await.is_err() {
                break; // the pipeline has ended, and this source is told to stop in a moment
            }
        }
    }

    fn look_at_calls(&mut self) -> Result<(), MapError> {
        // every call that ended before this moment has its event in the ring already
        let now = mono_now();
        self.take_events();
        self.take_ends(now)?;
        self.loaded.flush_log();
        self.read_in_flight();
        self.look_at_locks(now);
        let mut node = ThisNode {
            host: &self.host,
            host_pids: self.host_pids,
            files: &mut self.files,
            in_flight: &self.loaded.in_flight,
        };
        let emit = &mut |signal| self.said.push(signal);
        for (key, _) in self.tracker.scan(now, &self.in_flight, &self.names, &mut node, emit) {
            ignore_absence(self.loaded.in_flight.remove(key))?;
        }
        self.count_losses();
        Ok(())
    }

    /// Before the map is read: an end that is taken has left no entry, so what is then found in the map is still going on.
    pub(super) fn take_ends(&mut self, now: MonoNs) -> Result<(), MapError> {
        let mut opened_unknown = false;
        while let Some(item) = self.loaded.slow_calls.next() {
            if let Some(event) = SlowCall::from_bytes(&item) {
                opened_unknown |= is_open_of_unknown(&event, &self.names.majors);
                if event.call.kind == kind::LOCK {
                    self.names.locks.learn(number(event.call.object), now);
                }
                self.tracker.ended(&event, &self.names, &mut |signal| self.said.push(signal));
            }
        }
        if opened_unknown {
            // the driver was loaded while somebody waited for it
            self.look_for_majors()?;
        }
        Ok(())
    }

    fn take_events(&mut self) {
        let emit = &mut |signal| self.said.push(signal);
        while let Some(item) = self.loaded.events.next() {
            let Some(event) = Event::from_bytes(&item) else { continue };
            let at = MonoNs(event.at_ns);
            match self.events.take(&event, emit) {
                Said::Works => self.processes.works(at, event.tgid, event.start_ns, emit),
                Said::Execs => self.processes.execs(at, event.tgid, event.start_ns),
                Said::Ended => self.processes.ended(at, event.tgid, event.start_ns),
                Said::Nothing => {}
            }
        }
    }

    /// Who has the locks that are waited for; said before the waits themselves, so that a victim's holder is known.
    fn look_at_locks(&mut self, now: MonoNs) {
        let is_wait = |(key, call): &&(InFlightKey, InFlight)| {
            let is_long = now.since(MonoNs(call.enter_ns)).is_some_and(|age| age >= super::SLOW);
            is_long && key.layer == layer::LOCK && call.kind == kind::LOCK
        };
        let waited: BTreeSet<u64> =
            self.in_flight.iter().filter(is_wait).map(|(_, call)| call.object).collect();
        if waited.is_empty() {
            return;
        }
        self.read_held();
        self.names.locks.learn_rm_api(now, &self.held, &self.in_flight);
        for lock in waited {
            let holders = holders(&mut self.names.locks, now, lock, &self.held);
            self.said.push(Signal::LockHolders { at: now, holders: Box::new(holders) });
        }
    }

    pub(super) fn read_held(&mut self) {
        walk(&self.loaded.held, HELD_ENTRIES, &mut self.held);
        self.held.sort_unstable_by_key(|(key, _)| *key);
        self.held.dedup_by_key(|(key, _)| *key);
        self.numbers.held.set(self.held.len() as u64);
    }

    /// The driver may have been loaded again, under another major.
    ///
    /// # Errors
    /// The map cannot be changed.
    pub fn look_for_majors(&mut self) -> Result<(), MapError> {
        if self.configured_majors {
            return Ok(());
        }
        let Ok(text) = fs::read_to_string(self.host.proc("devices")) else { return Ok(()) };
        let majors = Majors::of_nvidia(&text);
        if majors != self.names.majors {
            tracing::info!(majors = ?majors.array(), left_out = majors.left_out, "the watched device majors changed");
            self.loaded.watch(majors.array())?;
            self.names.majors = majors;
        }
        Ok(())
    }

    pub(super) fn read_in_flight(&mut self) {
        walk(&self.loaded.in_flight, IN_FLIGHT_ENTRIES, &mut self.in_flight);
        self.in_flight.sort_unstable_by_key(|(key, _)| *key);
        self.in_flight.dedup_by_key(|(key, _)| *key);
        self.numbers.in_flight.set(self.in_flight.len() as u64);
        self.calling.clear();
        // an open of an unread path is mostly none of ours
        let ours = self.in_flight.iter().filter(|(_, call)| call.flags & flags::PATH_UNREAD == 0);
        self.calling.extend(ours.map(|(_, call)| call.tgid));
    }

    fn count_losses(&self) {
        for (loss, (counter, base)) in Loss::ALL.iter().zip(&self.numbers.lost) {
            if let Ok(count) = self.loaded.losses.get(&(*loss as u32), 0) {
                counter.raise_to(base.saturating_add(count));
            }
        }
    }
}

/// A map's entries. They come and go under the walk, which then begins again: it is bounded, and there may be repeats.
pub(super) fn walk<K: Pod, V: Pod>(map: &HashMap<MapData, K, V>, most: u32, into: &mut Vec<(K, V)>) {
    into.clear();
    into.extend(map.iter().take(most as usize).map_while(Result::ok));
}

impl Numbers {
    fn new(telemetry: &Telemetry) -> Self {
        let lost = Loss::ALL.map(|loss| {
            let counter = telemetry.counter("warpgauge.probe.lost", &[("reason", loss.name())]);
            let base = counter.get();
            (counter, base)
        });
        let entries = |map| telemetry.gauge("warpgauge.probe.entries", &[("map", map)]);
        Self {
            lost: lost.into(),
            in_flight: entries("in_flight"),
            histograms: entries("histogram"),
            processes: entries("process"),
            rm_calls: entries("rm_call"),
            held: entries("held"),
            armed: telemetry.gauge("warpgauge.scheduler.armed", &[]),
        }
    }
}

/// This node's threads, and the map as it is.
struct ThisNode<'a> {
    host: &'a HostRoot,
    host_pids: Support,
    files: &'a mut ThreadFiles,
    in_flight: &'a HashMap<MapData, InFlightKey, InFlight>,
}

impl Node for ThisNode<'_> {
    fn look(&mut self, key: &InFlightKey, call: &InFlight, before: Option<&Sample>) -> Look {
        let mut state = ThreadState {
            state: None,
            wait: None,
            launcher: false,
            inside: Inside::Unknown,
            utime: None,
            stime: None,
        };
        if self.host_pids == Support::No {
            // the numbers name other threads there
            return Look { state, sample: None };
        }
        let mut reading = self.files.read(self.host, Pid(call.tgid), Tid(key.tid));
        let start = StartTicks::from_boottime_ns(call.start_ns);
        let process = self.files.process(self.host, Pid(call.tgid)).ok().flatten();
        let mut dying = call.flags & flags::DYING != 0;
        if call.start_ns != 0 && process.is_some_and(|process| StartTicks(process.start) != start) {
            // a later process has the number; if the numbers mean the same here and in the kernel, the former one is dead
            (reading.stat, reading.gone) = (None, true);
            dying |= self.host_pids == Support::Yes;
        }
        let (inside, sample) = judge(&reading, mono_now(), &expected(call, &mut [0], dying), before);
        state.inside = inside;
        state.wait = (inside == Inside::Inside).then(|| "driver".to_owned());
        state.state = reading.stat.map(|stat| stat.state);
        state.utime = reading.stat.map(|stat| stat.utime as f64 / 100.0);
        state.stime = reading.stat.map(|stat| stat.stime as f64 / 100.0);
        Look { state, sample }
    }

    fn entry(&mut self, key: &InFlightKey) -> Option<InFlight> {
        self.in_flight.get(key, 0).ok()
    }

    fn is_in_driver(&mut self, key: &InFlightKey, call: &InFlight) -> bool {
        self.host_pids != Support::No && self.files.is_in_driver(self.host, Pid(call.tgid), Tid(key.tid))
    }
}

/// A device was opened under a watched path, and its major is none that is watched.
fn is_open_of_unknown(event: &SlowCall, majors: &Majors) -> bool {
    let major = major(event.call.dev);
    event.call.kind == kind::OPEN && major != 0 && !majors.array().contains(&major)
}

/// What is not there any more need not be deleted.
pub(super) fn ignore_absence(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(MapError::KeyNotFound) => Ok(()),
        other => other,
    }
}
