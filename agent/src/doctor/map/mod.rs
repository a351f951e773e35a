//! `warpgauge doctor map`: from each device and each process to its pod, container, job or service, step by step.
//!
//! In: the configuration the agent would run with. Out: [`Line`]s: the raw answer, the key chosen, the result or the
//! failure. The kubelet, the log folders, /proc and the libraries (through the running agent, or a worker of its own)
//! are asked once; what their answers mean is decided by the agent's own stages.
//! What can go wrong: a source does not answer; that is a line, and what it would have told is missing.
//!
//! Reading order: [`line`] → [`gather`] (what is asked) → [`given`] (devices) → [`processes`] → [`print`].

pub mod failure;
pub mod gather;
pub mod given;
pub mod line;
pub mod open_nodes;
pub mod print;
pub mod processes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use failure::{Miss, failure};
use gather::Gathered;
use given::Giving;
use line::{Line, Owner, Source};
use processes::Asking;

use super::{Check, Verdict};
use crate::config::Config;
use crate::correlate::allocations::devices::Devices;
use crate::enrich::lookup::Lookup;
use crate::enrich::{Ask, Attributor};
use crate::export::devices::LIMITS;
use crate::export::devices::allocations::Allocations;
use crate::export::devices::budget::Budget;
use crate::host::pid_namespace;
use crate::host::{cgroup_hierarchy, mono_now};
use crate::model::signal::Allocation;
use crate::sources::worker::listed::Listed;
use crate::telemetry::Telemetry;

/// A pod: namespace and name.
pub type PodName = (String, String);

/// All lines, or those that have to do with one pod; must be called on a runtime. Whatever hangs, it ends in little more
/// than `patience`.
pub async fn lines(config: &Config, only: Option<PodName>, patience: Duration) -> Vec<Line> {
    let of = only.as_ref().map(|(namespace, pod)| (namespace.as_str(), pod.as_str()));
    let gathered = gather::gather(config, of, patience).await;
    let config = config.clone();
    let judged = tokio::task::spawn_blocking(move || judge(&config, &gathered, only.as_ref()));
    match tokio::time::timeout(patience, judged).await {
        Ok(Ok(lines)) => lines,
        Ok(Err(error)) => vec![late("processes", error.to_string())],
        Err(_) => {
            let what = format!("/proc or the log folders have not answered within {} s", patience.as_secs());
            vec![late("processes", what)]
        }
    }
}

/// What was gathered, mapped as the agent maps it. With `only`, the kubelet was asked for that pod alone.
pub fn judge(config: &Config, gathered: &Gathered, only: Option<&PodName>) -> Vec<Line> {
    let at = mono_now();
    let mut lookup = lookup(config);
    let mut attributor = Attributor::default();
    lookup.answer(Ask::Names(None), at, &mut attributor);
    let telemetry = Telemetry::default();
    let mut devices = Devices::new(&telemetry);
    for gpu in gathered.devices.iter().map(Listed::gpu) {
        devices.learn(&gpu);
    }
    let names = match gathered.log_folders.verdict {
        Verdict::No | Verdict::Off => Miss::LogsUnreadable,
        Verdict::Yes | Verdict::Unknown => Miss::NoLogLink,
    };
    let (allocations, lines) = (Vec::new(), sources(gathered));
    let mut giving = Giving { devices: &devices, attributor: &mut attributor, names, at, allocations, lines };
    gathered.grants.iter().flat_map(|answer| &answer.grants).for_each(|grant| giving.grant(grant));
    let jobs = gathered.jobs.iter().flatten().flat_map(|listing| &listing.jobs.grants);
    jobs.filter(|_| only.is_none()).for_each(|grant| giving.jobs(grant));
    let Giving { allocations, mut lines, .. } = giving;

    let mut budget = Budget::new(LIMITS, telemetry);
    let mut given = Allocations::default();
    allocations.iter().for_each(|allocation| given.take(allocation, &mut budget));
    let (pids, evidence) = gathered.pids();
    lines.extend(gathered.devices.iter().map(|device| about(device, &allocations, &pids)));
    let host = &config.host;
    let given = gathered.grants.as_ref().map(|_| &given);
    let mut asking =
        Asking { lookup: &mut lookup, attributor: &mut attributor, host, names, given, only, at };
    lines.extend(asking.lines(&gathered.devices, &pids, evidence));
    if let Some(only) = only {
        concerning(only, &allocations, &mut lines);
    }
    lines
}

