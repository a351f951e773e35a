//! The simulated node at a time: which GPUs and instances there are, what is broken.
//!
//! In: a checked scenario, the contents of its `.now` file over time, and a time. Out: the state at that time, the same
//! for every process that reads the same files. Times are µs since 1970 outside, seconds since `start` inside.
//! What can go wrong: nothing; a GPU that does not exist has no state.

use std::sync::Arc;

use crate::event::{Incident, Xid, XidSource};
use crate::fault::{Fault, InCall, Span};
use crate::node::{Architecture, Gpu, Mig, Process, Profiling, Scenario};
use crate::overlay::{EngineState, MigEntry, Overlay};
use crate::version::Version;

/// Contents of the `.now` file that are remembered: samples are made for times that have passed.
const HISTORY_MAX: usize = 64;

/// The node.
#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    gpus: Vec<Gpu>,
    start_us: i64,
    history: Vec<(i64, Arc<Overlay>)>,
    raised: Vec<(f64, Xid)>,
    binds: Vec<(f64, i64)>,
}

impl World {
    /// The node of `scenario`, started at `start_us`.
    pub fn new(scenario: Scenario, start_us: i64) -> Self {
        let mut gpus = Vec::new();
        for gpu in &scenario.gpus {
            for _ in 0..gpu.count.unwrap_or(1) {
                let number = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
                gpus.push(filled_in(gpu, &scenario.defaults, number));
            }
        }
        Self { scenario, gpus, start_us, history: Vec::new(), raised: Vec::new(), binds: Vec::new() }
    }

    /// Takes over a new content of the `.now` file, from `now_us` on.
    pub fn inject(&mut self, overlay: Overlay, now_us: i64) {
        if let Some(start) = overlay.start {
            #[expect(clippy::cast_possible_truncation, reason = "casts of floats clip")]
            let start_us = (start * 1e6) as i64;
            self.start_us = start_us;
        }
        let now = self.seconds(now_us);
        let before = self.overlay(now_us).cloned().unwrap_or_default();
        for (place, xid) in overlay.xids.iter().enumerate() {
            if before.xids.get(place) != Some(xid) {
                self.raised.push((now, xid.clone()));
            }
        }
        if let Some(event) = overlay.bind_event.filter(|_| overlay.bind_event != before.bind_event) {
            self.binds.push((now, event));
        }
        self.history.push((now_us, Arc::new(overlay)));
        if HISTORY_MAX < self.history.len() {
            self.history.remove(0);
        }
    }

    /// The `.now` file's content in force at `t_us`.
    pub fn overlay(&self, t_us: i64) -> Option<&Overlay> {
        let at = self.history.iter().rev().find(|(since, _)| *since <= t_us);
        at.map(|(_, overlay)| overlay.as_ref())
    }

    /// The file as it was read.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// When the node started. Unit: µs since 1970.
    pub fn start_us(&self) -> i64 {
        self.start_us
    }

    /// Seconds since the start.
    pub fn seconds(&self, t_us: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a difference of a few days at most")]
        let seconds = t_us.saturating_sub(self.start_us) as f64 / 1e6;
        seconds
    }

    /// µs since 1970 of a moment in seconds since the start.
    pub fn moment(&self, seconds: f64) -> i64 {
        #[expect(clippy::cast_possible_truncation, reason = "casts of floats clip")]
        let offset = (seconds * 1e6).round() as i64;
        self.start_us.saturating_add(offset)
    }

    /// Version of the library.
    pub fn library(&self) -> Version {
        Version::parse(&self.scenario.library).unwrap_or(Version(4, 6, 0))
    }

    /// Version of the engine.
    pub fn engine_version(&self) -> Version {
        let said = self.scenario.engine_version.as_deref().and_then(Version::parse);
        said.unwrap_or_else(|| self.library())
    }

    /// Whether there is a driver.
    pub fn has_driver(&self) -> bool {
        self.scenario.driver != "none"
    }

    /// The GPUs, every key filled in.
    pub fn gpus(&self) -> &[Gpu] {
        if self.has_driver() { &self.gpus } else { &[] }
    }

