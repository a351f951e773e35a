//! The lines as a table for people.
//!
//! In: the selected lines. Out: the devices with their topology, then a row per field with the values, equal ones told
//! once. Text of the libraries is stripped of control characters. What can go wrong: the output is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde_json::Value as Json;

use super::select::is_field;
use crate::model::plain::is_plain;

/// Different values that a row shows; `--json` has all.
const SHOWN_MAX: usize = 12;

/// Writes the table; `topology`: with the devices before it.
///
/// # Errors
/// When the output does not take it.
pub fn write(lines: &[Json], topology: bool, mut out: impl Write) -> io::Result<()> {
    let labels = labels(lines);
    if topology {
        devices(lines, &labels, &mut out)?;
    }
    writeln!(out, "{:>5}  {:<44} {:<10} {:<16} {:<17} values", "id", "name", "unit", "level", "watched")?;
    let mut fields = 0;
    for line in lines.iter().filter(|line| is_field(line)) {
        fields += 1;
        let id = line.get("id").and_then(Json::as_u64).map_or_else(|| "-".to_owned(), |id| id.to_string());
        let name = match text(line, "name") {
            "" => "(not in this agent's table)",
            name => name,
        };
        let level = if text(line, "entity").is_empty() { text(line, "level") } else { text(line, "entity") };
        writeln!(
            out,
            "{id:>5}  {:<44} {:<10} {:<16} {:<17} {}",
            printable(name.strip_prefix("DCGM_FI_").unwrap_or(name)),
            or_dash(text(line, "unit")),
            or_dash(level),
            watched(line),
            values(line, &labels)
        )?;
    }
    writeln!(out, "{fields} fields; names without their DCGM_FI_")
}

/// Short names of the devices: a GPU's index, else its own.
fn labels(lines: &[Json]) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let gpus = || lines.iter().filter(|line| kind(line) == 1);
    let indices: BTreeSet<u64> = gpus().filter_map(|line| line.get("index")?.as_u64()).collect();
    // A driver that gives one index twice is not believed.
    let unique = indices.len() == gpus().count();
    for line in lines {
        let (Some(device), kind) = (line.get("device").and_then(Json::as_str), kind(line)) else { continue };
        let index = line.get("index").and_then(Json::as_u64);
        let label = match (kind, index) {
            (1, Some(index)) if unique => index.to_string(),
            _ => printable(device),
        };
        labels.insert(device.to_owned(), label);
    }
    labels
}

fn kind(line: &Json) -> u64 {
    line.get("kind").and_then(Json::as_u64).unwrap_or_default()
}

fn devices(lines: &[Json], labels: &BTreeMap<String, String>, out: &mut impl Write) -> io::Result<()> {
    for line in lines.iter().filter(|line| line.get("device").is_some()) {
        let device = text(line, "device");
        let label = labels.get(device).map_or("", String::as_str);
        let what = match kind(line) {
            1 => "GPU",
            2 => "MIG",
            3 => "switch",
            _ => "CPU",
        };
        let state = match line.get("state").and_then(Json::as_u64) {
            Some(1) => ", LOST",
            Some(2) => ", resetting",
            _ => "",
        };
        let model = [text(line, "model"), text(line, "mig_profile")].concat();
        let name = printable(device);
        let name = if label == name { name } else { format!("{label}  {name}") };
        writeln!(out, "{what} {name}  {}{state}", printable(&model))?;
        let mut around = Vec::new();
        for (key, name) in [("pci", "PCI"), ("parent", "part of"), ("cpu_affinity", "CPUs")] {
            if !text(line, key).is_empty() {
                around.push(format!("{name} {}", printable(text(line, key))));
            }
        }
        if let Some(node) = line.get("numa_node").and_then(Json::as_u64) {
            around.push(format!("NUMA node {node}"));
        }
        let peers = line.get("nvlink_peers").and_then(Json::as_array).into_iter().flatten();
        let peers: Vec<String> = peers
            .filter_map(|peer| peer.as_str()?.split_once('='))
            .map(|(peer, links)| {
                format!(
                    "{} × {}",
                    labels.get(peer).cloned().unwrap_or_else(|| printable(peer)),
                    printable(links)
                )
            })
            .collect();
        if !peers.is_empty() {
            around.push(format!("NVLink to {}", peers.join(", ")));
        }
        if !around.is_empty() {
            writeln!(out, "    {}", around.join(", "))?;
        }
    }
    writeln!(out)
}

fn watched(line: &Json) -> String {
    let (group, every) = (text(line, "group"), line.get("interval_s").and_then(Json::as_f64));
    match (group, every) {
        ("", _) => "-".to_owned(),
        (group, None) => printable(group),
        (group, Some(every)) => format!("{} {} s", printable(group), number(every)),
    }
}

