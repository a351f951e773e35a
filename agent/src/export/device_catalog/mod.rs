//! Metrics of devices: those made from `data/device_metrics.csv`, and the few that no single field gives.
//!
//! In: the data file and the table of fields. Out: [`from_fields`], which the catalogue appends; [`to_markdown`], which
//! makes `docs/fields.md`. What can go wrong: a damaged row is left out, and a test fails.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use super::catalog::{Kind, Metric, with_workload};
use crate::model::Field;
use crate::model::field_table::{self, FieldRow, Range, Treatment};

const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/device_metrics.csv"));

/// Attributes of every point of a device; the last three name a part of it.
pub const OF_EVERY_DEVICE: &[&str] =
    &["hw.id", "hw.type", "gpu.nvlink.link", "cpu.logical_number", "infiniband.port"];

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    help: &'static str,
    attributes: &'static [&'static str],
) -> Metric {
    Metric { name, kind, unit, help, attributes }
}

/// `gpu.info`
pub const INFO: Metric = metric(
    "gpu.info",
    Kind::Gauge,
    "1",
    "1: what is known of the device in words, one series per device, with the attributes that the fields add (see the page of fields). When one of them changes the series ends and another begins. Join by `hw.id`.",
    &[
        "hw.id",
        "hw.type",
        "hw.name",
        "hw.parent",
        "gpu.index",
        "gpu.minor",
        "gpu.pci.address",
        "hw.serial_number",
        "gpu.architecture",
        "gpu.mig.profile",
        "gpu.mig.profile.source",
        "gpu.numa.node",
        "gpu.cpu.affinity",
        "gpu.nvlink.peers",
        "hw.driver_version",
    ],
);
/// `gpu.nvlink.info`
pub const NVLINK_INFO: Metric = metric(
    "gpu.nvlink.info",
    Kind::Gauge,
    "1",
    "1: what is known of a link in words, one series per link, with the attributes that the fields add (see the page of fields). It is no series of `gpu.info`, which has one per device to join by.",
    &["hw.id", "hw.type", "gpu.nvlink.link"],
);
/// `gpu.field.absent`
pub const FIELD_ABSENT: Metric = metric(
    "gpu.field.absent",
    Kind::Gauge,
    "1",
    "1 while a field that is watched has no value, and why. Its own series sends nothing meanwhile. `gpu.field` is DCGM's name of the field; `gpu.workload.energy` or `gpu.workload.sm.utilization` where the device has workloads and what these are made of is not told.",
    &[
        "hw.id",
        "hw.type",
        "gpu.nvlink.link",
        "cpu.logical_number",
        "infiniband.port",
        "gpu.field",
        "gpu.absence.reason",
    ],
);
/// `hw.status`
pub const STATUS: Metric = metric(
    "hw.status",
    Kind::UpDownCounter,
    "1",
    "1 for the state that the device is in, 0 for the others: `failed` while it is lost or a health check fails, `degraded` while it is being reset or a health check warns, else `ok`. The last result of a health check counts until there is another; while neither DCGM nor NVML answers there are no points.",
    &["hw.id", "hw.type", "hw.state"],
);
/// `gpu.health.status`
pub const HEALTH: Metric = metric(
    "gpu.health.status",
    Kind::Gauge,
    "1",
    "What DCGM's health check says of the subsystem: 0 pass, 1 warn, 2 fail.",
    &["hw.id", "hw.type", "gpu.health.subsystem"],
);
/// `hw.gpu.memory.utilization`
pub const MEMORY_UTILIZATION: Metric = metric(
    "hw.gpu.memory.utilization",
    Kind::Gauge,
    "1",
    "Device memory in use as a share of its size, what the driver reserves included in the size.",
    &["hw.id", "hw.type"],
);
/// `gpu.dcgm.field`
pub const UNKNOWN_FIELD: Metric = metric(
    "gpu.dcgm.field",
    Kind::Gauge,
    "1",
    "Value of a field that is newer than this agent, as the engine gives it.",
    &["hw.id", "hw.type", "gpu.nvlink.link", "cpu.logical_number", "infiniband.port", "gpu.field"],
);
/// `gpu.process.memory.usage`
pub const PROCESS_MEMORY: Metric = metric(
    "gpu.process.memory.usage",
    Kind::UpDownCounter,
    "By",
    "Device memory that the processes of a workload hold on the device, together.",
    with_workload!("hw.id"),
);
/// `gpu.process.sm.utilization`
pub const PROCESS_SM: Metric = metric(
    "gpu.process.sm.utilization",
    Kind::Gauge,
    "1",
    "Share of time in which kernels of the workload's processes ran on the device, together.",
    with_workload!("hw.id"),
);
/// `gpu.allocation.info`
pub const ALLOCATION: Metric = metric(
    "gpu.allocation.info",
    Kind::Gauge,
    "1",
    "While a device is given to a container or a job: how many shares of it (replicas, slots, virtual GPUs), 1 for all of it. One series per device and owner, to join the device's series with; when a name is learned later the series ends and another begins. `gpu.allocation.source` says who tells: the kubelet, of a resource (`pod_resources`) or a claim (`resource_claim`), or the job mapping directory (`job_mapping`).",
    &[
        "hw.id",
        "k8s.namespace.name",
        "k8s.pod.name",
        "k8s.pod.uid",
        "k8s.container.name",
        "slurm.job.id",
        "gpu.allocation.source",
    ],
);
/// `gpu.vendor.call.duration`
pub const VENDOR_CALL: Metric = metric(
    "gpu.vendor.call.duration",
    Kind::ExponentialHistogram,
    "s",
    "How long finished calls into the vendor's libraries took. The sum is exact; bucket bounds are powers of two.",
    &["gpu.vendor.library", "gpu.vendor.call", "hw.id"],
);

