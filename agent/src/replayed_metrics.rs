//! Replayed scenarios → golden metrics: the way of measured values through all stages.
//!
//! In: `tests/fixtures/scenarios/NAME.jsonl`. Out: compared with `NAME.metrics.txt`; `UPDATE=1` rewrites it.
//! Every line is a point of a collection at 10, 20, … seconds: name, attributes, start, own time, value.
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::Config;
use crate::export::point::{Point, Value};
use crate::export::series::Limits;
use crate::export::snapshot::Snapshot;
use crate::model::operation::Majors;
use crate::model::{Fact, MonoNs, WallAnchor, WallNs};
use crate::pipeline;
use crate::telemetry::Telemetry;

const INTERVAL: Duration = Duration::from_secs(10);

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/scenarios")).join(name)
}

/// Wall time is that of the scenario, an hour after 1970.
fn anchor(at: MonoNs) -> WallAnchor {
    WallAnchor { mono: at, wall: WallNs(at.0 + 3_600_000_000_000) }
}

fn seconds(at: WallNs) -> f64 {
    MonoNs(at.0.saturating_sub(3_600_000_000_000)).replay_seconds()
}

fn line(collected: f64, point: &Point) -> String {
    let mut text = format!("{collected} {}", point.metric.name);
    for (name, value) in point.attributes.iter() {
        let _ = write!(text, " {name}={value}");
    }
    if let Some(start) = point.start {
        let _ = write!(text, " start={}", seconds(start));
    }
    let value = match &point.value {
        Value::Count(n) => n.to_string(),
        Value::Nanos(ns) => format!("{} ns", ns),
        Value::Whole(n) => n.to_string(),
        Value::Double(n) => n.to_string(),
        Value::Latency(_) => "histogram".to_owned(),
        Value::End => "end".to_owned(),
    };
    let _ = writeln!(text, " at={} = {value}", seconds(point.at));
    text
}

/// The points of the metrics that are `wanted`; what the agent counts of itself goes to `telemetry`.
fn metrics(name: &str, wanted: fn(&str) -> bool, telemetry: &Telemetry) -> String {
    let begin = anchor(MonoNs(0)).wall;
    let mut snapshot = Snapshot::new(begin, Majors::new(None), Limits::default(), telemetry.clone());
    let (mut text, mut next) = (String::new(), MonoNs(0).after(INTERVAL));
    let file = std::fs::File::open(fixture(name)).unwrap();
    let bad = pipeline::replay(&Config::default(), std::io::BufReader::new(file), |fact| {
        let at = match &fact.item {
            Fact::Reading(signal) => signal.at(),
            Fact::Finding(finding) => finding.at,
        };
        while next <= at {
            let batch = snapshot.collect(anchor(next), INTERVAL, None);
            let of_device = |point: &&Point| wanted(point.metric.name);
            batch
                .points
                .iter()
                .filter(of_device)
                .for_each(|point| text.push_str(&line(next.replay_seconds(), point)));
            next = next.after(INTERVAL);
        }
        snapshot.push(&fact);
    });
    assert_eq!(bad.unwrap(), []);
    let last = snapshot.collect(anchor(next), INTERVAL, None);
    let ends = last.points.iter().filter(|point| point.value == Value::End);
    ends.for_each(|point| text.push_str(&line(next.replay_seconds(), point)));
    text
}

/// Compares with `NAME.metrics.txt`.
#[track_caller]
fn check(name: &str, wanted: fn(&str) -> bool, telemetry: &Telemetry) -> String {
    let got = metrics(&format!("{name}.jsonl"), wanted, telemetry);
    let golden = fixture(&format!("{name}.metrics.txt"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&golden, &got).unwrap();
    }
    assert_eq!(got, std::fs::read_to_string(&golden).unwrap_or_default(), "UPDATE=1 rewrites {golden:?}");
    got
}

#[test]
fn measured_values_become_the_golden_metrics() {
    let of = |name: &str| !["gpu.xid.", "warpgauge."].iter().any(|other| name.starts_with(other));
    let got = check("device_values", of, &Telemetry::default());
    let again = metrics("device_values.jsonl", of, &Telemetry::default());
    assert_eq!(got, again, "the same replay gives the same points");
}

/// Who has what, and what those who have it use of it.
fn whose(metric: &str) -> bool {
    ["gpu.allocation.", "gpu.process.", "hw.gpu.", "hw.power"].iter().any(|name| metric.starts_with(name))
}

/// Cases `podresources-gke-ids`, `podresources-uuid-forms`, `time-slicing-four-pods`, `mps-logical-slots` and
/// `hpc-mapping-files`, from the raw answer on. Failures to map are by stage and reason.
#[test]
fn raw_answers_become_the_golden_allocations() {
    for (name, failures) in [
        ("pod_devices_gke", ""),
        ("pod_devices_uuids", ""),
        ("time_slicing", ""),
        ("mps_slots", "allocation mismatch 1"),
        ("job_devices", ""),
    ] {
        let telemetry = Telemetry::default();
        check(name, whose, &telemetry);
        let counted = ["mismatch", "no_allocation"].map(|reason| {
            let attributes = [("stage", "allocation"), ("reason", reason)];
            let count = telemetry.counter("warpgauge.mapping.failures", &attributes).get();
            (0 < count).then(|| format!("allocation {reason} {count}"))
        });
        assert_eq!(counted.into_iter().flatten().collect::<Vec<_>>().join(", "), failures, "{name}");
    }
}
