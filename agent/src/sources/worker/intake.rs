//! Reports of the worker → signals.
//!
//! In: one report at a time. Out: signals, and what is not for the stages ([`Aside`]). Pure.
//! Nothing in a report is believed: the worker runs foreign code. What can go wrong: unknown devices, numbers that
//! cannot be, too much of anything; each is refused and counted in `warpgauge.worker.frames.dropped`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::clean;
use super::deadline::Flight;
use super::events::Events;
use super::inventory::Inventory;
use super::listed::Listed;
use super::refused::Refused;
use super::values;
use crate::model::signal::{
    DriverState, GpuContext, GpuProcess, GpuProcesses, HealthLevel, LateCall, ModuleState, Subsystem, Uses,
};
use crate::model::{Gpu, LatencyDelta, MonoNs, Origin, Pid, Signal, UseEvidence, VendorCalls};
use crate::wire::report::{self, Content, Kind};

/// Processes on one device; a device has at most a few hundred contexts.
const PROCESSES_MAX: usize = 1_024;
/// Processes on all devices.
const USES_MAX: usize = 16_384;
/// Entries of one heartbeat.
const CALLS_MAX: usize = 4_096;
/// A reading from further ahead than this was not made yet.
const AHEAD: Duration = Duration::from_secs(1);

/// What is not for the stages.
#[derive(Clone, Debug, PartialEq)]
pub enum Aside {
    /// The worker is there.
    Hello(report::Hello),
    /// What its calls do, and what it dropped (values, others) since it began.
    Heartbeat(Vec<Flight>, (u64, u64)),
    /// What it says of a source.
    State(report::State),
    /// An answer to a request.
    Answer(report::Answer),
    /// The driver is about to be bound or unbound (true), or that is over.
    Bind(bool),
    /// A word on a source that is up.
    Note(report::Note),
}

/// What was learnt from one agent's workers, the earlier ones included.
#[derive(Debug)]
pub struct Intake {
    inventory: Inventory,
    subjects: BTreeSet<(Origin, u32, u32, u32)>,
    events: Events,
    uses: BTreeMap<Arc<str>, BTreeSet<Pid>>,
    driver: Option<DriverState>,
    flavour: Option<String>,
    /// Our own processes, which are no workloads.
    own: [Option<Pid>; 2],
    refused: Refused,
}

impl Intake {
    /// Nothing known; `agent` is this process.
    pub fn new(agent: Pid, refused: Refused) -> Self {
        Self {
            inventory: Inventory::default(),
            subjects: BTreeSet::new(),
            events: Events::default(),
            uses: BTreeMap::new(),
            driver: None,
            flavour: None,
            own: [Some(agent), None],
            refused,
        }
    }

    /// A new worker, with the driver's flavour as it is now.
    pub fn begin(&mut self, worker: Pid, flavour: Option<String>) {
        self.inventory.forget_keys();
        self.subjects.clear();
        self.own[1] = Some(worker);
        self.flavour = flavour;
    }

    /// Takes one report that came in at `now`.
    pub fn push(&mut self, now: MonoNs, kind: Kind, out: &mut Vec<Signal>) -> Option<Aside> {
        match kind {
            Kind::Hello(hello) => return Some(Aside::Hello(hello)),
            Kind::Heartbeat(beat) => return Some(self.heartbeat(now, beat, out)),
            Kind::Inventory(inventory) => self.inventory(now, inventory, out),
            Kind::Samples(samples) => self.samples(now, samples, out),
            Kind::Processes(processes) => self.processes(now, processes, out),
            Kind::Health(health) => self.health(now, &health, out),
            Kind::State(state) => {
                let origin = super::deadline::ORIGINS.into_iter().find(|o| o.name() == state.name);
                if let Some(origin) = origin.filter(|_| !state.up) {
                    self.inventory.stale(origin);
                }
                return Some(Aside::State(state));
            }
            Kind::Note(note) => return Some(Aside::Note(note)),
            Kind::Answer(answer) => return Some(Aside::Answer(answer)),
            Kind::Bind(bind) => match bind.event {
                1 => return Some(Aside::Bind(true)),
                2 => return Some(Aside::Bind(false)),
                _ => self.refused.invalid.add(1),
            },
        }
        None
    }

