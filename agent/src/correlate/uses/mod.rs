//! Which process uses which device, by what evidence, and in which role.
//!
//! In: `uses`, NVML's lists, open nodes, roles, begins and ends of processes, the devices of this node. Out: the devices
//! of a process, and whether it may be a victim.
//! Each kind of evidence begins and ends by itself, and the best one that is in force decides ([`UseEvidence`] has the
//! ranks): what an environment names must not blur what unified memory registered. What only enrichment knows, that a
//! process's container was given a device, is added there.
//! What can go wrong: a process may use several devices; then a call cannot be put to one of them by this alone. A
//! process that has ended is remembered for a while: the driver closes its files after that. In a foreign pid namespace
//! the numbers of different sources mean different processes: nobody uses anything then.
//!
//! Reading order: `process` (one process) → `nodes` (which device a node is) → `standing` (who may be a victim).

mod nodes;
mod process;
mod standing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::allocations::devices::Devices;
use crate::model::open_nodes::OpenNodes;
use crate::model::signal::{DeviceState, GpuProcesses, Uses};
use crate::model::{
    Call, Confidence, Edge, MonoNs, Pid, Process as Sighting, Signal, StartTicks, UseEvidence,
};
use crate::telemetry::{Counter, Telemetry};

use process::{Process, Row};

/// Uses in force now.
#[derive(Debug)]
pub struct UseTable {
    processes: BTreeMap<Pid, Process>,
    /// Evidence of all processes.
    rows: usize,
    /// Who is on a device by NVML.
    listed: BTreeMap<Arc<str>, BTreeSet<Pid>>,
    devices: Devices,
    /// Devices changed since the nodes were looked up.
    stale: bool,
    /// Processes are told by numbers of another namespace.
    foreign: bool,
    refused: Counter,
}

impl UseTable {
    /// Most processes kept; beyond it new ones are not learned.
    pub const PROCESSES_MAX: usize = 16_384;
    /// Most evidence kept, of all processes.
    pub const ROWS_MAX: usize = 65_536;
    /// How long a process that has ended is remembered.
    const REMEMBERED: Duration = Duration::from_secs(60);

