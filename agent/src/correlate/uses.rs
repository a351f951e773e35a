//! Which process uses which device, and in which role.
//!
//! In: `uses` and `exit` signals. Out: the one device of a process, and whether it is a workload at all.
//! What can go wrong: a process may use several devices; then a call cannot be put to one of them by this alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Pid, Signal};
use crate::telemetry::{Counter, Telemetry};

/// Uses in force now.
#[derive(Debug)]
pub struct UseTable {
    devices: BTreeMap<Pid, BTreeSet<String>>,
    /// Processes known not to be workloads: monitors, and this agent.
    bystanders: BTreeSet<Pid>,
    refused: Counter,
}

impl UseTable {
    /// Most processes kept; beyond it new ones are not learned.
    const PROCESSES_MAX: usize = 16_384;

    /// No uses; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "uses")]);
        Self { devices: BTreeMap::new(), bystanders: BTreeSet::new(), refused }
    }

    /// Learns from a signal.
    pub fn push(&mut self, signal: &Signal) {
        match signal {
            Signal::Uses { uses, .. } if uses.end => {
                if let Some(devices) = self.devices.get_mut(&uses.pid) {
                    devices.remove(&uses.hw_id);
                }
            }
            Signal::Uses { uses, .. } if self.devices.len() < Self::PROCESSES_MAX => {
                self.devices.entry(uses.pid).or_default().insert(uses.hw_id.clone());
                match uses.role.as_str() {
                    "workload" => self.bystanders.remove(&uses.pid),
                    _ => self.bystanders.insert(uses.pid),
                };
            }
            Signal::Exit { pid, .. } => {
                self.devices.remove(pid);
                self.bystanders.remove(pid);
            }
            Signal::Uses { .. } => self.refused.add(1),
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
            | Signal::VendorCalls { .. }
            | Signal::DriverLog { .. }
            | Signal::Allocation { .. }
            | Signal::Source { .. }
            | Signal::Tick { .. }
            | Signal::End { .. } => {}
        }
    }

    /// The device of a process that uses exactly one.
    pub fn only_device(&self, pid: Pid) -> Option<&str> {
        let devices = self.devices.get(&pid)?;
        devices.first().filter(|_| devices.len() == 1).map(String::as_str)
    }

    /// Whether the process is known to be a monitor or this agent, which is never a victim.
    pub fn is_bystander(&self, pid: Pid) -> bool {
        self.bystanders.contains(&pid)
    }
}
