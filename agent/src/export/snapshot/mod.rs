//! The metric state of the node: facts go in, one point per series comes out at each interval.
//!
//! In: attributed facts. Out: [`Batch`]es, which the OTLP sender takes and a Prometheus page can take as well.
//! A pure core: no clock and no channel. Nothing fails here; what is beyond the limits is refused and counted.

mod accounts;
mod driver;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::catalog;
use super::device_catalog::VENDOR_CALL;
use super::devices::{self, Devices};
use super::own_points::{self, Before, Usage};
use super::point::Batch;
use super::series::{Limits, Table};
use super::series_key::Key;
use super::stalls::Stalls;
use super::whose::{Whose, process_of};
use super::workloads::Workloads;
use crate::model::operation::{Majors, Operation};
use crate::model::signal::DeviceState;
use crate::model::{
    Attributed, CallStats, CgroupId, Fact, Finding, FindingKind, Gpu, MonoNs, PciAddress, Process, Signal,
    Stall, VendorCalls, WallAnchor, WallNs, Xid,
};
use crate::telemetry::{Attributes, Counter, Telemetry};

/// Classes of the XID catalogue.
pub const XID_CLASSES: &[&str] = &[
    "application",
    "bus",
    "driver",
    "fabric",
    "firmware",
    "hardware",
    "info",
    "memory",
    "thermal",
    "unknown",
];

/// Boards whose address is known; the largest nodes have 16.
const BOARDS_MAX: usize = 256;
/// Devices that may go between two collections: 56 MIG instances, boards, switches and links fit.
const GONE_MAX: usize = 256;

/// A wall clock set back by less than this catches up soon.
const SET_BACK: Duration = Duration::from_secs(300);

/// The state of all series.
#[derive(Debug)]
pub struct Snapshot {
    start: WallNs,
    collected: WallNs,
    /// Time of the latest fact: by it workloads grow old, so that a replay ages them as a live node does.
    latest: MonoNs,
    table: Table,
    devices: Devices,
    workloads: Workloads,
    stalls: Stalls,
    majors: Majors,
    /// `hw.id` of the boards, for lines that name only an address.
    boards: HashMap<PciAddress, String>,
    boards_refused: Counter,
    /// Devices that went since the latest collection: their series leave once more, with what happened last.
    gone: BTreeSet<String>,
    telemetry: Telemetry,
    before: Before,
    generation: u64,
}

impl Snapshot {
    /// Counts from `start` on.
    pub fn new(start: WallNs, majors: Majors, limits: Limits, telemetry: Telemetry) -> Self {
        Self {
            start,
            collected: start,
            latest: MonoNs(0),
            table: Table::new(start, limits, telemetry.clone()),
            devices: Devices::new(start, devices::LIMITS, telemetry.clone()),
            workloads: Workloads::default(),
            stalls: Stalls::default(),
            majors,
            boards: HashMap::new(),
            boards_refused: telemetry.counter("warpgauge.correlate.refused", &[("reason", "boards")]),
            gone: BTreeSet::new(),
            telemetry,
            before: Before::default(),
            generation: 0,
        }
    }

    /// Takes over which driver has which major; it changes when a module is loaded.
    pub fn set_majors(&mut self, majors: Majors) {
        self.majors = majors;
    }

    /// Books one fact.
    pub fn push(&mut self, fact: &Attributed<Fact>) {
        self.latest = self.latest.max(match &fact.item {
            Fact::Reading(signal) => signal.at(),
            Fact::Finding(finding) => finding.at,
        });
        match &fact.item {
            Fact::Reading(Signal::CallStats { at, stats }) => self.calls(fact, *at, stats),
            Fact::Reading(Signal::RmCalls { at, calls }) => self.rm_calls(fact, *at, calls),
            Fact::Reading(Signal::LockWaits { at, waits }) => self.lock_waits(fact, *at, waits),
            Fact::Reading(Signal::UvmWork { at, work }) => self.uvm_work(*at, work),
            Fact::Reading(Signal::Scheduling { at, scheduling }) => self.scheduling(fact, *at, scheduling),
            Fact::Reading(Signal::Gpu { at, gpu }) => {
                self.gpu(gpu, *at);
                self.devices.push(fact);
            }
            Fact::Reading(Signal::VendorCalls { at, calls }) => self.vendor_calls(calls, *at),
            Fact::Reading(Signal::Exit { pid, .. }) => self.workloads.exited(*pid),
            Fact::Reading(Signal::GpuState { hw_id, state, .. }) => {
                if *state == DeviceState::Gone {
                    self.forget(hw_id);
                }
                self.devices.push(fact);
            }
            Fact::Reading(Signal::Samples { .. }) => {
                self.devices.push(fact);
                self.share_energy();
            }
            Fact::Reading(Signal::Processes { at, processes }) => {
                self.devices.push(fact);
                let alive = self.devices.workloads_on(&processes.hw_id);
                alive.for_each(|whose| self.workloads.touch(whose, *at));
            }
            Fact::Reading(
                Signal::Driver { .. }
                | Signal::Health { .. }
                | Signal::Allocation { .. }
                | Signal::Source { .. },
            ) => self.devices.push(fact),
            Fact::Reading(
                Signal::Uses { .. }
                | Signal::Exec { .. }
                | Signal::OpenNodes { .. }
                | Signal::Process { .. }
                | Signal::Call { .. }
                | Signal::Thread { .. }
                | Signal::LockHolders { .. }
                | Signal::Role { .. }
                | Signal::XidReport { .. }
                | Signal::DriverLog { .. }
                | Signal::PodDevices { .. }
                | Signal::JobDevices { .. }
                | Signal::Tick { .. }
                | Signal::End { .. },
            ) => {}
            Fact::Finding(finding) => match &finding.kind {
                FindingKind::Stall(stall) => self.stall(fact, finding, stall),
                FindingKind::Xid(xid) => self.xid(xid, finding.at),
                FindingKind::Status(_) => {} // `hw.status` and `warpgauge.source.up` say it
            },
        }
    }