    /// No uses; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "uses")]);
        Self {
            processes: BTreeMap::new(),
            rows: 0,
            listed: BTreeMap::new(),
            devices: Devices::new(telemetry),
            stale: false,
            foreign: false,
            refused,
        }
    }

    /// The device of a process that uses exactly one.
    pub fn only_device(&self, pid: Pid) -> Option<&str> {
        let mut devices = self.devices(pid);
        devices.next().filter(|_| devices.next().is_none()).map(|(hw_id, _)| hw_id)
    }

    /// The devices that a process uses, by the best evidence there is, in the order of their names.
    pub fn devices(&self, pid: Pid) -> impl Iterator<Item = (&str, UseEvidence)> {
        let process = self.processes.get(&pid);
        let parent = |hw_id: &str| self.devices.parent(hw_id);
        process.map(|process| process.devices(parent)).unwrap_or_default().into_iter()
    }

    /// Since when this evidence is in force.
    pub fn since(&self, pid: Pid, hw_id: &str, evidence: UseEvidence) -> Option<MonoNs> {
        self.processes.get(&pid)?.rows.get(&(evidence, hw_id.into())).copied()
    }

    /// How sure it is that the caller of this call is somebody's workload; `None`: it is a monitor, this agent or the
    /// server of MPS, which are never victims.
    pub fn as_victim(&self, call: &Call) -> Option<Confidence> {
        let standing = self.processes.get(&call.pid).map(|process| process.standing).unwrap_or_default();
        standing.as_victim(call)
    }

    /// Learns from a signal.
    pub fn push(&mut self, signal: &Signal) {
        let about_devices = matches!(signal, Signal::Gpu { .. } | Signal::GpuState { .. });
        if self.stale && !about_devices {
            // Devices come many at once: the nodes are looked up when all of them are there.
            self.stale = false;
            self.look_up_all();
        }
        match signal {
            Signal::Gpu { gpu, .. } => self.stale |= self.devices.learn(gpu),
            Signal::GpuState { hw_id, state: DeviceState::Gone, .. } => {
                self.stale |= self.devices.forget(hw_id);
            }
            Signal::Source { source, .. } if source.name == "pid_namespace" => {
                self.foreign = !source.up;
                if self.foreign {
                    self.forget_uses();
                }
            }
            Signal::Uses { at, uses } if !self.foreign => self.uses(*at, uses),
            Signal::Processes { at, processes } if !self.foreign => self.list(*at, processes),
            Signal::OpenNodes { at, open } if !self.foreign => self.open_nodes(*at, open),
            Signal::Role { pid, role, .. } => {
                if let Some(process) = self.process(*pid) {
                    process.standing.told(*role, !process.rows.is_empty());
                }
            }
            Signal::Process { pid, process: Some(told), .. } => self.met(*pid, told),
            Signal::Call { call, .. } if call.edge == Edge::Enter => self.calls(call),
            Signal::Exec { pid, .. } => self.exec(*pid),
            Signal::Exit { at, pid } => {
                if let Some(process) = self.processes.get_mut(pid) {
                    process.ended.get_or_insert(*at);
                }
            }
            Signal::Tick { at } => self.tick(*at),
            Signal::Driver { .. }
            | Signal::GpuState { .. }
            | Signal::Samples { .. }
            | Signal::Health { .. }
            | Signal::Uses { .. }
            | Signal::Processes { .. }
            | Signal::OpenNodes { .. }
            | Signal::Process { process: None, .. }
            | Signal::Call { .. }
            | Signal::Thread { .. }
            | Signal::CallStats { .. }
            | Signal::RmCalls { .. }
            | Signal::LockWaits { .. }
            | Signal::UvmWork { .. }
            | Signal::Scheduling { .. }
            | Signal::LockHolders { .. }
            | Signal::XidReport { .. }
            | Signal::VendorCalls { .. }
            | Signal::DriverLog { .. }
            | Signal::Allocation { .. }
            | Signal::PodDevices { .. }
            | Signal::JobDevices { .. }
            | Signal::Source { .. }
            | Signal::End { .. } => {}
        }
    }

    fn met(&mut self, pid: Pid, told: &Sighting) {
        self.began(pid, told.start);
        let is_mps = standing::is_mps(told.comm.as_deref());
        let known = if is_mps { self.process(pid) } else { self.processes.get_mut(&pid) };
        if let Some(known) = known {
            known.start = told.start.or(known.start);
            known.standing.named(is_mps);
        }
    }

    fn calls(&mut self, call: &Call) {
        let start = call.caller.as_ref().map(|caller| caller.start);
        self.began(call.pid, start);
        if let Some(process) = self.processes.get_mut(&call.pid) {
            process.start = process.start.or(start);
        }
    }

    fn exec(&mut self, pid: Pid) {
        self.drop_rows(pid, |_| true);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.open = None;
            process.standing.exec();
        }
    }

    fn uses(&mut self, at: MonoNs, uses: &Uses) {
        let row = (uses.evidence, Arc::from(uses.hw_id.as_str()));
        if uses.end {
            self.drop_rows(uses.pid, |known| *known == row);
        } else if let Some(process) = self.process(uses.pid) {
            process.standing.told_with_use(&uses.role);
            self.put_row(at, uses.pid, row);
        }
    }

    /// NVML's list is the whole of a device's processes: it ends what it does not name any more.
    fn list(&mut self, at: MonoNs, list: &GpuProcesses) {
        let row = (UseEvidence::Nvml, Arc::clone(&list.hw_id));
        let named: BTreeSet<Pid> = list.processes.iter().map(|process| process.pid).collect();
        let before = self.listed.get(&list.hw_id);
        let over: Vec<Pid> =
            before.map(|before| before.difference(&named).copied().collect()).unwrap_or_default();
        for pid in over {
            self.drop_rows(pid, |known| *known == row);
        }
        for pid in named {
            // One that has ended is listed until the driver has closed its files: that is not another process.
            let has_it = self.processes.get(&pid).is_some_and(|process| process.rows.contains_key(&row));
            if !has_it && let Some(process) = self.process(pid) {
                process.standing.listed();
                self.put_row(at, pid, row.clone());
            }
        }
    }

    fn open_nodes(&mut self, at: MonoNs, open: &OpenNodes) {
        let pid = open.pid;
        // of a process that had the number before, or looked at before it ended
        let is_late = |known: &Process| match known.start {
            Some(start) if known.ended.is_some() => open.start <= start,
            Some(start) => open.start < start,
            None => false,
        };
        if self.processes.get(&pid).is_some_and(is_late) {
            return;
        }
        self.began(pid, Some(open.start));
        let is_nothing = open.nodes.is_empty() && open.visible.is_none();
        if is_nothing && !self.processes.contains_key(&pid) {
            return;
        }
        let Some(process) = self.process(pid) else { return };
        process.start = Some(open.start);
        if process.open.as_ref().is_some_and(|(_, known)| **known == *open) {
            return; // said again
        }
        process.open = (!is_nothing).then(|| (at, Box::new(open.clone())));
        self.look_up(pid);
    }

    /// Puts the process's nodes to the devices that are known now.
    fn look_up(&mut self, pid: Pid) {
        let Some(process) = self.processes.get(&pid) else { return };
        let (at, rows) = match &process.open {
            Some((at, open)) => (*at, nodes::rows(open, &self.devices)),
            None => (MonoNs(0), nodes::Rows::new()),
        };
        let by_node =
            |row: &Row| matches!(row.0, UseEvidence::CapFd | UseEvidence::OpenFd | UseEvidence::Env);
        self.drop_rows(pid, |row| by_node(row) && !rows.contains(row));
        for row in rows {
            self.put_row(at, pid, row);
        }
    }

    fn look_up_all(&mut self) {
        let with_nodes = self.processes.iter().filter(|(_, process)| process.open.is_some());
        let pids: Vec<Pid> = with_nodes.map(|(pid, _)| *pid).collect();
        pids.into_iter().for_each(|pid| self.look_up(pid));
    }

    fn tick(&mut self, at: MonoNs) {
        let age = |process: &Process| process.ended.and_then(|ended| at.since(ended)).unwrap_or_default();
        let over = self.processes.iter().filter(|(_, process)| Self::REMEMBERED <= age(process));
        let over: Vec<Pid> = over.map(|(pid, _)| *pid).collect();
        for pid in over {
            self.forget(pid);
        }
        self.processes.retain(|_, process| !process.is_blank());
    }

    /// The process; what was known of an earlier one with its number is forgotten.
    fn process(&mut self, pid: Pid) -> Option<&mut Process> {
        if self.processes.get(&pid).is_some_and(|process| process.ended.is_some()) {
            self.forget(pid);
        }
        if self.processes.len() >= Self::PROCESSES_MAX && !self.processes.contains_key(&pid) {
            self.refused.add(1);
            return None;
        }
        Some(self.processes.entry(pid).or_default())
    }

    /// The process of this number began then: what is known of an earlier one is forgotten.
    fn began(&mut self, pid: Pid, start: Option<StartTicks>) {
        let is_another =
            |process: &Process| process.start.zip(start).is_some_and(|(known, told)| known < told);
        if self.processes.get(&pid).is_some_and(is_another) {
            self.forget(pid);
        }
    }

    fn put_row(&mut self, at: MonoNs, pid: Pid, row: Row) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.rows.contains_key(&row) {
            return;
        }
        if process.rows.len() >= Process::ROWS_MAX || self.rows >= Self::ROWS_MAX {
            return self.refused.add(1);
        }
        if row.0 == UseEvidence::Nvml {
            self.listed.entry(Arc::clone(&row.1)).or_default().insert(pid);
        }
        process.rows.insert(row, at);
        self.rows += 1;
    }

    fn drop_rows(&mut self, pid: Pid, mut is_over: impl FnMut(&Row) -> bool) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        for (row, _) in process.rows.extract_if(.., |row, _| is_over(row)) {
            self.rows -= 1;
            if row.0 == UseEvidence::Nvml
                && let Some(pids) = self.listed.get_mut(&row.1)
            {
                pids.remove(&pid);
                if pids.is_empty() {
                    self.listed.remove(&row.1);
                }
            }
        }
    }

    fn forget(&mut self, pid: Pid) {
        self.drop_rows(pid, |_| true);
        self.processes.remove(&pid);
    }

    fn forget_uses(&mut self) {
        (self.rows, self.listed) = (0, BTreeMap::new());
        for process in self.processes.values_mut() {
            process.rows.clear();
            process.open = None;
        }
    }
}
