//! Series of devices: measured fields, what is known of the device in words, its state, its processes.
//!
//! In: checked readings and what is said about devices and sources. Out: points at each collection, ordered as in the
//! catalogue. Device series never name a pod.
//! A pure core: no clock and no channel. What can go wrong: too many series; they are refused and counted.

pub mod accounts;
pub mod allocations;
pub mod budget;
pub mod cell;
pub mod identity;
pub mod mismatch;
pub mod parts;
pub mod processes;
pub mod series;
pub mod standing;
pub mod subject;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use self::accounts::{Accounts, Share};
use self::allocations::Allocations;
use self::budget::Budget;
use self::identity::Identities;
use self::mismatch::Mismatches;
use self::processes::Processes;
use self::series::Moment;
use self::standing::{Placed, Standing};
use self::subject::SubjectSeries;
use super::device_catalog::{FIELD_ABSENT, NVLINK_INFO};
use super::point::{Point, Value};
use super::series::Limits;
use super::whose::Whose;
use super::workload_catalog;
use crate::model::signal::{DeviceState, SourceState};
use crate::model::{
    Absence, Attributed, Fact, Gpu, MonoNs, Origin, Part, Samples, Signal, Subject, WallAnchor, WallNs,
};
use crate::telemetry::{Counter, Telemetry};

/// Series of devices that may be held: 56 MIG instances and 8 boards with 60 fields, and 18 links of each board with 40
/// more, fit. At about 400 bytes each: 8 MB at most.
pub const LIMITS: Limits = Limits { per_metric: 4_000, total: 20_000 };

/// Devices and parts of devices beyond these are refused: each has a table of fields of its own (1.3 kB).
const SUBJECTS_MAX: usize = 2_048;

/// Those of 56 MIG instances and 144 links may go at once.
const LEAVING_MAX: usize = 256;

/// A device that nobody has said anything of for this long is gone, and its going was missed. An engine may be away
/// for hours, and counters go on when it is back.
const SILENCE: Duration = Duration::from_secs(24 * 3_600);

/// The state of all device series.
#[derive(Debug)]
pub struct Devices {
    start: WallNs,
    /// Time of the latest collection.
    collected: WallNs,
    subjects: HashMap<Subject, SubjectSeries>,
    /// Of devices that are gone: their series are to be ended.
    leaving: Vec<(Subject, SubjectSeries)>,
    identities: Identities,
    processes: Processes,
    accounts: Accounts,
    allocations: Allocations,
    mismatches: Mismatches,
    standing: Standing,
    budget: Budget,
    /// Readings of devices beyond [`SUBJECTS_MAX`].
    too_many: Counter,
}

impl Devices {
    /// No devices yet; levels count from `start`.
    pub fn new(start: WallNs, limits: Limits, telemetry: Telemetry) -> Self {
        Self {
            start,
            collected: start,
            subjects: HashMap::new(),
            leaving: Vec::new(),
            identities: Identities::new(&telemetry),
            processes: Processes::default(),
            accounts: Accounts::new(&telemetry),
            allocations: Allocations::default(),
            mismatches: Mismatches::new(&telemetry),
            standing: Standing::default(),
            too_many: telemetry.counter("warpgauge.samples.dropped", &[("reason", "too_many_devices")]),
            budget: Budget::new(limits, telemetry),
        }
    }

    /// Books a batch of readings.
    pub fn samples(&mut self, samples: &Samples, at: MonoNs) {
        let full = self.subjects.len() >= SUBJECTS_MAX;
        let series = match self.subjects.entry(samples.subject.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if full => return self.too_many.add(samples.readings.len() as u64),
            Entry::Vacant(new) => {
                // Of adapters the host's sysfs is all there is: no library tells of them.
                let kind = match samples.subject.part {
                    Part::Port(_) => "network",
                    Part::Core(_) => "cpu",
                    Part::Whole | Part::Link(_) => self.identities.kind(&samples.subject.hw_id),
                };
                new.insert(SubjectSeries::new(&samples.subject, kind, at, self.collected))
            }
        };
        series.take(samples, at, &mut self.budget);
        if samples.subject.part == Part::Whole {
            for reading in samples.readings.iter().filter(|reading| reading.field == accounts::COUNTER) {
                self.accounts.read(&samples.subject.hw_id, reading, samples.origin);
            }
        }
    }

