//! Whose the processes on devices are.
//!
//! In: pids by device, and whoever answers for them. Out: a line for each process.
//! Cgroup, pod, names: all by the attributor, as the agent has it; here it is only said what was looked at.
//! What can go wrong: each step of the way; it is a failure in the process's line.

use std::collections::BTreeMap;

use super::PodName;
use super::failure::{Failure, Miss, failure};
use super::line::{self, Found, Key, Line, Owner};
use crate::enrich::lookup::Lookup;
use crate::enrich::{Ask, Attributor};
use crate::export::devices::allocations::{Allocations, Has};
use crate::export::whose::process_of;
use crate::host::HostRoot;
use crate::model::plain::is_plain;
use crate::model::signal::{GpuContext, GpuProcess, GpuProcesses};
use crate::model::{Attributed, Fact, Known, MonoNs, Pid, Process, Signal, Workload};
use crate::sources::worker::listed::Listed;

/// How it is known that a process uses a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// NVML lists it.
    Nvml,
    /// It has the device's node open, which a monitor has too.
    OpenFd,
}

/// Whoever answers for processes.
#[derive(Debug)]
pub struct Asking<'a> {
    /// Reads the machine.
    pub lookup: &'a mut Lookup,
    /// Knows what was read.
    pub attributor: &'a mut Attributor,
    /// Where folders are.
    pub host: &'a HostRoot,
    /// Why a name is not known.
    pub names: Miss,
    /// What was given to pods, as exporters know it; `None`: nobody tells.
    pub given: Option<&'a Allocations>,
    /// It is told for this pod alone.
    pub only: Option<&'a PodName>,
    /// Now.
    pub at: MonoNs,
}

