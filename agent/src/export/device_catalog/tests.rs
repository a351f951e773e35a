//! Tests of the metrics of devices.
//!
//! In: the data files. Out: assertions: every field has a metric that exists, one series has one field.
use std::collections::HashSet;

use super::*;

#[test]
fn every_line_is_a_metric_and_every_metric_has_a_field() {
    assert_eq!(from_fields().len(), TABLE.lines().count() - 1);
    let given: HashSet<&str> = field_table::rows().iter().map(|row| row.target).collect();
    for metric in from_fields() {
        assert!(given.contains(metric.name), "no field gives {}", metric.name);
    }
}

#[test]
fn every_field_has_a_metric_or_a_reason() {
    let names: HashSet<&str> = from_fields().iter().map(|metric| metric.name).collect();
    for row in field_table::rows() {
        let named = matches!(row.treatment, Treatment::Info(_) | Treatment::Refused);
        assert!(named || names.contains(row.target), "{}: {} is not declared", row.name, row.target);
        let kind = from_fields().iter().find(|metric| metric.name == row.target).map(|metric| metric.kind);
        let fits = match row.treatment {
            Treatment::Level => matches!(kind, Some(Kind::Gauge | Kind::UpDownCounter)),
            Treatment::Counter | Treatment::Rate | Treatment::Mask | Treatment::Event => {
                kind == Some(Kind::Counter)
            }
            Treatment::Info(_) | Treatment::Refused => kind.is_none(),
        };
        assert!(fits, "{}: {:?} {kind:?}", row.name, row.treatment);
    }
}

/// Two fields that a device can both have never feed one series.
#[test]
fn one_series_has_one_field() {
    let mut seen = HashSet::new();
    for row in field_table::rows() {
        let level = match row.field {
            Field::Dcgm(id) => match dcgm_ffi::field_table::by_id(id).map(|field| field.level) {
                Some(dcgm_ffi::EntityGroup::GpuInstance | dcgm_ffi::EntityGroup::ComputeInstance) => {
                    Some(dcgm_ffi::EntityGroup::Gpu)
                }
                other => other,
            },
            Field::Host(_) => None,
        };
        if row.treatment != Treatment::Refused {
            assert!(
                seen.insert((level, row.target, &row.attributes)),
                "{}: another field feeds it",
                row.name
            );
        }
    }
}

#[test]
fn units_are_those_of_the_conventions() {
    for (name, kind, unit) in [
        ("hw.gpu.memory.limit", Kind::UpDownCounter, "By"),
        ("hw.gpu.memory.usage", Kind::UpDownCounter, "By"),
        ("hw.gpu.utilization", Kind::Gauge, "1"),
        ("hw.gpu.io", Kind::Counter, "By"),
        ("hw.temperature", Kind::Gauge, "Cel"),
        ("hw.power", Kind::Gauge, "W"),
        ("hw.energy", Kind::Counter, "J"),
        ("hw.errors", Kind::Counter, "{error}"),
        ("gpu.dcgm.clock.frequency", Kind::Gauge, "Hz"),
        ("gpu.dcgm.clock.throttle_duration.time", Kind::Counter, "s"),
    ] {
        let metric = from_fields().iter().find(|metric| metric.name == name).unwrap();
        assert_eq!((metric.kind, metric.unit), (kind, unit), "{name}");
    }
}

#[test]
fn docs_metrics_md_has_a_page_of_fields() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/fields.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, to_markdown()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(written, to_markdown(), "docs/fields.md is old: run `cargo xtask docs`");
    assert_eq!(written.lines().filter(|line| line.starts_with("| ")).count(), field_table::rows().len() + 1);
}