    /// What was shared out among workloads since this was last asked.
    pub fn shares(&mut self) -> Vec<Share> {
        self.accounts.shares()
    }

    /// The workloads on a device.
    pub fn workloads_on(&self, hw_id: &str) -> impl Iterator<Item = &Whose> {
        self.processes.uses(hw_id).map(|(whose, _)| whose)
    }

    /// Books what is said about devices and sources.
    pub fn push(&mut self, fact: &Attributed<Fact>) {
        let Fact::Reading(signal) = &fact.item else { return };
        match signal {
            Signal::Samples { at, samples } => self.samples(samples, *at),
            Signal::Gpu { gpu, .. } => {
                self.identities.know(gpu);
                self.rename(gpu);
            }
            // the driver going to sleep says nothing of its release
            Signal::Driver { driver, .. } if driver.version.is_none() => {}
            Signal::Driver { driver, .. } => self.identities.set_driver(driver.version.as_ref()),
            Signal::Health { hw_id, subsystem, level, .. } => {
                self.identities.set_health(hw_id, *subsystem, *level);
            }
            Signal::GpuState { hw_id, state, .. } => self.state(hw_id, *state),
            Signal::Processes { at, processes } => {
                let given = (self.identities.parent(&processes.hw_id), &self.allocations);
                self.mismatches.take(fact, processes, given, *at);
                self.processes.take(fact, processes, &mut self.budget);
                self.accounts.list(&processes.hw_id, self.processes.uses(&processes.hw_id), *at);
            }
            Signal::Allocation { allocation, .. } => self.allocations.take(allocation, &mut self.budget),
            Signal::Source { source, .. } => self.source(source),
            Signal::Uses { .. }
            | Signal::Process { .. }
            | Signal::Exec { .. }
            | Signal::OpenNodes { .. }
            | Signal::Exit { .. }
            | Signal::Call { .. }
            | Signal::Thread { .. }
            | Signal::CallStats { .. }
            | Signal::RmCalls { .. }
            | Signal::LockWaits { .. }
            | Signal::UvmWork { .. }
            | Signal::Scheduling { .. }
            | Signal::LockHolders { .. }
            | Signal::Role { .. }
            | Signal::XidReport { .. }
            | Signal::VendorCalls { .. }
            | Signal::DriverLog { .. }
            | Signal::PodDevices { .. }
            | Signal::JobDevices { .. }
            | Signal::Tick { .. }
            | Signal::End { .. } => {}
        }
    }

    /// All points as of `moment`, in the catalogue's order.
    pub fn collect(&mut self, now: WallAnchor, at: WallNs) -> Vec<Point> {
        let (moment, mut out) = (Moment { now, at }, Placed::new());
        for (subject, mut series) in std::mem::take(&mut self.leaving) {
            // One that came back goes on under the same name.
            if !self.subjects.contains_key(&subject) {
                series.end(moment, &mut out);
            }
        }
        let silent =
            |series: &SubjectSeries| now.mono.since(series.heard()).is_some_and(|quiet| quiet > SILENCE);
        for (_, mut series) in self.subjects.extract_if(|_, series| silent(series)) {
            series.free(&mut self.budget);
            series.end(moment, &mut out);
        }
        self.standing.begin();
        // In the order of their attributes, so that the sort below finds long runs instead of comparing texts.
        let mut in_order: Vec<_> = self.subjects.iter_mut().collect();
        in_order.sort_unstable_by_key(|(subject, _)| *subject);
        for (subject, series) in in_order {
            series.collect(moment, &mut self.standing, &mut out);
            // A device's words are on its own info series, which there is one of.
            if let (Part::Link(_), Some(words)) = (subject.part, series.words_of_part()) {
                let times = (self.start, moment.at);
                self.standing.put(&NVLINK_INFO, &words, Value::Count(1), times, &mut out);
            }
        }
        let subjects = &self.subjects;
        let texts = |hw_id: &Arc<str>| {
            let whole = Subject { hw_id: Arc::clone(hw_id), part: Part::Whole };
            subjects.get(&whole).map(SubjectSeries::texts)
        };
        self.identities.collect(moment, self.start, texts, &mut self.standing, &mut out);
        self.processes.collect(moment, self.start, &mut self.standing, &mut out);
        self.lacks(moment, &mut out);
        self.allocations.collect(moment, self.start, &mut self.standing, &mut out);
        self.standing.finish(at, &mut out);
        self.collected = at;
        self.budget.publish();
        out.sort_by_key(|(place, _)| *place);
        for of_one_metric in out.chunk_by_mut(|(a, _), (b, _)| a == b) {
            of_one_metric.sort_by(|(_, p), (_, q)| p.attributes.cmp(&q.attributes));
        }
        out.into_iter().map(|(_, point)| point).collect()
    }

