//! The map as text for people, or as JSON, one object per line.
//!
//! In: lines. Out: text. What others wrote is stripped of control characters.
//! What can go wrong: the output is gone; the caller ends then.

use std::io::{self, Write};

use super::super::print::printable;
use super::line::{Allocation, Device, Line, Owner, Process};

/// One JSON object per line.
///
/// # Errors
/// When the output does not take it.
pub fn json(lines: &[Line], mut out: impl Write) -> io::Result<()> {
    for line in lines {
        serde_json::to_writer(&mut out, line)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// A line for each, and one more for each failure; at the end a count.
///
/// # Errors
/// When the output does not take it.
pub fn text(lines: &[Line], mut out: impl Write) -> io::Result<()> {
    for line in lines {
        let (kind, said) = match line {
            Line::Source(source) => (source.name, format!("{}: {}", source.state, source.what)),
            Line::Allocation(allocation) => ("allocation", of_allocation(allocation)),
            Line::Device(device) => ("device", of_device(device)),
            Line::Process(process) => ("process", of_process(process)),
        };
        writeln!(out, "{kind:<11} {}", printable(&said))?;
        for failure in line.failures() {
            let what = if failure.what.is_empty() { String::new() } else { format!(": {}", failure.what) };
            let said = format!("✗ {} {}{what}", failure.stage, failure.reason);
            writeln!(out, "{:<11} {}", "", printable(&said))?;
            writeln!(out, "{:<11} → {}", "", printable(failure.remedy))?;
        }
    }
    let failed = lines.iter().filter(|line| !line.failures().is_empty()).count();
    writeln!(out, "{} lines, {failed} with something that could not be mapped", lines.len())?;
    out.flush()
}

fn of_allocation(Allocation { raw, key, result, failure }: &Allocation) -> String {
    let who = match &raw.pod {
        Some(pod) => {
            let (namespace, container) = (raw.namespace.as_deref(), raw.container.as_deref());
            format!("{}/{pod}/{}", namespace.unwrap_or_default(), container.unwrap_or_default())
        }
        None => format!("job {}", raw.jobs.join(", ")),
    };
    let of = [&raw.resource, &raw.claim].into_iter().flatten().map(|of| format!("{of} "));
    let mut said = format!("{who}: {}{}", of.collect::<String>(), raw.id);
    said.extend(key.iter().map(|key| format!(" → {key}")));
    match result {
        Some(given) => {
            said.push_str(&format!(" → {}", given.hw_ids.join(", ")));
            said.extend(given.share.map(|share| format!(", share {share}")));
            said.extend(given.pod_uid.iter().map(|uid| format!("; pod uid {uid}")));
        }
        None if failure.is_none() => said.push_str(" → no device of this driver"),
        None => {}
    }
    said
}

fn of_device(Device { raw, given_to, used_by }: &Device) -> String {
    let number = |name: &str, number: Option<u32>| number.map(|n| format!("{name} {n}"));
    let numbers = [
        number("index", raw.index),
        number("minor", raw.minor),
        raw.parent.as_ref().map(|parent| format!("of {parent}")),
        raw.mig_profile.clone(),
        number("instance", raw.gpu_instance),
        number("slice", raw.mig_start),
    ];
    let numbers: Vec<String> = numbers.into_iter().flatten().collect();
    let or_nobody = |all: Vec<String>| if all.is_empty() { "nobody".to_owned() } else { all.join(", ") };
    let used_by = used_by.iter().map(u32::to_string).collect();
    let (given_to, used_by) = (or_nobody(given_to.clone()), or_nobody(used_by));
    format!("{} ({}): given to {given_to}; used by {used_by}", raw.hw_id, numbers.join(", "))
}

fn of_process(Process { raw, key, result, .. }: &Process) -> String {
    let comm = raw.comm.as_deref().map(|comm| format!(" {comm}")).unwrap_or_default();
    let mut said = format!("{}{comm} on {} ({})", raw.pid, raw.hw_ids.join(", "), raw.evidence);
    said.extend(raw.cgroup.iter().map(|path| format!(": {path}")));
    if let Some(key) = key {
        let parts = [("pod", &key.pod_uid), ("container", &key.container_id)];
        let parts = parts.into_iter().filter_map(|(name, id)| Some(format!("{name} {}", id.as_ref()?)));
        said.push_str(&format!(" → {}", parts.collect::<Vec<_>>().join(", ")));
    }
    let found: Vec<&str> =
        [&raw.pod_folder, &raw.log_link].into_iter().flatten().map(String::as_str).collect();
    if !found.is_empty() {
        said.push_str(&format!(" → {}", found.join(", ")));
    }
    said.extend(result.iter().map(|owner| format!(" → {}", of_owner(owner))));
    said
}

fn of_owner(owner: &Owner) -> String {
    match owner {
        Owner::Pod { namespace, pod, container, .. } => {
            let names = [namespace, pod, container];
            format!("pod {}", names.map(|name| name.as_deref().unwrap_or("?")).join("/"))
        }
        Owner::Container { .. } => "a container of no pod".to_owned(),
        Owner::Job { id, step } => {
            format!(
                "Slurm job {id}{}",
                step.as_ref().map(|step| format!(", step {step}")).unwrap_or_default()
            )
        }
        Owner::Unit { name } => format!("service {name}"),
        Owner::Plain => "a plain process".to_owned(),
    }
}
