//! Who was given which device: the one series by which device series are joined with pods and jobs.
//!
//! In: allocations that begin and end. Out: `gpu.allocation.info`, one series per device and owner, for as long as the
//! allocation stands. What can go wrong: more allocations than the budget; they are refused and counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::budget::Budget;
use super::series::Moment;
use super::standing::{Placed, Standing};
use crate::export::device_catalog::ALLOCATION;
use crate::export::point::Value;
use crate::model::WallNs;
use crate::model::signal::{Allocation, AllocationSource};
use crate::telemetry::Attributes;

/// Whose an allocation is, without what may be learned later.
type Key = (Option<String>, Option<String>, Option<String>, Option<String>, AllocationSource);

/// All allocations in force, by device.
#[derive(Debug, Default)]
pub struct Allocations {
    devices: BTreeMap<String, BTreeMap<Key, Given>>,
}

#[derive(Debug)]
struct Given {
    pod_uid: Option<String>,
    attributes: Arc<Attributes>,
    shares: u64,
}

impl Given {
    /// Whether it is of this pod; `None` where too little is known.
    fn is_of(
        &self,
        (namespace, pod, ..): &Key,
        (uid, names): (Option<&str>, Option<(&str, &str)>),
    ) -> Option<bool> {
        match (self.pod_uid.as_deref(), uid) {
            (Some(mine), Some(uid)) => Some(mine == uid),
            _ => Some(namespace.as_deref().zip(pod.as_deref())? == names?),
        }
    }
}

/// What is known of a pod and a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// The device was given to the pod.
    This,
    /// The pod was given other devices.
    Others,
    /// The pod was given none.
    Nothing,
    /// Nobody tells of pods, or not enough of this one to know.
    Unknown,
}

impl Allocations {
    /// An allocation begins, is known better, or ends.
    pub fn take(&mut self, allocation: &Allocation, budget: &mut Budget) {
        let Allocation { hw_id, pod_uid, pod, namespace, container, job, how, shares, end } = allocation;
        let key = (namespace.clone(), pod.clone(), container.clone(), job.clone(), *how);
        if *end {
            let Some(owners) = self.devices.get_mut(hw_id) else { return };
            if owners.remove(&key).is_some() {
                budget.give_back(ALLOCATION.name);
            }
            if owners.is_empty() {
                self.devices.remove(hw_id);
            }
            return;
        }
        let mut attributes = vec![("hw.id", hw_id.clone())];
        for (name, value) in [
            ("k8s.namespace.name", namespace),
            ("k8s.pod.name", pod),
            ("k8s.pod.uid", pod_uid),
            ("k8s.container.name", container),
            ("slurm.job.id", job),
        ] {
            attributes.extend(value.clone().map(|value| (name, value)));
        }
        attributes.push(("gpu.allocation.source", how.name().to_owned()));
        let shares = shares.len().max(1) as u64;
        let given = Given { pod_uid: pod_uid.clone(), attributes: Arc::new(attributes), shares };
        let is_known = self.devices.get(hw_id).is_some_and(|owners| owners.contains_key(&key));
        if is_known || budget.take(ALLOCATION.name) {
            self.devices.entry(hw_id.clone()).or_default().insert(key, given);
        }
    }

    /// What a pod has of a device, or of the GPU that a MIG device is part of.
    pub fn has(
        &self,
        hw_id: &str,
        parent: Option<&str>,
        uid: Option<&str>,
        names: Option<(&str, &str)>,
    ) -> Has {
        let whose = (uid, names);
        // Nearly all processes are where they should be: only the others have the whole table looked through.
        let of_device = [Some(hw_id), parent].into_iter().flatten().filter_map(|id| self.devices.get(id));
        if of_device.flatten().any(|(key, given)| given.is_of(key, whose) == Some(true)) {
            return Has::This;
        }
        let mut has = Has::Unknown;
        for (key, given) in self.devices.values().flatten().filter(|((.., job, _), _)| job.is_none()) {
            match given.is_of(key, whose) {
                Some(true) => has = Has::Others,
                Some(false) if has == Has::Unknown => has = Has::Nothing,
                Some(false) => {}
                None => return Has::Unknown,
            }
        }
        has
    }

    /// What stands now.
    pub fn collect(&self, moment: Moment, start: WallNs, standing: &mut Standing, out: &mut Placed) {
        for given in self.devices.values().flat_map(BTreeMap::values) {
            let value = Value::Count(given.shares);
            standing.put(&ALLOCATION, &given.attributes, value, (start, moment.at), out);
        }
    }
}
