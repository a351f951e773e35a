//! The probes at work: regular looks at the maps the kernel programs fill.
//!
//! In: loaded programs, the time. Out: signals; the agent's own numbers; deleted keys.
//! What can go wrong: a map read may fail (then the source fails and starts again); everything else is a count.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use warpgauge_ebpf::calls::{InFlight, InFlightKey, SlowCall, flags, kind, major};
use warpgauge_ebpf::histogram::{Histogram, HistogramKey};
use warpgauge_ebpf::loss::Loss;
use warpgauge_ebpf::maps::{HISTOGRAM_ENTRIES, IN_FLIGHT_ENTRIES};

use aya::maps::{HashMap, MapData, MapError};

use crate::host::{HostRoot, mono_now};
use crate::model::{Inside, Pid, Signal, StartTicks, ThreadState, Tid};
use crate::sources::Outlet;
use crate::telemetry::{Counter, Gauge, Telemetry};

use super::attached::Attached;
use super::call_signal::expected;
use super::in_flight::{Look, Node, Tracker};
use super::inside::{Sample, judge};
use super::kernel::Support;
use super::majors::Majors;
use super::object::Loaded;
use super::stats::{Life, Stats};
use super::thread_files::ThreadFiles;

/// Everything that is held while the probes work.
pub struct Watch {
    loaded: Loaded,
    host: HostRoot,
    host_pids: Support,
    majors: Majors,
    configured_majors: bool,
    tracker: Tracker,
    stats: Stats,
    files: ThreadFiles,
    // used again from look to look
    in_flight: Vec<(InFlightKey, InFlight)>,
    histograms: Vec<(HistogramKey, Histogram)>,
    calling: BTreeSet<u32>,
    /// Signals that wait to be sent.
    said: Vec<Signal>,
    numbers: Numbers,
}