    /// One GPU.
    pub fn gpu(&self, number: u32) -> Option<&Gpu> {
        self.gpus().get(number as usize)
    }

    /// State of the engine's process.
    pub fn engine(&self, t_us: i64) -> EngineState {
        let t = self.seconds(t_us);
        match self.overlay(t_us).map_or(EngineState::Up, |overlay| overlay.engine) {
            EngineState::Up if self.any(|fault| matches!(fault, Fault::EngineDown(s) if s.holds(t))) => {
                EngineState::Down
            }
            EngineState::Up if self.any(|fault| matches!(fault, Fault::EngineHung(s) if s.holds(t))) => {
                EngineState::Hung
            }
            state => state,
        }
    }

    /// When the engine that runs at `t_us` was started. Unit: µs since 1970.
    pub fn engine_since(&self, t_us: i64) -> i64 {
        let mut since = self.start_us;
        for (at, overlay) in self.history.iter().filter(|(at, _)| *at <= t_us) {
            if overlay.engine == EngineState::Down {
                since = since.max(at.saturating_add(1));
            }
        }
        // up again at the first content after the last "down"
        if since != self.start_us {
            let back = self.history.iter().find(|(at, o)| since <= *at && o.engine != EngineState::Down);
            since = back.map_or(since, |(at, _)| *at);
        }
        let t = self.seconds(t_us);
        for fault in &self.scenario.faults {
            if let Fault::EngineDown(Span { until: Some(until), .. }) = fault
                && *until <= t
            {
                since = since.max(self.moment(*until));
            }
        }
        since
    }

    /// Whether a GPU is off the bus.
    pub fn lost(&self, gpu: u32, t_us: i64) -> bool {
        let t = self.seconds(t_us);
        self.overlay(t_us).is_some_and(|overlay| overlay.lost.contains(&gpu))
            || self.any(|fault| {
                matches!(fault, Fault::Lost(of)
                    if of.gpu == gpu && Span { from: of.from, until: of.until }.holds(t))
            })
    }

    /// Whether the driver is detached by the scenario.
    pub fn detached(&self, t_us: i64) -> bool {
        let t = self.seconds(t_us);
        self.overlay(t_us).is_some_and(|overlay| overlay.detached)
            || self.any(|fault| matches!(fault, Fault::Detached(span) if span.holds(t)))
    }

    /// Whether telemetry is paused by the scenario.
    pub fn paused(&self, t_us: i64) -> bool {
        let t = self.seconds(t_us);
        self.any(|fault| matches!(fault, Fault::Paused(span) if span.holds(t)))
    }

    /// MIG instances of a GPU; `None`: MIG mode is off.
    pub fn mig(&self, gpu: u32, t_us: i64) -> Option<Vec<&Mig>> {
        if let Some(entries) = self.overlay(t_us).and_then(|overlay| overlay.mig.get(&gpu)) {
            return Some(entries.iter().map(|MigEntry(mig)| mig).collect());
        }
        self.gpu(gpu)?.mig.as_ref().map(|instances| instances.iter().collect())
    }

    /// Processes of a GPU.
    pub fn processes(&self, gpu: u32, t_us: i64) -> Vec<Process> {
        let now = self.overlay(t_us).and_then(|overlay| overlay.processes.get(&gpu));
        now.or_else(|| self.gpu(gpu)?.processes.as_ref()).cloned().unwrap_or_default()
    }

    /// All XIDs with their moments in seconds, by time: the scenario's, then those of the `.now` file.
    pub fn xids(&self) -> Vec<(f64, Xid)> {
        let said = self.scenario.xids.iter().map(|xid| (xid.t, xid.clone()));
        let mut all: Vec<(f64, Xid)> = said.chain(self.raised.iter().cloned()).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    }

    /// When the kernel log got its first XID of `code`, in seconds.
    pub fn first_logged(&self, code: u32) -> Option<f64> {
        let logged = |xid: &Xid| xid.code == code && xid.source == XidSource::Kmsg;
        self.xids().into_iter().find(|(_, xid)| logged(xid)).map(|(t, _)| t)
    }

