//! What was seen of the libraries → checks. Pure.
//!
//! In: what is said of each source, and the answer on fields. Out: checks. What can go wrong: nothing was said of a
//! thing; then it is `unknown`, with what was in the way.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::vendor::Seen;
use super::{Check, Verdict};
use crate::config::WorkerConfig;
use crate::sources::worker::board::Standing;

const MISMATCH: &str = "the library and the loaded kernel module are of different releases: restart the node, or stop \
                        all users of the driver and reload it (rmmod, modprobe); in a container make the pod anew";
const WAIT: &str = "ask again; the agent's log names the call that is late";
/// The module that fails on every node without a Grace CPU.
const GRACE: &str = "sysmon";
/// Kinds of devices, as the answer numbers them.
const GPU: u64 = 1;
const MIG: u64 = 2;

/// The worker of a running agent.
pub(super) fn worker_of_agent(seen: &Seen) -> Check {
    match seen.standings.iter().find(|standing| standing.source == "worker") {
        Some(worker) if worker.up => Check::yes("worker", "it runs under the agent"),
        Some(worker) if worker.reason == "disabled" => Check::off("worker", worker.what.clone()),
        Some(worker) => Check::no("worker", worker.what.clone(), worker.remedy.clone()),
        None => Check::unknown("worker", "the agent does not tell", "is it of the same release?"),
    }
}

/// All checks of the libraries and devices.
pub(super) fn libraries(config: &WorkerConfig, seen: &Seen) -> Vec<Check> {
    let mut checks = Vec::new();
    let used = |wanted: bool| config.enabled && wanted;
    if used(config.dcgm) {
        checks.extend([library("libdcgm", "dcgm", seen), engine(seen), modules(seen)]);
        checks.extend(profiling(seen));
    } else {
        checks.push(Check::off("libdcgm", "DCGM is switched off by the configuration"));
    }
    if used(config.nvml) {
        checks.push(library("libnvidia-ml", "nvml", seen));
        checks.push(nvml(seen));
    } else {
        checks.push(Check::off("libnvidia-ml", "NVML is switched off by the configuration"));
    }
    if config.is_on() {
        checks.extend([gpus(seen), mig(seen)]);
    }
    checks
}

fn standing<'a>(seen: &'a Seen, source: &str) -> Option<&'a Standing> {
    seen.standings.iter().find(|standing| standing.source == source)
}

fn unheard(name: &'static str, seen: &Seen) -> Check {
    let why = seen.obstacle.clone().unwrap_or_else(|| "nothing was said of it yet".to_owned());
    Check::unknown(name, why, WAIT)
}

/// Whether a library was found.
fn library(name: &'static str, source: &str, seen: &Seen) -> Check {
    match standing(seen, source) {
        None => unheard(name, seen),
        Some(s) if !s.library.is_empty() => Check::yes(name, s.library.clone()),
        Some(s) if s.up => Check::yes(name, s.what.clone()),
        Some(s) if s.reason == "no_library" => Check::no(name, s.what.clone(), s.remedy.clone()),
        Some(s) if s.reason == "no_driver" => Check::yes(name, format!("it opens, but: {}", s.what)),
        Some(s) => Check::unknown(name, s.what.clone(), s.remedy.clone()),
    }
}

/// Whether DCGM's engine answers, which one it is, and its release.
fn engine(seen: &Seen) -> Check {
    const NAME: &str = "DCGM engine";
    match standing(seen, "dcgm") {
        None => unheard(NAME, seen),
        Some(s) if s.up => {
            let version = capability(seen, "version").and_then(Json::as_str).unwrap_or("release not told");
            Check::yes(NAME, format!("{}, {version} (library/engine where they differ)", s.what))
        }
        Some(s) if s.reason == "no_library" => {
            Check::no(NAME, "there is no library to reach it by", "see libdcgm")
        }
        Some(s) if s.reason == "slow" => Check::unknown(NAME, s.what.clone(), s.remedy.clone()),
        Some(s) => Check::no(NAME, format!("{}: {}", s.reason, s.what), s.remedy.clone()),
    }
}