/// `all 45`, or `0: 45  1: 46`; devices with the same value stand together.
fn values(line: &Json, labels: &BTreeMap<String, String>) -> String {
    if line.get("known") == Some(&Json::Bool(false)) {
        return "this libdcgm does not know it".to_owned();
    }
    let Some(status) = line.get("status").and_then(Json::as_object).filter(|status| !status.is_empty())
    else {
        return "no such device here".to_owned();
    };
    let mut by_value: Vec<(String, Vec<String>)> = Vec::new();
    for (name, says) in status {
        let (device, part) = name.split_once('/').unwrap_or((name, ""));
        let label = labels.get(device).cloned().unwrap_or_else(|| printable(device));
        let label = if part.is_empty() { label } else { format!("{label}/{}", printable(part)) };
        let says = says_what(says);
        match by_value.iter_mut().find(|(known, _)| *known == says) {
            Some((_, who)) => who.push(label),
            None => by_value.push((says, vec![label])),
        }
    }
    if let [(only, _)] = by_value.as_slice() {
        return if status.len() == 1 { only.clone() } else { format!("all {}: {only}", status.len()) };
    }
    let more = by_value.len().saturating_sub(SHOWN_MAX);
    let mut shown: Vec<String> = by_value
        .iter()
        .take(SHOWN_MAX)
        .map(|(says, who)| match who.as_slice() {
            [first, .., last] if who.len() > 4 => format!("{first} … {last} ({}): {says}", who.len()),
            _ => format!("{}: {says}", who.join(",")),
        })
        .collect();
    if more > 0 {
        shown.push(format!("… {more} more, see --json"));
    }
    shown.join("  ")
}

fn says_what(says: &Json) -> String {
    match (says.get("value"), says.get("absent").and_then(Json::as_str)) {
        (_, Some(reason)) => format!("({})", printable(reason)),
        (Some(Json::String(text)), _) => printable(text),
        (Some(value), _) => match (value.as_i64(), value.as_f64()) {
            (Some(n), _) => n.to_string(),
            (None, Some(x)) => number(x),
            _ => printable(&value.to_string()),
        },
        _ => "not watched".to_owned(),
    }
}

/// Four decimals at most.
fn number(x: f64) -> String {
    let text = format!("{x:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn text<'a>(line: &'a Json, key: &str) -> &'a str {
    line.get(key).and_then(Json::as_str).unwrap_or_default()
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { printable(text) }
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn devices_come_with_their_topology_and_fields_with_their_values() {
        let lines = [
            json!({"capabilities": {}}),
            json!({"id": 150, "name": "DCGM_FI_DEV_GPU_TEMP", "unit": "°C", "level": "gpu", "entity": "gpu",
                   "group": "performance", "interval_s": 1.0, "known": true,
                   "status": {"GPU-a": {"value": 45}, "GPU-b": {"value": 45.5}, "GPU-c": {"absent": "device_lost"}}}),
            json!({"id": 155, "name": "P", "level": "gpu", "known": true, "group": null,
                   "status": {"GPU-a": {"watched": false}, "GPU-b": {"watched": false}}}),
            json!({"id": 409, "name": "L", "level": "link", "known": true, "status": {}}),
            json!({"id": 3333, "name": null, "level": "gpu", "known": true, "status": {"GPU-a": {"value": "x\u{1b}[31m"}}}),
            json!({"id": null, "name": "NO_SUCH", "group": "mine", "known": false, "status": {}}),
            json!({"device": "GPU-a", "kind": 1, "index": 0, "model": "H100", "state": 0, "pci": "0000:3b:00.0",
                   "numa_node": 1, "cpu_affinity": "0-55", "nvlink_peers": ["GPU-b=18"]}),
            json!({"device": "GPU-b", "kind": 1, "index": 1, "model": "H100", "state": 1}),
        ];
        let mut out = Vec::new();
        write(&lines, true, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row = |start: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("GPU 0"), "GPU 0 GPU-a H100");
        assert_eq!(row("PCI"), "PCI 0000:3b:00.0, CPUs 0-55, NUMA node 1, NVLink to 1 × 18");
        assert_eq!(row("GPU 1"), "GPU 1 GPU-b H100, LOST");
        assert_eq!(row("150"), "150 DEV_GPU_TEMP °C gpu performance 1 s 0: 45 1: 45.5 GPU-c: (device_lost)");
        assert_eq!(row("155"), "155 P - gpu - all 2: not watched");
        assert_eq!(row("409"), "409 L - link - no such device here");
        assert_eq!(row("3333"), "3333 (not in this agent's table) - gpu - x [31m");
        assert_eq!(row("-"), "- NO_SUCH - - mine this libdcgm does not know it");
        assert!(text.ends_with("5 fields; names without their DCGM_FI_\n"), "{text}");
    }

    #[test]
    fn many_values_are_cut_and_equal_ones_told_once() {
        let status: serde_json::Map<String, Json> =
            (0..40).map(|n| (format!("GPU-{n:02}"), json!({"value": if n < 6 { 0 } else { n }}))).collect();
        let said = values(&json!({"status": status}), &BTreeMap::new());
        assert!(said.starts_with("GPU-00 … GPU-05 (6): 0  GPU-06: 6  "), "{said}");
        assert!(said.ends_with("… 23 more, see --json"), "{said}");
    }
}