/// Those that no single field gives, in the order of the documentation.
pub const STATIC: &[Metric] = &[
    INFO,
    NVLINK_INFO,
    STATUS,
    HEALTH,
    FIELD_ABSENT,
    MEMORY_UTILIZATION,
    UNKNOWN_FIELD,
    PROCESS_MEMORY,
    PROCESS_SM,
    ALLOCATION,
    VENDOR_CALL,
];

/// Those of the fields, in the order of the file.
pub fn from_fields() -> &'static [Metric] {
    static METRICS: LazyLock<Vec<Metric>> =
        LazyLock::new(|| TABLE.lines().skip(1).filter_map(parse).collect());
    &METRICS
}

fn parse(line: &'static str) -> Option<Metric> {
    let mut cells = line.splitn(4, ',');
    let (name, kind, unit) = (cells.next()?, cells.next()?, cells.next()?);
    let kind = [Kind::Counter, Kind::Gauge, Kind::UpDownCounter].into_iter().find(|k| k.name() == kind)?;
    let mut attributes = OF_EVERY_DEVICE.to_vec();
    for (attribute, _) in field_table::rows().iter().filter(|row| row.target == name).flat_map(own_attributes)
    {
        if !attributes.contains(&attribute) {
            attributes.push(attribute);
        }
    }
    // Lives as long as the program, like the rest of the table.
    Some(Metric { name, kind, unit, help: cells.next()?, attributes: attributes.leak() })
}

fn own_attributes(row: &FieldRow) -> impl Iterator<Item = (&'static str, &'static str)> {
    row.attributes.iter().copied().chain(key_attribute(row).map(|name| (name, "")))
}

/// The attribute that tells the series of one field apart: the reason of a mask's bit, the number of an event.
pub fn key_attribute(row: &FieldRow) -> Option<&'static str> {
    match (row.treatment, row.field) {
        (Treatment::Mask, _) => Some("gpu.clock.event.reason"),
        (Treatment::Event, Field::Dcgm(230)) => Some("gpu.error.xid"),
        (Treatment::Event, _) => Some("gpu.error.sxid"),
        _ => None,
    }
}