    /// Values of field 6 with their moments in seconds.
    pub fn bind_events(&self) -> &[(f64, i64)] {
        &self.binds
    }

    /// Health incidents in force at `t_us`.
    pub fn incidents(&self, t_us: i64) -> Vec<Incident> {
        let t = self.seconds(t_us);
        let said = self.scenario.health.iter();
        let holds = |i: &&Incident| i.t <= t && i.until.is_none_or(|until| t < until);
        let now = self.overlay(t_us).map(|overlay| overlay.health.clone()).unwrap_or_default();
        said.filter(holds).cloned().chain(now).collect()
    }

    /// What is to happen in a call, from the scenario and the `.now` file.
    pub fn in_call(&self, call: &str, gpu: Option<u32>, t_us: i64) -> Vec<Fault> {
        let t = self.seconds(t_us);
        let holds = |of: &InCall| of.holds(call, gpu, t);
        let is_about = |fault: &&Fault| match fault {
            Fault::Hang(of) | Fault::Slow(of) | Fault::Leak(of) | Fault::Crash(of) | Fault::Fail(of) => {
                holds(of)
            }
            _ => false,
        };
        let mut found: Vec<Fault> = self.scenario.faults.iter().filter(is_about).cloned().collect();
        if let Some(overlay) = self.overlay(t_us) {
            let named =
                |of: &&InCall| (of.call == "*" || of.call == call) && (of.gpu.is_none() || of.gpu == gpu);
            found.extend(overlay.hang.iter().filter(named).cloned().map(Fault::Hang));
            found.extend(overlay.fail.iter().filter(named).cloned().map(Fault::Fail));
            found.extend(overlay.crash.iter().filter(named).cloned().map(Fault::Crash));
        }
        found
    }

    /// Whether a fault of the scenario matches.
    pub fn any(&self, matches: impl Fn(&Fault) -> bool) -> bool {
        self.scenario.faults.iter().any(matches)
    }
}

/// A GPU with every key: its own, the defaults', or what its number gives.
fn filled_in(gpu: &Gpu, defaults: &Gpu, number: u32) -> Gpu {
    let or = |own: &Option<String>, other: &Option<String>, made: String| {
        Some(own.clone().or_else(|| other.clone()).unwrap_or(made))
    };
    let architecture = gpu.architecture.or(defaults.architecture).unwrap_or(Architecture::Hopper);
    let by_age =
        if (architecture as u32) < Architecture::Hopper as u32 { Profiling::Missing } else { Profiling::Gpm };
    let mut fields = defaults.fields.clone();
    fields.extend(gpu.fields.iter().map(|(id, plan)| (*id, plan.clone())));
    Gpu {
        count: None,
        uuid: or(&gpu.uuid, &None, format!("GPU-00000000-0000-4000-8000-{number:012x}")),
        name: or(&gpu.name, &defaults.name, "NVIDIA H100 80GB HBM3".into()),
        pci: or(&gpu.pci, &None, format!("00000000:{:02X}:00.0", (number + 1) * 16 % 256 + number / 16)),
        minor: gpu.minor.or(Some(number)),
        serial: or(&gpu.serial, &None, format!("165{number:010}")),
        architecture: Some(architecture),
        memory_mib: gpu.memory_mib.or(defaults.memory_mib).or(Some(81_920)),
        mig: gpu.mig.clone().or_else(|| defaults.mig.clone()),
        nvlinks: Some(gpu.nvlinks.clone().or_else(|| defaults.nvlinks.clone()).unwrap_or_default()),
        numa: gpu.numa.or(defaults.numa).or(Some(0)),
        cpu_affinity: gpu.cpu_affinity.clone().or_else(|| defaults.cpu_affinity.clone()),
        profiling: Some(gpu.profiling.or(defaults.profiling).unwrap_or(by_age)),
        fields,
        processes: gpu.processes.clone().or_else(|| defaults.processes.clone()),
    }
}
