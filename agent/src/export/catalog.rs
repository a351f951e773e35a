//! The one table of metrics: what is exported, in which unit, and what it means.
//!
//! In: nothing. Out: [`CATALOG`], from which the exporters take name, unit and kind, and [`super::metrics_page`] makes
//! `docs/metrics.md`. What can go wrong: a series whose name is not in the table is not exported; a test finds it.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{device_catalog, driver_catalog, kubelet_catalog, probe_catalog, workload_catalog};

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// OTLP name.
    pub name: &'static str,
    /// Kind of its points.
    pub kind: Kind,
    /// UCUM unit.
    pub unit: &'static str,
    /// One sentence or two.
    pub help: &'static str,
    /// Attributes its points may have.
    pub attributes: &'static [&'static str],
}

/// Kind of a metric's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Monotonic cumulative sum.
    Counter,
    /// Value at a time.
    Gauge,
    /// Cumulative sum that may fall: a level that makes sense when it is added up.
    UpDownCounter,
    /// Cumulative exponential histogram of scale 0.
    ExponentialHistogram,
}

impl Kind {
    /// The word in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::UpDownCounter => "updowncounter",
            Self::ExponentialHistogram => "exponential histogram",
        }
    }
}

/// Whose a series is; of container and cgroup at most one is there.
macro_rules! with_workload {
    ($($name:literal),*) => {
        &[$($name,)* "k8s.pod.uid", "k8s.namespace.name", "k8s.pod.name", "k8s.container.name",
          "container.id", "process.linux.cgroup", "systemd.unit", "slurm.job.id"]
    };
}
pub(super) use with_workload;

/// `gpu.driver.call.duration`
pub const CALL_DURATION: Metric = Metric {
    name: "gpu.driver.call.duration",
    kind: Kind::ExponentialHistogram,
    unit: "s",
    help: "How long finished calls into the GPU driver took, from entry to return. The sum is exact; bucket bounds are powers of two.",
    attributes: with_workload!("gpu.driver.device", "gpu.driver.call", "gpu.driver.operation"),
};
/// `gpu.driver.call.errors`
pub const CALL_ERRORS: Metric = counter(
    "gpu.driver.call.errors",
    "{call}",
    "Finished driver calls that returned a negative value. The driver reports most failures of resource-manager calls with a return value of 0: those are counted here where the probe `rm` sees its answer; `gpu.driver.rm.calls` tells them apart by status.",
    with_workload!("gpu.driver.device", "gpu.driver.call", "gpu.driver.operation"),
);
/// `gpu.stall.active`
pub const STALL_ACTIVE: Metric =
    gauge("gpu.stall.active", "{stall}", "Stalls that are going on now.", with_workload!("gpu.stall.cause"));
/// `gpu.stall.count`
pub const STALL_COUNT: Metric = counter(
    "gpu.stall.count",
    "{stall}",
    "Stalls that began, by the cause known at their begin.",
    with_workload!("gpu.stall.cause"),
);
/// `gpu.stall.time`
pub const STALL_TIME: Metric = counter(
    "gpu.stall.time",
    "s",
    "Time lost in stalls. Booked when a stall ends, and every 60 s while it lasts; booked time is never moved to another cause.",
    with_workload!("gpu.stall.cause"),
);
/// `gpu.xid.errors`
pub const XID_ERRORS: Metric = counter(
    "gpu.xid.errors",
    "{error}",
    "Errors (XIDs) that the driver reported in the kernel log. 0 from the start for every known GPU and class. Those from before the agent first ran on this boot are counted once, in series of their own with `gpu.xid.backlog` = `true`, which have no 0 before them.",
    &["hw.id", "gpu.pci.address", "gpu.xid.class", "gpu.xid.backlog"],
);
/// `gpu.xid.errors.by_code`
pub const XID_BY_CODE: Metric = counter(
    "gpu.xid.errors.by_code",
    "{error}",
    "The same errors by code. A new series begins with a 0 one export interval before its first error, unless it is of the backlog.",
    &["hw.id", "gpu.pci.address", "gpu.xid.class", "gpu.xid.code", "gpu.xid.backlog"],
);

