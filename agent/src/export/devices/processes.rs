//! What workloads have of each device: memory and share of the multiprocessors.
//!
//! In: the list of a device's processes, attributed. Out: one series per device and workload, of each metric; processes
//! of one workload are added up, since a process id per series would never end.
//! What can go wrong: more workloads than the budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::budget::Budget;
use super::series::Moment;
use super::standing::{Placed, Standing};
use crate::export::device_catalog::{PROCESS_MEMORY, PROCESS_SM};
use crate::export::point::Value;
use crate::export::whose::{Whose, process_of};
use crate::export::workload_catalog;
use crate::model::signal::GpuProcesses;
use crate::model::{Attributed, Fact, WallNs};
use crate::telemetry::Attributes;

/// The processes of all devices.
#[derive(Debug, Default)]
pub struct Processes {
    devices: BTreeMap<Arc<str>, Vec<Use>>,
}

#[derive(Debug)]
struct Use {
    whose: Whose,
    attributes: Arc<Attributes>,
    memory: Option<u64>,
    sm: Option<f64>,
}

impl Processes {
    /// Takes the list of a device: who is not in it does not use the device any more.
    pub fn take(&mut self, fact: &Attributed<Fact>, list: &GpuProcesses, budget: &mut Budget) {
        let mut by_workload: BTreeMap<Whose, (Option<u64>, Option<f64>)> = BTreeMap::new();
        for process in &list.processes {
            let whose = process_of(fact, process.pid).is().map(Whose::of).unwrap_or_default();
            let (memory, sm) = by_workload.entry(whose).or_default();
            *memory = sum(*memory, process.memory, u64::saturating_add);
            *sm = sum(*sm, process.sm_utilization, |a, b| (a + b).min(1.0));
        }
        self.forget(&list.hw_id, budget);
        let mut uses = Vec::new();
        for (whose, (memory, sm)) in by_workload {
            if !budget.take(PROCESS_MEMORY.name) {
                continue;
            }
            let mut attributes = vec![("hw.id", list.hw_id.to_string())];
            attributes.extend(whose.attributes());
            uses.push(Use { whose, attributes: Arc::new(attributes), memory, sm });
        }
        if !uses.is_empty() {
            self.devices.insert(Arc::clone(&list.hw_id), uses);
        }
    }

    /// The workloads on a device, and how much of its multiprocessors each used when that is known.
    pub fn uses(&self, hw_id: &str) -> impl Iterator<Item = (&Whose, Option<f64>)> + Clone {
        self.devices.get(hw_id).into_iter().flatten().map(|used| (&used.whose, used.sm))
    }

    /// The devices with workloads, and whether it is known of any of them how much it used.
    pub fn devices(&self) -> impl Iterator<Item = (&Arc<str>, bool)> {
        self.devices.iter().map(|(hw_id, uses)| (hw_id, uses.iter().any(|used| used.sm.is_some())))
    }

    /// Nothing is known of the device's processes any more.
    pub fn forget(&mut self, hw_id: &str, budget: &mut Budget) {
        for _ in self.devices.remove(hw_id).into_iter().flatten() {
            budget.give_back(PROCESS_MEMORY.name);
        }
    }

    /// Nor of those of any device.
    pub fn forget_all(&mut self, budget: &mut Budget) {
        for _ in std::mem::take(&mut self.devices).into_values().flatten() {
            budget.give_back(PROCESS_MEMORY.name);
        }
    }

    /// What stands now.
    pub fn collect(&self, moment: Moment, start: WallNs, standing: &mut Standing, out: &mut Placed) {
        let times = (start, moment.at);
        for used in self.devices.values().flatten() {
            for metric in [&PROCESS_MEMORY, &workload_catalog::MEMORY] {
                if let Some(memory) = used.memory {
                    standing.put(metric, &used.attributes, Value::Count(memory), times, out);
                }
            }
            for metric in [&PROCESS_SM, &workload_catalog::SM] {
                if let Some(sm) = used.sm {
                    standing.put(metric, &used.attributes, Value::Double(sm), times, out);
                }
            }
        }
    }
}

fn sum<T>(total: Option<T>, more: Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    match (total, more) {
        (Some(a), Some(b)) => Some(add(a, b)),
        (a, b) => a.or(b),
    }
}