/// The text of `docs/fields.md`.
pub fn to_markdown() -> String {
    let by_name: HashMap<&str, &Metric> = from_fields().iter().map(|metric| (metric.name, metric)).collect();
    let mut text = String::from(INTRODUCTION);
    for row in field_table::rows() {
        let id = match row.field {
            Field::Dcgm(id) => id.to_string(),
            Field::Host(_) => "host".to_owned(),
        };
        let target = row.target;
        let cells = match (row.treatment, by_name.get(target)) {
            (Treatment::Refused, _) => format!("— | not exported: {target} | | |"),
            (Treatment::Info(_), _) => format!("`{}` | attribute `{target}` | | |", info_of(row.field).name),
            (_, None) => continue,
            (_, Some(metric)) => format!("`{target}` | {}", of_metric(row, metric)),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {id} | `{}` | {cells} {} |", row.name, range(row.range));
    }
    text
}

/// The series that has what the field says in words.
fn info_of(field: Field) -> &'static Metric {
    let Field::Dcgm(id) = field else { return &INFO };
    let of_a_link =
        dcgm_ffi::field_table::by_id(id).is_some_and(|row| row.level == dcgm_ffi::EntityGroup::Link);
    if of_a_link { &NVLINK_INFO } else { &INFO }
}

/// Kind, unit and attributes.
fn of_metric(row: &FieldRow, metric: &Metric) -> String {
    let fixed = row.attributes.iter().map(|(name, value)| format!("`{name}`=`{value}`"));
    let attributes: Vec<String> = fixed.chain(key_attribute(row).map(|name| format!("`{name}`"))).collect();
    let how = match row.treatment {
        Treatment::Rate => ", integrated",
        Treatment::Mask => ", time per bit",
        Treatment::Event => ", by number",
        Treatment::Level | Treatment::Counter | Treatment::Info(_) | Treatment::Refused => "",
    };
    format!("{}{how} | `{}` | {} |", metric.kind.name(), metric.unit, attributes.join(" "))
}

fn range(range: Range) -> &'static str {
    match range {
        Range::Any => "",
        Range::Positive => "0 or more",
        Range::Percent => "0 to 100",
        Range::Ratio => "0 to 1",
        Range::Celsius => "-273 to 1000",
    }
}

const INTRODUCTION: &str = "# Fields and their metrics\n\n\
    Made from the table of fields by `cargo xtask docs`; do not edit.\n\n\
    Every field of DCGM up to 4.6.1, and the values that are read from the host. All points have `hw.id` and `hw.type`;\n\
    those of a part of a device also `gpu.nvlink.link`, `cpu.logical_number` or `infiniband.port`. No device series names\n\
    a pod: join with the series of the workload.\n\n\
    - *counter*: the increase since the agent first saw the device's counter; the start time of the point is that of the\n  \
    first observation. When the device's counter falls it has begun anew: the series then starts at the previous sample,\n  \
    with the whole of the new count. A gap, such as a restart of the engine, changes neither start nor count.\n\
    - *counter, integrated*: the engine gives a rate, the mean over its interval; each value counts for the time since the\n  \
    sample before it. A gap of more than 3 of the steps before it is not bridged: the value then counts for one step.\n\
    - *counter, time per bit*: a mask holds from its sample to the next one; gaps of more than 3 steps count for no bit.\n\
    - *updowncounter* of retired pages, remapped rows and aggregate ECC errors: totals of the board's life, as they are.\n\
    - A value that is out of its range is left out, and its field absent with the reason `invalid`.\n\n\
    | id | field | metric | kind | unit | attributes | range |\n|---|---|---|---|---|---|---|\n";

#[cfg(test)]
mod tests;