/// Metrics of the agent's own making, in the order of the documentation; [`all`] has those of devices as well.
pub const CATALOG: &[Metric] = &[
    CALL_DURATION,
    CALL_ERRORS,
    STALL_ACTIVE,
    STALL_COUNT,
    STALL_TIME,
    XID_ERRORS,
    XID_BY_CODE,
    counter(
        "warpgauge.signals.dropped",
        "{signal}",
        "Observations lost on the way through the agent.",
        &["place", "reason"],
    ),
    gauge("warpgauge.source.up", "1", "1 while the source gives data, 0 while it does not.", &["source"]),
    gauge(
        "warpgauge.source.lack",
        "1",
        "1 while the source is not available for this reason; the log has what is missing and its remedy.",
        &["source", "reason"],
    ),
    counter(
        "warpgauge.correlate.refused",
        "{call}",
        "Signals that found no room in the bounded memory of a rule.",
        &["reason"],
    ),
    counter(
        "warpgauge.kmsg.lost",
        "{record}",
        "Kernel-log records that the kernel overwrote before they were read, from gaps in their numbers.",
        &[],
    ),
    counter(
        "warpgauge.source.restarts",
        "{restart}",
        "Times the source was started again after it failed.",
        &["source"],
    ),
    counter("warpgauge.kmsg.records", "{record}", "Records read from the kernel log.", &[]),
    counter(
        "warpgauge.kmsg.overruns",
        "{overrun}",
        "Times the kernel overwrote records before they were read.",
        &[],
    ),
    counter("warpgauge.kmsg.ignored", "{record}", "Kernel-log records left out on purpose.", &["reason"]),
    counter("warpgauge.kmsg.malformed", "{record}", "Kernel-log records that could not be understood.", &[]),
    counter("warpgauge.state.errors", "{error}", "Reads or writes of the state directory that failed.", &[]),
    counter(
        "warpgauge.log.records",
        "{record}",
        "Log records of findings by what became of them: emitted here, reloaded from the previous run, acknowledged by the collector, spooled for the next run, reread (reloaded, but sent only once they are read from this boot's kernel log again). Emitted and reloaded equal acknowledged, dropped, queued, spooled and reread together.",
        &["state"],
    ),
    counter("warpgauge.log.records.dropped", "{record}", "Log records given up.", &["reason"]),
    gauge(
        "warpgauge.log.records.queued",
        "{record}",
        "Log records waiting for the collector, with those on the wire.",
        &[],
    ),
    counter("warpgauge.log.retries", "{request}", "Log requests sent again.", &[]),
    counter(
        "warpgauge.log.lines.lost",
        "{line}",
        "Lines of the agent's own log that standard error did not take in time.",
        &[],
    ),
    counter(
        "warpgauge.console.lines.lost",
        "{line}",
        "Lines that standard output did not take.",
        &["reason"],
    ),
    counter("warpgauge.metric.points", "{point}", "Metric points by what became of them.", &["state"]),
    counter(
        "warpgauge.metric.points.dropped",
        "{point}",
        "Metric points given up. Counters and histograms are cumulative, so the next point makes up for them.",
        &["reason"],
    ),
    counter("warpgauge.metric.exports", "{request}", "Metric requests by outcome.", &["outcome"]),
    counter(
        "warpgauge.series.refused",
        "{update}",
        "Updates of series that are not held, by why: all places of the metric, or of all metrics together, are taken (limit), or the workload has its share (owner_limit): a third of what is free.",
        &["metric", "reason"],
    ),
    gauge("warpgauge.series", "{series}", "Series held, without the agent's own.", &["metric"]),
    counter(
        "warpgauge.restart.gaps",
        "{gap}",
        "Times the previous run ended without notice; what was only in its memory is lost.",
        &[],
    ),
    counter("warpgauge.process.cpu.time", "s", "Processor time of the agent.", &["cpu.mode"]),
    gauge("warpgauge.process.memory.usage", "By", "Resident memory of the agent.", &[]),
    counter(
        "warpgauge.worker.restarts",
        "{restart}",
        "Workers that ended and were replaced: crashed, hung (a call did not come back in time), memory (its budget was exceeded), protocol (it said what cannot be), start (it could not be started).",
        &["reason"],
    ),
    counter("warpgauge.worker.cpu.time", "s", "Processor time of the workers.", &["cpu.mode"]),
    gauge("warpgauge.worker.memory.usage", "By", "Resident memory of the worker, 0 without one.", &[]),
    gauge(
        "warpgauge.worker.abandoned",
        "{process}",
        "Workers that hang in the kernel and cannot be ended. While there is one, no new worker is started.",
        &[],
    ),
    counter(
        "warpgauge.worker.frames.dropped",
        "{report}",
        "Reports of the worker, or parts of them, that were not taken.",
        &["reason"],
    ),
    counter(
        "warpgauge.worker.notes",
        "{note}",
        "Words of the worker on sources that are up: a configured field that nobody knows (unknown_field), fields that spoil one another (conflict), a query that is too slow (slow_query), a call that is refused for good (refused). Each is in the log once.",
        &["reason"],
    ),
    gauge("warpgauge.control.up", "1", "Whether the control socket is open.", &[]),
    counter(
        "warpgauge.control.refused",
        "{client}",
        "Clients of the control socket that were refused.",
        &["reason"],
    ),
    counter(
        "warpgauge.samples.received",
        "{sample}",
        "Measured values that came from a source.",
        &["source"],
    ),
    counter(
        "warpgauge.samples.invalid",
        "{sample}",
        "Measured values that cannot be, left out: out of the field's range, not finite, a negative count, a text where a number belongs.",
        &["reason"],
    ),
    counter(
        "warpgauge.samples.dropped",
        "{sample}",
        "Measured values left out: for when they came (older than the one before, the same again, or the first of a computed rate after a gap), or because there are more devices or unknown fields than are kept.",
        &["reason"],
    ),
    counter(
        "warpgauge.xid.cross_check",
        "{error}",
        "Errors (XIDs) by who told of them: the kernel log and the probe on the driver's own function, or only one of them. `probe_only`: the driver may have been told not to print. Counted while that probe is at work.",
        &["result"],
    ),
    counter("warpgauge.worker.output.dropped", "{line}", "Lines of a worker that were left out.", &[]),
];