    /// All devices that workloads run on, and who does, as told last.
    pub fn listed(&self) -> Vec<Listed> {
        let others = |pids: &BTreeSet<Pid>| {
            let others = pids.iter().filter(|pid| !self.own.contains(&Some(**pid)));
            others.map(|pid| pid.0).collect()
        };
        let listed = |gpu: &Gpu| Listed::of(gpu, self.uses.get(&*gpu.hw_id).map(others));
        self.inventory.gpus().filter_map(listed).collect()
    }

    fn heartbeat(&mut self, now: MonoNs, beat: report::Heartbeat, out: &mut Vec<Signal>) -> Aside {
        let in_flight = beat.in_flight.iter().take(CALLS_MAX).filter_map(|call| {
            let late = LateCall {
                call: clean::name(&call.call)?,
                hw_id: clean::identity(&call.hw_id).map(str::to_owned),
                began: MonoNs(call.began_ns),
            };
            Some(Flight { origin: origin(call.origin)?, call: late })
        });
        let in_flight = in_flight.collect();
        for finished in beat.finished.into_iter().take(CALLS_MAX) {
            match vendor_calls(&finished) {
                Some(calls) => out.push(Signal::VendorCalls { at: now, calls: Box::new(calls) }),
                None => self.refused.invalid.add(1),
            }
        }
        Aside::Heartbeat(in_flight, (beat.dropped_values, beat.dropped_others))
    }

    fn inventory(&mut self, now: MonoNs, inventory: report::Inventory, out: &mut Vec<Signal>) {
        let Some(origin) = origin(inventory.origin) else { return self.refused.invalid.add(1) };
        if let Some(version) = clean::name(&inventory.driver_version) {
            let flavour = self.flavour.clone();
            let driver = DriverState { version: Some(version), flavour, state: ModuleState::Loaded };
            if self.driver.as_ref() != Some(&driver) {
                out.push(Signal::Driver { at: now, driver: driver.clone() });
                self.driver = Some(driver);
            }
        }
        let refused = self.inventory.replace(now, origin, inventory.devices, out);
        self.refused.invalid.add(refused as u64);
        let known = &self.inventory;
        self.subjects.retain(|(of, key, ..)| *of != origin || known.hw_id(origin, *key).is_some());
        let gone: Vec<_> = self.uses.keys().filter(|id| !self.inventory.has(id)).map(Arc::clone).collect();
        for hw_id in gone {
            for pid in self.uses.remove(&hw_id).into_iter().flatten() {
                out.push(self.uses(now, pid, &hw_id, true));
            }
        }
    }

    fn samples(&mut self, now: MonoNs, mut samples: report::Samples, out: &mut Vec<Signal>) {
        let Some(origin) = origin(samples.origin) else { return self.refused.invalid.add(1) };
        let Some(hw_id) = self.inventory.hw_id(origin, samples.key) else {
            return self.refused.unknown_device.add(1);
        };
        let subject = (origin, samples.key, samples.part, samples.part_number);
        if !self.subjects.contains(&subject) {
            if self.subjects.len() >= values::SUBJECTS_MAX {
                return self.refused.too_many.add(1);
            }
            self.subjects.insert(subject);
        }
        let hw_id = Arc::clone(hw_id);
        let before = samples.values.len();
        samples.values.retain(|value| match (value.stamp_us, &value.content) {
            (1.., Some(Content::Int(number))) => self.events.is_news(&hw_id, *number, value.stamp_us),
            _ => true,
        });
        if samples.values.is_empty() && before > 0 {
            return; // an earlier worker told them
        }
        match values::samples(now.after(AHEAD), origin, hw_id, samples, &self.refused) {
            Some((at, samples)) => out.push(Signal::Samples { at, samples: Box::new(samples) }),
            None => self.refused.invalid.add(1),
        }
    }