/// Whether the driver answers NVML.
fn nvml(seen: &Seen) -> Check {
    const NAME: &str = "NVML";
    match standing(seen, "nvml") {
        None => unheard(NAME, seen),
        Some(s) if s.up => Check::yes(NAME, "the driver answers"),
        Some(s) if s.reason == "no_library" => {
            Check::no(NAME, "there is no library to reach the driver by", "see libnvidia-ml")
        }
        Some(s) if s.what.to_ascii_lowercase().contains("mismatch") => {
            Check::no(NAME, s.what.clone(), MISMATCH)
        }
        Some(s) if s.reason == "slow" => Check::unknown(NAME, s.what.clone(), s.remedy.clone()),
        Some(s) => Check::no(NAME, format!("{}: {}", s.reason, s.what), s.remedy.clone()),
    }
}

fn capability<'a>(seen: &'a Seen, name: &str) -> Option<&'a Json> {
    seen.lines.iter().find_map(|line| line.get("capabilities"))?.get(name)
}

fn is_up(seen: &Seen, source: &str) -> bool {
    standing(seen, source).is_some_and(|s| s.up)
}

/// The engine's modules. One that is not loaded yet is loaded when it is needed.
fn modules(seen: &Seen) -> Check {
    const NAME: &str = "DCGM modules";
    let Some(told) = capability(seen, "modules").and_then(Json::as_array) else {
        return without_engine(NAME, seen);
    };
    let mut by_state: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for module in told {
        let text = |key: &str| module.get(key).and_then(Json::as_str).unwrap_or("unknown");
        by_state.entry(text("state")).or_default().push(text("name"));
    }
    let all: Vec<String> =
        by_state.iter().map(|(state, names)| format!("{state}: {}", names.join(", "))).collect();
    let mut what = all.join("; ");
    let failed = by_state.get("failed").map(Vec::as_slice).unwrap_or_default();
    if failed.contains(&GRACE) {
        what.push_str(" (sysmon is for Grace CPUs only)");
    }
    match (failed.iter().any(|name| *name != GRACE), told.is_empty()) {
        (true, _) => Check::no(NAME, what, "see the engine's log; a module that failed needs a new engine"),
        (false, true) => Check::unknown(NAME, "the engine does not tell", ""),
        (false, false) => Check::yes(NAME, what),
    }
}

fn without_engine(name: &'static str, seen: &Seen) -> Check {
    let down = standing(seen, "dcgm").is_some_and(|s| !s.up);
    if down {
        Check::unknown(name, "there is no engine to ask", "see DCGM engine")
    } else {
        unheard(name, seen)
    }
}

/// Profiling, a check for all GPUs, or one for each answer where they differ.
fn profiling(seen: &Seen) -> Vec<Check> {
    const NAME: &str = "DCGM profiling";
    if let Some(s) = standing(seen, "profiling").filter(|s| !s.up) {
        return vec![Check::no(NAME, format!("{}: {}", s.reason, s.what), s.remedy.clone())];
    }
    let Some(told) = capability(seen, "profiling").and_then(Json::as_array).filter(|told| !told.is_empty())
    else {
        return vec![without_engine(NAME, seen)];
    };
    let mut by_answer: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for gpu in told {
        let text = |key: &str| gpu.get(key).and_then(Json::as_str).unwrap_or_default();
        by_answer.entry((text("state"), text("reason"), text("remedy"))).or_default().push(text("device"));
    }
    let whole = by_answer.len() == 1;
    let check = |((state, reason, remedy), gpus): ((&str, &str, &str), Vec<&str>)| {
        let which = if whole { format!("all {} GPUs", gpus.len()) } else { gpus.join(", ") };
        match state {
            "yes" => Check::yes(NAME, which),
            "no" => Check::no(NAME, format!("{which}: {reason}"), remedy.to_owned()),
            _ => Check::unknown(NAME, format!("{which}: {reason}"), remedy.to_owned()),
        }
    };
    by_answer.into_iter().map(check).collect()
}

