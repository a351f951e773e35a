//! Whole answers about who was given which device → the allocations that begin and end.
//!
//! In: the kubelet's answers and the job mapping directory's, in the tellers' own names of devices, and the devices as
//! they come and go. Out: `Allocation` facts by `hw.id`; the pod's uid is not in any answer.
//! An answer that is as it was costs one comparison. The last answer holds until there is another: what became of its
//! teller is said by the teller's own state. What can go wrong: an id that names no device of this node; it is counted as
//! `warpgauge.mapping.failures`, and looked up again when devices change, at most once a minute otherwise.
//!
//! Reading order: [`device_ids`] (what an id says) → [`devices`] (which device that is) → [`meaning`] → [`misses`] →
//! [`table`].

pub mod device_ids;
pub mod devices;
#[cfg(test)]
pub(super) mod fixtures;
pub mod meaning;
pub mod misses;
pub mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::model::signal::{AllocationSource, DeviceState};
use crate::model::{Fact, Grant, JobDevices, MonoNs, PodDevices, Signal};
use crate::telemetry::{Counter, Telemetry};

use devices::Devices;
use meaning::Meaning;
use misses::{Misses, Why};
use table::{Owner, Rows};

/// What was given to whom.
#[derive(Debug)]
pub struct Allocations {
    devices: Devices,
    /// Devices changed since the answers were looked through.
    stale: bool,
    pods: Book<PodDevices>,
    jobs: Book<JobDevices>,
    /// Room for the devices of one id.
    found: Vec<Arc<str>>,
    refused: Counter,
}

/// The latest answer of one teller, and what it means.
#[derive(Debug)]
struct Book<A> {
    answer: Option<Arc<A>>,
    rows: Rows,
    misses: Misses,
}

impl<A: PartialEq> Book<A> {
    fn new(telemetry: &Telemetry, stage: &'static str) -> Self {
        Self { answer: None, rows: Rows::default(), misses: Misses::new(telemetry, stage) }
    }

    /// Whether the answer is another one than before.
    fn take(&mut self, answer: &Arc<A>) -> bool {
        let same = self.answer.as_ref().is_some_and(|last| Arc::ptr_eq(last, answer) || last == answer);
        if !same {
            self.answer = Some(Arc::clone(answer));
        }
        !same
    }
}

impl Allocations {
    /// Ids of one answer that are looked at.
    const IDS_MAX: usize = 65_536;

    /// Nobody has anything; failures and refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        Self {
            devices: Devices::new(telemetry),
            stale: false,
            pods: Book::new(telemetry, "allocation"),
            jobs: Book::new(telemetry, "job_mapping"),
            found: Vec::new(),
            refused: telemetry.counter("warpgauge.correlate.refused", &[("reason", "allocations")]),
        }
    }

    /// Learns from a signal; what began and ended is appended to `out`.
    pub fn push(&mut self, signal: &Signal, out: &mut Vec<Fact>) {
        match signal {
            Signal::PodDevices { at, devices } => {
                if self.pods.take(devices) {
                    self.map_pods(*at, out);
                }
            }
            Signal::JobDevices { at, jobs } => {
                if self.jobs.take(jobs) {
                    self.map_jobs(*at, out);
                }
            }
            Signal::Gpu { gpu, .. } => self.stale |= self.devices.learn(gpu),
            Signal::GpuState { hw_id, state: DeviceState::Gone, .. } => {
                self.stale |= self.devices.forget(hw_id);
            }
            Signal::Tick { at } => {
                // Devices come many at once: the answers are looked through when all of them are there.
                if std::mem::take(&mut self.stale) {
                    self.pods.misses.look_again();
                    self.jobs.misses.look_again();
                    self.map_pods(*at, out);
                    self.map_jobs(*at, out);
                }
                self.pods.misses.tick(*at);
                self.jobs.misses.tick(*at);
            }
            Signal::GpuState { .. }
            | Signal::Driver { .. }
            | Signal::Samples { .. }
            | Signal::Processes { .. }
            | Signal::Health { .. }
            | Signal::Uses { .. }
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
            | Signal::Allocation { .. }
            | Signal::Source { .. }
            | Signal::End { .. } => {}
        }
    }

    fn map_pods(&mut self, at: MonoNs, out: &mut Vec<Fact>) {
        let Some(answer) = self.pods.answer.clone() else { return };
        let (mut rows, mut ids) = (Rows::default(), Self::IDS_MAX);
        self.pods.misses.begin();
        for grant in &answer.grants {
            let most = grant.device_ids.len().min(ids);
            ids -= most;
            self.refused.add((grant.device_ids.len() - most) as u64);
            self.map_grant(grant, most, &mut rows, at);
        }
        self.pods.misses.finish(at);
        rows.replace(&mut self.pods.rows, at, out);
    }

    fn map_grant(&mut self, grant: &Grant, most: usize, rows: &mut Rows, at: MonoNs) {
        let is_claim = grant.claim.is_some();
        let how = if is_claim { AllocationSource::ResourceClaim } else { AllocationSource::PodResources };
        let container = Some([&grant.namespace, &grant.pod, &grant.container].map(String::clone));
        let owner = Arc::new(Owner { container, job: None, how });
        let ours = meaning::is_nvidias(grant);
        let mut mapped = false;
        let ids = grant.device_ids.get(..most).unwrap_or_default();
        for id in ids.iter().filter(|id| meaning::is_looked_at(ours, id)) {
            let Some(share) = self.look_up(id, is_claim, at) else { continue };
            mapped = true;
            for hw_id in &self.found {
                if !rows.add(hw_id, &owner, share) {
                    self.refused.add(1);
                }
            }
        }
        if let Some(id) = meaning::of_claim(ids)
            && is_claim
            && ours
            && !mapped
            && !self.pods.misses.has(id, at)
        {
            self.pods.misses.put(id, Why::UnknownDevice, at);
        }
    }

    /// Finds the devices of an id, and says which share of them it is; `None` where there are none.
    fn look_up(&mut self, id: &str, is_claim: bool, at: MonoNs) -> Option<Option<u32>> {
        self.found.clear();
        if self.pods.misses.has(id, at) {
            return None;
        }
        match meaning::of_id(&self.devices, id, &mut self.found) {
            Meaning::Found(share) => return Some(share),
            Meaning::Missing(why) if !is_claim => self.pods.misses.put(id, why, at),
            Meaning::Missing(_) | Meaning::NotADevice => {}
        }
        None
    }

    fn map_jobs(&mut self, at: MonoNs, out: &mut Vec<Fact>) {
        let Some(answer) = self.jobs.answer.clone() else { return };
        let mut rows = Rows::default();
        self.jobs.misses.begin();
        for grant in answer.grants.iter().take(Self::IDS_MAX) {
            self.devices.find(meaning::of_job(grant), &mut self.found);
            if self.found.is_empty() {
                let name = grant.instance.map_or(grant.gpu.to_string(), |gi| format!("{}.{gi}", grant.gpu));
                self.jobs.misses.put(&name, Why::UnknownDevice, at);
            }
            for job in &grant.jobs {
                let how = AllocationSource::JobMapping;
                let owner = Arc::new(Owner { container: None, job: Some(job.clone()), how });
                let refused = self.found.iter().filter(|hw_id| !rows.add(hw_id, &owner, None)).count();
                self.refused.add(refused as u64);
            }
        }
        self.jobs.misses.finish(at);
        rows.replace(&mut self.jobs.rows, at, out);
    }
}
