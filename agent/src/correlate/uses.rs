//! Which process uses which device, and in which role.
//!
//! In: `uses`, roles and `exit` signals. Out: the one device of a process, and whether it is a workload at all.
//! What can go wrong: a process may use several devices; then a call cannot be put to one of them by this alone. A
//! process that has ended is remembered for a while: the driver closes its files after that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::{MonoNs, Pid, ProcessRole, Signal};
use crate::telemetry::{Counter, Telemetry};

/// Uses in force now.
#[derive(Debug)]
pub struct UseTable {
    processes: BTreeMap<Pid, Known>,
    refused: Counter,
}

/// What is known of a process.
#[derive(Debug, Default)]
struct Known {
    devices: BTreeSet<String>,
    /// It is known not to be a workload: a monitor, or this agent.
    bystander: bool,
    ended: Option<MonoNs>,
}

impl UseTable {
    /// Most processes kept; beyond it new ones are not learned.
    const PROCESSES_MAX: usize = 16_384;
    /// Most devices kept of one process: more than any node has.
    const DEVICES_MAX: usize = 256;
    /// How long a process that has ended is remembered.
    const REMEMBERED: Duration = Duration::from_secs(60);

    /// No uses; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "uses")]);
        Self { processes: BTreeMap::new(), refused }
    }

    /// Learns from a signal.
    pub fn push(&mut self, signal: &Signal) {
        match signal {
            Signal::Uses { uses, .. } if uses.end => {
                if let Some(known) = self.processes.get_mut(&uses.pid) {
                    known.devices.remove(&uses.hw_id);
                }
            }
            Signal::Uses { uses, .. } => {
                if let Some(known) = self.known(uses.pid) {
                    if known.devices.len() < Self::DEVICES_MAX {
                        known.devices.insert(uses.hw_id.clone());
                    }
                    known.bystander = uses.role != "workload";
                }
            }
            Signal::Role { pid, role, .. } => {
                if let Some(known) = self.known(*pid) {
                    known.bystander = *role != ProcessRole::Workload;
                }
            }
            Signal::Exit { at, pid } => {
                if let Some(known) = self.processes.get_mut(pid) {
                    known.ended = Some(*at);
                }
            }
            Signal::Tick { at } => {
                let age = |known: &Known| known.ended.and_then(|ended| at.since(ended)).unwrap_or_default();
                self.processes.retain(|_, known| age(known) < Self::REMEMBERED);
            }
            Signal::Gpu { .. }
            | Signal::Driver { .. }
            | Signal::GpuState { .. }
            | Signal::Samples { .. }
            | Signal::Processes { .. }
            | Signal::Health { .. }
            | Signal::Process { .. }
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

    /// The process; what was known of an earlier one with its number is forgotten.
    fn known(&mut self, pid: Pid) -> Option<&mut Known> {
        if self.processes.len() >= Self::PROCESSES_MAX && !self.processes.contains_key(&pid) {
            self.refused.add(1);
            return None;
        }
        let known = self.processes.entry(pid).or_default();
        if known.ended.is_some() {
            *known = Known::default();
        }
        Some(known)
    }

    /// The device of a process that uses exactly one.
    pub fn only_device(&self, pid: Pid) -> Option<&str> {
        let devices = &self.processes.get(&pid)?.devices;
        devices.first().filter(|_| devices.len() == 1).map(String::as_str)
    }

    /// Whether the process is known to be a monitor or this agent, which is never a victim.
    pub fn is_bystander(&self, pid: Pid) -> bool {
        self.processes.get(&pid).is_some_and(|known| known.bystander)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::signal::Uses;

    const PID: Pid = Pid(7);

    fn uses(hw_id: &str, role: &str, end: bool) -> Signal {
        let (hw_id, evidence, role) = (hw_id.into(), "nvml".into(), role.into());
        Signal::Uses { at: MonoNs(0), uses: Uses { pid: PID, hw_id, evidence, role, end } }
    }

    fn role(role: ProcessRole) -> Signal {
        Signal::Role { at: MonoNs(0), pid: PID, role }
    }

    #[track_caller]
    fn check(signals: &[Signal], want: (Option<&str>, bool)) {
        let mut table = UseTable::new(&Telemetry::default());
        signals.iter().for_each(|signal| table.push(signal));
        assert_eq!((table.only_device(PID), table.is_bystander(PID)), want, "{signals:?}");
    }

    #[test]
    fn the_latest_word_on_a_process_counts() {
        check(&[uses("GPU-1", "workload", false)], (Some("GPU-1"), false));
        check(&[uses("GPU-1", "monitor", false)], (Some("GPU-1"), true));
        check(&[uses("GPU-1", "workload", false), uses("GPU-2", "workload", false)], (None, false));
        check(&[uses("GPU-1", "workload", false), uses("GPU-1", "workload", true)], (None, false));
        check(&[role(ProcessRole::Monitor)], (None, true));
        check(&[role(ProcessRole::Agent)], (None, true));
        check(&[role(ProcessRole::Monitor), role(ProcessRole::Workload)], (None, false));
    }

    #[test]
    fn a_process_that_has_ended_is_remembered_while_its_files_are_closed() {
        let (exit, tick) = (Signal::Exit { at: MonoNs(0), pid: PID }, |s: u64| Signal::Tick {
            at: MonoNs(s * 1_000_000_000),
        });
        let used = || uses("GPU-1", "workload", false);
        check(&[used(), exit.clone(), tick(59)], (Some("GPU-1"), false));
        check(&[used(), exit.clone(), tick(60)], (None, false));
        check(&[used(), exit, uses("GPU-2", "monitor", false)], (Some("GPU-2"), true)); // another one
    }
}