/// Attributes that are whole numbers; all others are texts.
pub const INTEGER_ATTRIBUTES: &[&str] = &[
    "cpu.logical_number",
    "gpu.engine.index",
    "gpu.error.sxid",
    "gpu.error.xid",
    "gpu.index",
    "gpu.minor",
    "gpu.numa.node",
    "gpu.nvlink.lane",
    "gpu.nvlink.link",
    "gpu.xid.code",
    "infiniband.port",
];

pub(super) const fn counter(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    attributes: &'static [&'static str],
) -> Metric {
    Metric { name, kind: Kind::Counter, unit, help, attributes }
}

pub(super) const fn gauge(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    attributes: &'static [&'static str],
) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help, attributes }
}

/// All metrics: [`CATALOG`], those of the probes, those of devices, those made from the table of fields.
pub fn all() -> &'static [Metric] {
    static ALL: LazyLock<Vec<Metric>> = LazyLock::new(|| {
        [
            CATALOG,
            driver_catalog::STATIC,
            workload_catalog::STATIC,
            probe_catalog::STATIC,
            kubelet_catalog::STATIC,
            device_catalog::STATIC,
            device_catalog::from_fields(),
        ]
        .concat()
    });
    &ALL
}

/// The metric of a name, with its place in the catalogue.
pub fn find(name: &str) -> Option<(usize, &'static Metric)> {
    static BY_NAME: LazyLock<HashMap<&str, usize>> =
        LazyLock::new(|| all().iter().enumerate().map(|(i, metric)| (metric.name, i)).collect());
    let index = *BY_NAME.get(name)?;
    all().get(index).map(|metric| (index, metric))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_declared_once_and_can_be_found() {
        for (index, metric) in all().iter().enumerate() {
            assert_eq!(find(metric.name), Some((index, metric)), "{} is declared twice", metric.name);
            assert!(metric.help.ends_with('.') && !metric.help.contains('|'), "{}", metric.name);
        }
        assert_eq!(find("warpgauge.nothing"), None);
    }

    /// Names given to `counter(` and `gauge(` in a source text, without its tests.
    fn names_used(text: &str) -> Vec<&str> {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let calls = ["counter(", "gauge("].into_iter().flat_map(|call| code.split(call).skip(1));
        let literals = calls.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
        literals.filter(|name| name.starts_with("warpgauge.")).collect()
    }

    fn check_folder(folder: &std::path::Path, seen: &mut usize) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                check_folder(&path, seen);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
                for name in names_used(&std::fs::read_to_string(&path).unwrap()) {
                    assert!(find(name).is_some(), "{}: {name} is not in the catalogue", path.display());
                    *seen += 1;
                }
            }
        }
    }

    #[test]
    fn every_number_the_agent_counts_is_in_the_catalogue() {
        let mut seen = 0;
        check_folder(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut seen);
        assert!(seen > 10, "{seen}");
    }
}