/// Leaves of devices and processes those of the pod, and who else is on its devices.
fn concerning((namespace, pod): &PodName, allocations: &[Allocation], lines: &mut Vec<Line>) {
    let is_its = |owner: &Option<Owner>| match owner {
        Some(Owner::Pod { namespace: Some(of), pod: Some(name), .. }) => (of, name) == (namespace, pod),
        _ => false,
    };
    let mut hw_ids: BTreeSet<String> = allocations.iter().map(|given| given.hw_id.clone()).collect();
    for line in lines.iter() {
        if let Line::Process(process) = line
            && is_its(&process.result)
        {
            hw_ids.extend(process.raw.hw_ids.iter().cloned());
        }
    }
    lines.retain(|line| match line {
        Line::Source(_) | Line::Allocation(_) => true,
        Line::Device(device) => hw_ids.contains(&device.raw.hw_id),
        Line::Process(process) => process.raw.hw_ids.iter().any(|hw_id| hw_ids.contains(hw_id)),
    });
}

/// Asks as the agent does.
fn lookup(config: &Config) -> Lookup {
    let namespace = pid_namespace::of(&config.host);
    let hierarchy = cgroup_hierarchy::read(&config.host, config.probes.cgroup).ok();
    let controller = hierarchy.as_ref().and_then(cgroup_hierarchy::Hierarchy::controller);
    Lookup::new(config.host.clone(), hierarchy.map(|h| h.mount), controller, &namespace)
}

fn about(device: &Listed, allocations: &[Allocation], pids: &BTreeMap<String, Vec<u32>>) -> Line {
    let owner = |allocation: &Allocation| match &allocation.job {
        Some(job) => format!("job {job}"),
        None => {
            let names = [&allocation.namespace, &allocation.pod, &allocation.container];
            names.map(|name| name.as_deref().unwrap_or_default()).join("/")
        }
    };
    let mut given_to: Vec<String> =
        allocations.iter().filter(|given| given.hw_id == device.hw_id).map(owner).collect();
    given_to.sort();
    given_to.dedup();
    let used_by = pids.get(&device.hw_id).cloned().unwrap_or_default();
    Line::Device(line::Device { raw: Listed { processes: None, ..device.clone() }, given_to, used_by })
}

fn sources(gathered: &Gathered) -> Vec<Line> {
    let mut lines = vec![source(&gathered.kubelet, "kubelet")];
    if let (Some(failure), Some(Line::Source(kubelet))) = (&gathered.kubelet_failure, lines.first_mut()) {
        kubelet.failure = Some(failure.clone());
    }
    match &gathered.jobs {
        None => {}
        Some(Ok(listing)) => {
            let unreadable: Vec<&str> = listing.unreadable.keys().map(String::as_str).collect();
            let miss = match (unreadable.is_empty(), listing.malformed) {
                (false, _) => Some(failure(Miss::JobsUnreadable, unreadable.join(", "))),
                (true, 0) => None,
                (true, lines) => Some(failure(Miss::MalformedJob, format!("{lines} lines"))),
            };
            let what = format!("jobs on {} GPUs or instances", listing.jobs.grants.len());
            lines.push(Line::Source(Source { name: "job mapping", state: "yes", what, failure: miss }));
        }
        Some(Err(error)) => {
            let miss = Some(failure(Miss::NoJobDirectory, ""));
            lines.push(Line::Source(Source {
                name: "job mapping",
                state: "no",
                what: error.clone(),
                failure: miss,
            }));
        }
    }
    lines.push(source(&gathered.log_folders, "log folders"));
    lines.push(source(&gathered.libraries, "devices"));
    if let Some(nodes) = &gathered.nodes {
        let what = format!(
            "NVML lists none; by open device nodes: {} processes, {} could not be read",
            nodes.minors.len(),
            nodes.unreadable
        );
        let miss = (0 < nodes.unreadable).then(|| failure(Miss::NodesUnreadable, ""));
        lines.push(Line::Source(Source { name: "processes", state: "yes", what, failure: miss }));
    }
    for line in &mut lines {
        if let Line::Source(source) = line
            && gathered.late.contains(&source.name)
        {
            source.failure.get_or_insert_with(|| failure(Miss::Slow, ""));
        }
    }
    lines
}

fn late(name: &'static str, what: String) -> Line {
    let failure = Some(failure(Miss::Slow, ""));
    Line::Source(Source { name, state: Verdict::Unknown.name(), what, failure })
}

fn source(check: &Check, name: &'static str) -> Line {
    let what = match check.remedy.as_str() {
        "" => check.what.clone(),
        remedy => format!("{}; {remedy}", check.what),
    };
    Line::Source(Source { name, state: check.verdict.name(), what, failure: None })
}
