//! Processes on devices that their pods were not given.
//!
//! In: the attributed list of a device's processes, and what pods were given. Out: counts of
//! `warpgauge.mapping.failures` of the stage `allocation`: `mismatch` where the pod has other devices, `no_allocation`
//! where it has none; once for each pod and device, and again when it happens anew.
//! What can go wrong: the kubelet is asked every 15 s, so a new pod's process comes before its allocation; only what lasts
//! for longer counts. A pod of which too little is known is passed over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::allocations::{Allocations, Has};
use crate::export::whose::process_of;
use crate::model::signal::GpuProcesses;
use crate::model::{Attributed, Fact, MonoNs, Workload};
use crate::telemetry::{Counter, Telemetry};

/// Two of the kubelet's answers are further apart than this only when it is slow.
const LASTING: Duration = Duration::from_secs(35);
/// Pods and devices watched.
const MOST: usize = 1_024;

/// What does not match now.
#[derive(Debug)]
pub struct Mismatches {
    devices: BTreeMap<Arc<str>, BTreeMap<Pod, Seen>>,
    mismatch: Counter,
    no_allocation: Counter,
}

/// A pod by its uid, else by namespace and name, which may be learned later.
type Pod = (Option<String>, Option<String>, Option<String>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    since: MonoNs,
    counted: bool,
}

impl Mismatches {
    /// Nothing was compared yet.
    pub fn new(telemetry: &Telemetry) -> Self {
        let counter = |reason| {
            let attributes = [("stage", "allocation"), ("reason", reason)];
            telemetry.counter("warpgauge.mapping.failures", &attributes)
        };
        Self {
            devices: BTreeMap::new(),
            mismatch: counter("mismatch"),
            no_allocation: counter("no_allocation"),
        }
    }

    /// Compares the list of a device with what its pods were given.
    pub fn take(
        &mut self,
        fact: &Attributed<Fact>,
        list: &GpuProcesses,
        (parent, given): (Option<&str>, &Allocations),
        at: MonoNs,
    ) {
        let mut now = BTreeMap::new();
        let mut before = self.devices.remove(&list.hw_id).unwrap_or_default();
        let held: usize = self.devices.values().map(BTreeMap::len).sum();
        for process in &list.processes {
            let Some(process) = process_of(fact, process.pid).is() else { continue };
            let Workload { pod_uid, namespace, pod, .. } = &process.workload;
            let key = match pod_uid {
                Some(_) => (pod_uid.clone(), None, None),
                None => (None, namespace.clone(), pod.clone()),
            };
            if (pod_uid.is_none() && pod.is_none()) || now.contains_key(&key) || MOST <= held + now.len() {
                continue;
            }
            let names = namespace.as_deref().zip(pod.as_deref());
            let counter = match given.has(&list.hw_id, parent, pod_uid.as_deref(), names) {
                Has::Others => &self.mismatch,
                Has::Nothing => &self.no_allocation,
                Has::This | Has::Unknown => continue,
            };
            let mut seen = before.remove(&key).unwrap_or(Seen { since: at, counted: false });
            if !seen.counted && at.since(seen.since).is_some_and(|age| LASTING <= age) {
                seen.counted = true;
                counter.add(1);
            }
            now.insert(key, seen);
        }
        if !now.is_empty() {
            self.devices.insert(Arc::clone(&list.hw_id), now);
        }
    }

    /// Nothing is known of the device's processes any more.
    pub fn forget(&mut self, hw_id: &str) {
        self.devices.remove(hw_id);
    }
}