    /// All series as of now, with the times of their samples. New rare counters get their zero one `interval` earlier.
    ///
    /// A wall clock that was set back does not take points back with it: they go on from the latest one until the
    /// clock has caught up. If that would take more than 5 minutes, this batch closes all series on the old time, and
    /// they begin anew, at 0, on the new one. Should just this batch be lost, so is what only it had.
    pub fn collect(&mut self, now: WallAnchor, interval: Duration, usage: Option<Usage>) -> Batch {
        self.end_workloads();
        self.generation += 1;
        let ahead = Duration::from_nanos(self.collected.0.saturating_sub(now.wall.0));
        let at = WallNs(now.wall.0.max(self.collected.0.saturating_add(1)));
        self.collected = at;
        let (zeros, mut points) = self.table.collect(now, at, interval, self.generation);
        let gone = std::mem::take(&mut self.gone);
        self.table.end_devices(&gone);
        points.extend(self.devices.collect(now, at));
        let own = own_points::points(&self.telemetry, usage, &self.before, self.start, at);
        if ahead > SET_BACK {
            self.before.add(&own);
            self.table.restart(now.wall);
            self.devices.restart(now.wall);
            (self.start, self.collected) = (now.wall, now.wall);
        }
        points.extend(own);
        Batch { generation: self.generation, zeros, points }
    }

    /// The zeros of all batches up to `generation` were taken (or refused for good) by their receiver.
    pub fn settle_zeros(&mut self, generation: u64) {
        self.table.settle_zeros(generation);
    }

    /// Forgets workloads that are over; for agents that export no metrics, in the place of [`Self::collect`].
    pub fn expire(&mut self) {
        self.end_workloads();
        self.table.forget_ends();
    }

    fn end_workloads(&mut self) {
        let expired = self.workloads.expire(self.latest, self.table.is_crowded());
        let workloads = &self.workloads;
        self.table.end_levels(|whose| workloads.is_over(whose));
        if expired {
            self.table.retain(|whose| workloads.holds(whose));
        }
    }

    fn calls(&mut self, fact: &Attributed<Fact>, at: MonoNs, stats: &CallStats) {
        let process = process_of(fact, stats.pid).is();
        let whose = self.whose(process, Some(stats.cgroup));
        self.workloads.heard(&whose, stats.pid, stats.last, at);
        if stats.latency.count() == 0 && stats.latency.errors == 0 {
            return;
        }
        let function = || stats.function.map(Operation::Named);
        let operation = self.majors.operation(stats.kind, stats.op, stats.device).or_else(function);
        let attributes = || {
            let mut attributes = Attributes::new();
            attributes.extend(stats.device.map(|device| ("gpu.driver.device", device.to_string())));
            attributes.push(("gpu.driver.call", stats.kind.name().to_owned()));
            attributes.extend(operation.map(|operation| ("gpu.driver.operation", operation.to_string())));
            attributes.extend(whose.attributes());
            attributes
        };
        let key = Key::Call(Arc::clone(&whose), stats.device, stats.kind, operation);
        self.table.record(&catalog::CALL_DURATION, key.clone(), at, &stats.latency, attributes);
        // The series begins with the first call, not with the first error: `increase()` needs a point before it.
        self.table.add(&catalog::CALL_ERRORS, key, at, stats.latency.errors, attributes);
        self.driver_time(&whose, at, stats);
    }

    /// The workload of a process; where its name was not known before, its series get it.
    fn whose(&mut self, process: Option<&Process>, cgroup: Option<CgroupId>) -> Arc<Whose> {
        let whose = self.workloads.of(process, cgroup);
        self.rename();
        whose
    }

    fn rename(&mut self) {
        for renamed in self.workloads.renamed() {
            self.table.rename(&renamed);
        }
    }