    fn processes(&mut self, now: MonoNs, told: report::Processes, out: &mut Vec<Signal>) {
        let Some(hw_id) = self.inventory.hw_id(Origin::Nvml, told.key).map(Arc::clone) else {
            return self.refused.unknown_device.add(1);
        };
        let at = MonoNs(told.read_ns).min(now);
        let surplus = told.processes.len().saturating_sub(PROCESSES_MAX);
        self.refused.too_many.add(surplus as u64);
        let processes: Vec<_> = told.processes.into_iter().take(PROCESSES_MAX).filter_map(process).collect();
        let before = self.uses.remove(&hw_id).unwrap_or_default();
        let room = USES_MAX.saturating_sub(self.uses.values().map(BTreeSet::len).sum());
        let mut pids: BTreeSet<Pid> = processes.iter().map(|process| process.pid).collect();
        if let Some(first) = pids.iter().nth(room).copied() {
            let surplus = pids.split_off(&first);
            self.refused.too_many.add(surplus.len() as u64);
        }
        for pid in before.difference(&pids) {
            out.push(self.uses(at, *pid, &hw_id, true));
        }
        for pid in pids.difference(&before) {
            out.push(self.uses(at, *pid, &hw_id, false));
        }
        self.uses.insert(Arc::clone(&hw_id), pids);
        out.push(Signal::Processes { at, processes: Box::new(GpuProcesses { hw_id, processes }) });
    }

    fn uses(&self, at: MonoNs, pid: Pid, hw_id: &str, end: bool) -> Signal {
        let role = if self.own.contains(&Some(pid)) { "agent" } else { "workload" };
        let (evidence, role) = (UseEvidence::Nvml, role.to_owned());
        Signal::Uses { at, uses: Uses { pid, hw_id: hw_id.to_owned(), evidence, role, end } }
    }

    fn health(&mut self, now: MonoNs, health: &report::Health, out: &mut Vec<Signal>) {
        let Some(hw_id) = self.inventory.hw_id(Origin::Dcgm, health.key) else {
            return self.refused.unknown_device.add(1);
        };
        let at = MonoNs(health.read_ns).min(now);
        for (subsystem, level) in Subsystem::ALL.iter().zip(&health.levels) {
            let level = match level {
                0 => HealthLevel::Pass,
                1 => HealthLevel::Warn,
                2 => HealthLevel::Fail,
                _ => {
                    self.refused.invalid.add(1);
                    continue;
                }
            };
            out.push(Signal::Health { at, hw_id: hw_id.to_string(), subsystem: *subsystem, level });
        }
    }
}

fn origin(number: u32) -> Option<Origin> {
    match number {
        1 => Some(Origin::Dcgm),
        2 => Some(Origin::Nvml),
        _ => None,
    }
}

fn process(told: report::Process) -> Option<GpuProcess> {
    let context = match told.context {
        0 => GpuContext::Compute,
        1 => GpuContext::Graphics,
        2 => GpuContext::Mps,
        _ => return None,
    };
    let share = told.sm_utilization.filter(|share| (0.0..=1.0).contains(share));
    let pid = (told.pid != 0).then_some(Pid(told.pid))?;
    Some(GpuProcess { pid, memory: told.memory, sm_utilization: share, context })
}

fn vendor_calls(told: &report::Finished) -> Option<VendorCalls> {
    let mut latency = LatencyDelta { sum_ns: told.sum_ns, errors: told.errors, ..LatencyDelta::default() };
    for slot in &told.slots {
        let n = latency.slots.get_mut(usize::try_from(*slot).ok()?)?;
        *n = n.saturating_add(1);
    }
    Some(VendorCalls {
        origin: origin(told.origin)?,
        call: clean::name(&told.call)?,
        hw_id: clean::identity(&told.hw_id).map(str::to_owned),
        latency,
    })
}