/// The agent's own numbers.
struct Numbers {
    /// With what each counter stood at when this watch began: the kernel counts from 0 after every load.
    lost: Vec<(Counter, u64)>,
    in_flight: Gauge,
    histograms: Gauge,
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
        Self {
            loaded,
            host,
            host_pids,
            majors,
            configured_majors,
            tracker,
            stats: Stats::default(),
            files: ThreadFiles::default(),
            in_flight: Vec::new(),
            histograms: Vec::new(),
            calling: BTreeSet::new(),
            said: Vec::new(),
            numbers: Numbers::new(telemetry),
        }
    }

    /// What is attached, to be looked after.
    pub fn attached(&mut self) -> &mut Attached {
        &mut self.loaded.attached
    }

    /// Ends of slow calls, then calls in flight.
    ///
    /// # Errors
    /// The map cannot be changed.
    pub async fn scan(&mut self, outlet: &Outlet) -> Result<(), MapError> {
        let looked = self.look_at_calls();
        self.send(outlet).await;
        looked
    }

    /// Finished calls.
    ///
    /// # Errors
    /// The map cannot be changed.
    pub async fn read(&mut self, outlet: &Outlet) -> Result<(), MapError> {
        let read = self.read_histograms();
        self.send(outlet).await;
        read
    }

    /// Closes what is open, since this watch is over.
    pub async fn forget(&mut self, outlet: &Outlet) {
        self.tracker.forget(&self.majors, &mut |signal| self.said.push(signal));
        self.send(outlet).await;
    }

    /// Entries, ends and differences are said once: one that is dropped is missing for good, so the pipeline is waited
    /// for. A thread's state is said again at the next scan.
    async fn send(&mut self, outlet: &Outlet) {
        for signal in self.said.drain(..) {
            if matches!(signal, Signal::Thread { .. }) {
                outlet.offer(signal);
            } else if outlet.send(signal).await.is_err() {
                break; // the pipeline has ended, and this source is told to stop in a moment
            }
        }
    }

    fn look_at_calls(&mut self) -> Result<(), MapError> {
        // every call that ended before this moment has its event in the ring already
        let now = mono_now();
        let emit = &mut |signal| self.said.push(signal);
        // ends first: an end that is read has left no entry, so what is then found in the map is still going on
        let mut opened_unknown = false;
        while let Some(item) = self.loaded.slow_calls.next() {
            if let Some(event) = SlowCall::from_bytes(&item) {
                opened_unknown |= is_open_of_unknown(&event, &self.majors);
                self.tracker.ended(&event, &self.majors, emit);
            }
        }
        if opened_unknown {
            // the driver was loaded while somebody waited for it
            self.look_for_majors()?;
        }
        self.loaded.flush_log();
        self.read_in_flight();
        let mut node = ThisNode {
            host: &self.host,
            host_pids: self.host_pids,
            files: &mut self.files,
            in_flight: &self.loaded.in_flight,
        };
        let emit = &mut |signal| self.said.push(signal);
        for (key, _) in self.tracker.scan(now, &self.in_flight, &self.majors, &mut node, emit) {
            ignore_absence(self.loaded.in_flight.remove(key))?;
        }
        self.count_losses();
        Ok(())
    }

    fn read_histograms(&mut self) -> Result<(), MapError> {
        self.histograms.clear();
        // keys come and go by this hand only, so the walk ends
        let entries = self.loaded.histograms.iter().take(HISTOGRAM_ENTRIES as usize);
        self.histograms.extend(entries.map_while(Result::ok));
        self.numbers.histograms.set(self.histograms.len() as u64);
        let (host, files, host_pids, calling) = (&self.host, &mut self.files, self.host_pids, &self.calling);
        let life = &mut |tgid| life(host, host_pids, files, calling, tgid);
        let emit = &mut |signal| self.said.push(signal);
        let done = self.stats.read(mono_now(), &self.histograms, life, emit);
        for key in done {
            ignore_absence(self.loaded.histograms.remove(key))?;
        }
        Ok(())
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
        if majors != self.majors {
            tracing::info!(majors = ?majors.array(), left_out = majors.left_out, "the watched device majors changed");
            self.loaded.watch(majors.array())?;
            self.majors = majors;
        }
        Ok(())
    }

    fn read_in_flight(&mut self) {
        self.in_flight.clear();
        // entries come and go under the walk, which then begins again: it is bounded, and repeats are dropped
        let entries = self.loaded.in_flight.iter().take(IN_FLIGHT_ENTRIES as usize);
        self.in_flight.extend(entries.map_while(Result::ok));
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

impl Numbers {
    fn new(telemetry: &Telemetry) -> Self {
        let lost = Loss::ALL.map(|loss| {
            let counter = telemetry.counter("warpgauge.probe.lost", &[("reason", loss.name())]);
            let base = counter.get();
            (counter, base)
        });
        Self {
            lost: lost.into(),
            in_flight: telemetry.gauge("warpgauge.probe.entries", &[("map", "in_flight")]),
            histograms: telemetry.gauge("warpgauge.probe.entries", &[("map", "histogram")]),
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
}

/// A device was opened under a watched path, and its major is none that is watched.
fn is_open_of_unknown(event: &SlowCall, majors: &Majors) -> bool {
    let major = major(event.call.dev);
    event.call.kind == kind::OPEN && major != 0 && !majors.array().contains(&major)
}

fn life(
    host: &HostRoot,
    host_pids: Support,
    files: &mut ThreadFiles,
    calling: &BTreeSet<u32>,
    tgid: u32,
) -> Life {
    // an entry may outlive its process; its end is still to be counted
    if host_pids == Support::No || calling.contains(&tgid) {
        return Life::Unknown;
    }
    match files.process(host, Pid(tgid)) {
        Ok(Some(stat)) => Life::Alive(StartTicks(stat.start)),
        Ok(None) if fs::metadata(&host.proc).is_ok() => Life::Gone,
        Ok(None) | Err(_) => Life::Unknown,
    }
}

fn ignore_absence(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(MapError::KeyNotFound) => Ok(()),
        other => other,
    }
}