fn devices(seen: &Seen, kind: u64) -> Vec<(&str, &Json)> {
    let of_kind = seen.lines.iter().filter(|line| line.get("kind").and_then(Json::as_u64) == Some(kind));
    of_kind.filter_map(|line| Some((line.get("device")?.as_str()?, line))).collect()
}

/// The GPUs that the libraries see; lost ones are named.
fn gpus(seen: &Seen) -> Check {
    const NAME: &str = "GPUs";
    let gpus = devices(seen, GPU);
    let mut lost: Vec<String> = gpus
        .iter()
        .filter(|(_, gpu)| gpu.get("state").and_then(Json::as_u64) == Some(1))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    // One that was lost before anybody asked its name has none.
    let nameless = capability(seen, "nameless").and_then(Json::as_array).into_iter().flatten();
    let nameless: Vec<u64> = nameless.filter_map(|gpu| gpu.get("id")?.as_u64()).collect();
    lost.extend(nameless.iter().map(|id| format!("number {id} of the engine, which has no name any more")));
    let all = gpus.len() + nameless.len();
    let up = is_up(seen, "dcgm") || is_up(seen, "nvml");
    let of_libraries = || seen.standings.iter().filter(|s| s.source == "dcgm" || s.source == "nvml");
    let told = of_libraries().next().is_some();
    if !lost.is_empty() {
        let remedy = "look at the kernel log for XID 79 and PCIe errors; reset the GPU or restart the node";
        return Check::no(NAME, format!("{} of {all} lost: {}", lost.len(), lost.join(", ")), remedy);
    }
    if let Some(slow) = of_libraries().find(|s| !s.up && s.reason == "slow")
        && gpus.is_empty()
    {
        return Check::unknown(NAME, format!("{}: {}", slow.source, slow.what), slow.remedy.clone());
    }
    match (gpus.is_empty(), up, told) {
        (false, ..) => Check::yes(NAME, format!("{}: {}", gpus.len(), models(&gpus))),
        (true, true, _) if seen.obstacle.is_none() => Check::no(
            NAME,
            "the driver and its libraries work, but see none",
            "look at `nvidia-smi -L` and lspci",
        ),
        (true, false, true) => {
            let remedy = "see libdcgm, libnvidia-ml and driver";
            Check::no(NAME, "none can be seen: neither DCGM nor NVML is up", remedy)
        }
        _ => unheard(NAME, seen),
    }
}

/// `8 × NVIDIA H100 80GB HBM3`.
fn models(gpus: &[(&str, &Json)]) -> String {
    let mut by_model: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, gpu) in gpus {
        *by_model.entry(gpu.get("model").and_then(Json::as_str).unwrap_or("unnamed")).or_default() += 1;
    }
    by_model.iter().map(|(model, n)| format!("{n} × {model}")).collect::<Vec<_>>().join(", ")
}

fn mig(seen: &Seen) -> Check {
    const NAME: &str = "MIG";
    let gpus = devices(seen, GPU);
    if gpus.is_empty() {
        return Check { verdict: Verdict::Unknown, ..Check::off(NAME, "no GPU can be seen") };
    }
    let mut by_profile: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, instance) in devices(seen, MIG) {
        *by_profile
            .entry(instance.get("mig_profile").and_then(Json::as_str).unwrap_or("unnamed"))
            .or_default() += 1;
    }
    if by_profile.is_empty() {
        return Check::off(NAME, "no GPU is parted");
    }
    let all: Vec<String> = by_profile.iter().map(|(profile, n)| format!("{n} × {profile}")).collect();
    Check::yes(NAME, all.join(", "))
}

#[cfg(test)]
#[path = "vendor_tests.rs"]
mod tests;