impl Asking<'_> {
    /// A line for each process of `pids` (pids by device), in order of pids.
    pub fn lines(
        &mut self,
        devices: &[Listed],
        pids: &BTreeMap<String, Vec<u32>>,
        evidence: Evidence,
    ) -> Vec<Line> {
        let mut lines: BTreeMap<u32, line::Process> = BTreeMap::new();
        for (hw_id, pids) in pids {
            let parent =
                devices.iter().find(|device| device.hw_id == *hw_id).and_then(|d| d.parent.as_deref());
            let fact = self.attributed(hw_id, pids);
            for pid in pids {
                let known = process_of(&fact, Pid(*pid));
                let line = lines.entry(*pid).or_insert_with(|| self.line(*pid, known, evidence));
                line.raw.hw_ids.push(hw_id.clone());
                if let (Evidence::Nvml, Some(process)) = (evidence, known.is()) {
                    line.failures.extend(self.stray((hw_id, parent), &process.workload));
                }
            }
        }
        lines.into_values().map(Line::Process).collect()
    }

    /// As a list of NVML's goes through the agent.
    fn attributed(&mut self, hw_id: &str, pids: &[u32]) -> Attributed<Fact> {
        let process = |pid: &u32| GpuProcess {
            pid: Pid(*pid),
            memory: None,
            sm_utilization: None,
            context: GpuContext::Compute,
        };
        let processes = GpuProcesses { hw_id: hw_id.into(), processes: pids.iter().map(process).collect() };
        let fact = Fact::Reading(Signal::Processes { at: self.at, processes: Box::new(processes) });
        let mut asks: Vec<Ask> = Vec::new();
        self.attributor.asks(&fact, &mut asks);
        asks.drain(..).for_each(|ask| self.lookup.answer(ask, self.at, self.attributor));
        let mut fact = self.attributor.attribute(fact);
        self.attributor.name_asks(&fact, self.at, &mut asks);
        asks.drain(..).for_each(|ask| self.lookup.answer(ask, self.at, self.attributor));
        self.attributor.name(&mut fact);
        fact
    }

    fn line(&self, pid: u32, known: &Known<Process>, evidence: Evidence) -> line::Process {
        let evidence = match evidence {
            Evidence::Nvml => "nvml",
            Evidence::OpenFd => "open_fd",
        };
        let mut raw = Found { pid, evidence, ..Found::default() };
        let process = match known {
            Known::Is(process) => process,
            Known::Gone => return without(raw, Miss::Gone),
            Known::Denied => return without(raw, Miss::Denied),
            Known::NotAsked => return without(raw, Miss::ForeignPids),
        };
        raw.comm.clone_from(&process.comm);
        let plain = |path: &String| path.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect();
        raw.cgroup = process.cgroup.as_ref().map(plain);
        let workload = &process.workload;
        (raw.pod_folder, raw.log_link) = self.entries(workload);
        let (pod_uid, container_id) = (workload.pod_uid.clone(), workload.container_id.clone());
        let key = (pod_uid.is_some() || container_id.is_some()).then_some(Key { pod_uid, container_id });
        let mut failures = Vec::new();
        if process.cgroup.is_none() {
            failures.push(failure(Miss::NoCgroup, ""));
        }
        failures.extend(self.nameless(workload));
        let result = process.cgroup.is_some().then(|| owner(workload));
        line::Process { raw, key, result, failures }
    }

    /// The entries of the log folders that tell of this workload.
    fn entries(&self, workload: &Workload) -> (Option<String>, Option<String>) {
        let Workload { container_id, pod_uid, namespace, pod, container, .. } = workload;
        let (Some(uid), Some(namespace), Some(pod)) = (pod_uid, namespace, pod) else { return (None, None) };
        let there = |folder: &str, name: String| {
            self.host.var_log(folder).join(&name).symlink_metadata().is_ok().then_some(name)
        };
        let link = container.as_ref().zip(container_id.as_ref()).and_then(|(container, id)| {
            there("containers", format!("{pod}_{namespace}_{container}-{id}.log"))
        });
        (there("pods", format!("{namespace}_{pod}_{uid}")), link)
    }

    /// A pod's process on a device that the pod was not given.
    fn stray(&self, (hw_id, parent): (&str, Option<&str>), workload: &Workload) -> Option<Failure> {
        let Workload { pod_uid, namespace, pod, .. } = workload;
        let given = self.given.filter(|_| pod_uid.is_some() || pod.is_some())?;
        let names = namespace.as_deref().zip(pod.as_deref());
        let of_this = |(namespace, pod): &PodName| names == Some((namespace.as_str(), pod.as_str()));
        let told = self.only.map(of_this);
        let miss = match (given.has(hw_id, parent, pod_uid.as_deref(), names), told) {
            (_, Some(false)) | (Has::This, _) | (Has::Unknown, None) => return None,
            (Has::Others, _) => Miss::Mismatch,
            // it was asked for, and has nothing
            (Has::Nothing, _) | (Has::Unknown, Some(true)) => Miss::NoAllocation,
        };
        Some(failure(miss, format!("on {hw_id}")))
    }

    fn nameless(&self, workload: &Workload) -> Option<Failure> {
        let Workload { container_id, pod_uid, pod, container, .. } = workload;
        let what = match (pod_uid, pod, container_id, container) {
            (Some(uid), None, ..) => format!("no folder …_{uid} in /var/log/pods"),
            (Some(_), Some(_), Some(id), None) => format!("no link …-{id}.log in /var/log/containers"),
            _ => return None,
        };
        Some(failure(self.names, what))
    }
}

fn without(raw: Found, miss: Miss) -> line::Process {
    line::Process { raw, key: None, result: None, failures: vec![failure(miss, "")] }
}

fn owner(workload: &Workload) -> Owner {
    let Workload { container_id, pod_uid, namespace, pod, container, systemd_unit, slurm_job, slurm_step } =
        workload.clone();
    match (pod_uid, slurm_job, container_id, systemd_unit) {
        (Some(uid), ..) => Owner::Pod { uid, namespace, pod, container },
        (None, Some(id), ..) => Owner::Job { id, step: slurm_step },
        (None, None, Some(id), _) => Owner::Container { id },
        (None, None, None, Some(name)) => Owner::Unit { name },
        (None, None, None, None) => Owner::Plain,
    }
}