    fn vendor_calls(&mut self, calls: &VendorCalls, at: MonoNs) {
        let VendorCalls { origin, call, hw_id, latency } = calls;
        let key = Key::VendorCall(*origin, call.as_str().into(), hw_id.as_deref().map(Into::into));
        self.table.record(&VENDOR_CALL, key, at, latency, || {
            let mut attributes =
                vec![("gpu.vendor.library", origin.name().to_owned()), ("gpu.vendor.call", call.clone())];
            attributes.extend(hw_id.clone().map(|hw_id| ("hw.id", hw_id)));
            attributes
        });
    }

    fn gpu(&mut self, gpu: &Gpu, at: MonoNs) {
        self.gone.remove(&gpu.hw_id);
        if let (Some(pci), None) = (gpu.pci, &gpu.parent) {
            if self.boards.len() < BOARDS_MAX || self.boards.contains_key(&pci) {
                self.boards.insert(pci, gpu.hw_id.clone());
            } else {
                self.boards_refused.add(1);
            }
        }
        if gpu.parent.is_none() {
            for class in XID_CLASSES {
                self.count_xid((Some(&gpu.hw_id), gpu.pci), (class, None), false, at, 0);
            }
        }
    }

    /// A device went.
    fn forget(&mut self, hw_id: &str) {
        self.boards.retain(|_, name| name != hw_id);
        self.gone.insert(hw_id.to_owned());
        // Nobody may collect: then there is nobody to tell either.
        if self.gone.len() > GONE_MAX {
            let gone = std::mem::take(&mut self.gone);
            self.table.end_devices(&gone);
        }
    }

    fn xid(&mut self, xid: &Xid, at: MonoNs) {
        let board = xid.pci.and_then(|pci| self.boards.get(&pci).cloned());
        let device = (xid.hw_id.as_deref().or(board.as_deref()), xid.pci);
        let backlog = xid.line.origin.backlog;
        for code in [None, Some(xid.code)] {
            self.count_xid(device, (&xid.class, code), backlog, at, 1);
        }
    }

    fn count_xid(
        &mut self,
        device: (Option<&str>, Option<PciAddress>),
        (class, code): (&str, Option<u32>),
        backlog: bool,
        at: MonoNs,
        n: u64,
    ) {
        // Where the id is known the address is not part of the identity, or a series would split when it is learned.
        let device = match device {
            (Some(hw_id), _) => Some(("hw.id", hw_id.to_owned())),
            (None, Some(pci)) => Some(("gpu.pci.address", pci.to_string())),
            (None, None) => None,
        };
        let metric = if code.is_some() { &catalog::XID_BY_CODE } else { &catalog::XID_ERRORS };
        let named = device.as_ref().map_or("", |(_, name)| name);
        let key = Key::Xid { device: named.into(), class: class.into(), code, backlog };
        self.table.add(metric, key, at, n, || {
            let mut attributes: Attributes = device.clone().into_iter().collect();
            attributes.push(("gpu.xid.class", class.to_owned()));
            attributes.extend(code.map(|code| ("gpu.xid.code", code.to_string())));
            attributes.extend(backlog.then(|| ("gpu.xid.backlog", "true".to_owned())));
            attributes
        });
    }

    fn stall(&mut self, fact: &Attributed<Fact>, finding: &Finding, stall: &Stall) {
        let victim = stall.victims.first();
        let process = victim.and_then(|victim| process_of(fact, victim.pid).is());
        let cgroup = victim.and_then(|victim| victim.caller.as_ref()).map(|caller| caller.cgroup);
        let whose = self.whose(process, cgroup);
        let entry = self.stalls.book(&finding.id, stall, whose);
        let whose = &self.workloads.current(&entry.whose);
        self.workloads.stalled(whose, entry.active.iter().map(|(_, by)| by).sum(), finding.at);
        let at = finding.at;
        let key = |cause| Key::Stall(Arc::clone(whose), cause);
        let attributes = |cause: crate::model::Cause| stall_attributes(whose, cause.name());
        if let Some(cause) = entry.began {
            self.table.add(&catalog::STALL_COUNT, key(cause), at, 1, || attributes(cause));
            self.table.add_time(&catalog::STALL_TIME, key(cause), at, Duration::ZERO, || attributes(cause));
        }
        for &(cause, by) in &entry.active {
            self.table.shift(&catalog::STALL_ACTIVE, key(cause), at, by, || attributes(cause));
        }
        if let Some((cause, time)) = entry.time {
            self.table.add_time(&catalog::STALL_TIME, key(cause), at, time, || attributes(cause));
        }
    }
}

fn stall_attributes(whose: &Whose, cause: &str) -> Attributes {
    let mut attributes = vec![("gpu.stall.cause", cause.to_owned())];
    attributes.extend(whose.attributes());
    attributes
}

#[cfg(test)]
mod tests;