    /// Begins all series anew at `start`, which may lie before all points so far.
    pub fn restart(&mut self, start: WallNs) {
        (self.start, self.collected) = (start, start);
        self.subjects.values_mut().for_each(|series| series.restart(start));
    }

    /// What workloads on a device use and no library tells.
    fn lacks(&mut self, moment: Moment, out: &mut Placed) {
        for (hw_id, has_use) in self.processes.devices() {
            let is_instance = self.identities.parent(hw_id).is_some();
            let energy = self.accounts.absence(hw_id, is_instance, moment.now.mono);
            let sm = (is_instance && !has_use).then_some(Absence::NotSupported);
            for (metric, reason) in [(&workload_catalog::SM, sm), (&workload_catalog::ENERGY, energy)] {
                let Some(reason) = reason else { continue };
                let attributes = Arc::new(vec![
                    ("hw.id", hw_id.to_string()),
                    ("hw.type", self.identities.kind(hw_id).to_owned()),
                    ("gpu.field", metric.name.to_owned()),
                    ("gpu.absence.reason", reason.name().to_owned()),
                ]);
                let times = (self.start, moment.at);
                self.standing.put(&FIELD_ABSENT, &attributes, Value::Count(1), times, out);
            }
        }
    }

    fn state(&mut self, hw_id: &str, state: DeviceState) {
        self.identities.set_state(hw_id, state);
        match state {
            DeviceState::Gone => {
                self.processes.forget(hw_id, &mut self.budget);
                self.accounts.forget(hw_id);
                self.mismatches.forget(hw_id);
                for (subject, mut series) in self.subjects.extract_if(|subject, _| *subject.hw_id == *hw_id) {
                    series.free(&mut self.budget);
                    self.leaving.push((subject, series));
                }
                self.forget_surplus();
            }
            DeviceState::Lost => {
                self.processes.forget(hw_id, &mut self.budget);
                self.accounts.lose(hw_id, Absence::DeviceLost);
                let of = self.subjects.iter_mut().filter(|(subject, _)| *subject.hw_id == *hw_id);
                of.for_each(|(_, series)| series.lose(Absence::DeviceLost, None));
            }
            DeviceState::Ok | DeviceState::Resetting => {}
        }
    }

    /// What the host told of a board before the driver gave it a name ends: it goes on under that name.
    fn rename(&mut self, gpu: &Gpu) {
        let (Some(pci), None) = (gpu.pci, &gpu.parent) else { return };
        let address = pci.to_string();
        if address == gpu.hw_id {
            return;
        }
        let former = Subject { hw_id: address.into(), part: Part::Whole };
        if let Some(mut series) = self.subjects.remove(&former) {
            series.free(&mut self.budget);
            self.leaving.push((former, series));
            self.forget_surplus();
        }
    }

    /// Nobody may collect, or devices may come and go in a storm: the latest are remembered.
    fn forget_surplus(&mut self) {
        let surplus = self.leaving.len().saturating_sub(LEAVING_MAX);
        self.leaving.drain(..surplus);
    }

    /// A source that is down, or late, takes all its values with it.
    fn source(&mut self, source: &SourceState) {
        let origins = [Origin::Dcgm, Origin::Nvml, Origin::Host];
        let Some(origin) = origins.into_iter().find(|origin| origin.name() == source.name) else { return };
        self.identities.set_answering(origin, source.up);
        if source.up {
            return self.subjects.values_mut().for_each(|series| series.regain(origin));
        }
        for series in self.subjects.values_mut() {
            series.lose(Absence::SourceDown, Some(origin));
        }
        self.accounts.lose_source(origin);
        if origin == Origin::Nvml {
            self.processes.forget_all(&mut self.budget);
        }
    }
}
