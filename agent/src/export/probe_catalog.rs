//! The metrics about the driver probes themselves: how they are attached, what they lose and what they cost.
//!
//! In: nothing. Out: [`STATIC`], a part of the [catalogue](super::catalog).
//! What can go wrong: nothing.

use super::catalog::{Metric, counter, gauge};

/// All of them.
pub const STATIC: &[Metric] = &[
    gauge(
        "warpgauge.probe.info",
        "1",
        "1 for the way in which each probe is attached.",
        &["probe", "tactic"],
    ),
    gauge(
        "warpgauge.probe.refused",
        "1",
        "1 for each better way to attach that this machine refused.",
        &["probe", "tactic", "reason"],
    ),
    counter("warpgauge.probe.lost", "{event}", "Events lost inside the kernel programs.", &["reason"]),
    counter(
        "warpgauge.probe.lost_returns",
        "{call}",
        "Driver calls whose return was not seen; their length is not in the histogram.",
        &[],
    ),
    counter(
        "warpgauge.probe.recursion_misses",
        "{run}",
        "Runs of kernel programs that the kernel left out because the CPU was in another one; from 5.12 on.",
        &[],
    ),
    gauge("warpgauge.probe.entries", "{entry}", "Entries in use of a kernel map.", &["map"]),
    gauge("warpgauge.probe.map.bytes", "By", "Kernel memory of all maps together.", &[]),
    counter(
        "warpgauge.probe.missed",
        "{hit}",
        "Hits of the driver's functions that the kernel did not pass on to the probe: more calls were under way at once than it keeps returns for.",
        &["probe"],
    ),
    gauge(
        "warpgauge.probe.cpu.utilization",
        "1",
        "Processor time of each probe's kernel programs per time, 1 being one CPU; measured for one second in 30. What several probes share is divided by how often their calls begin; `exit` is what all need. Absent where the kernel does not count for the agent (CAP_SYS_ADMIN).",
        &["probe"],
    ),
    gauge(
        "warpgauge.probe.run.rate",
        "{run}/s",
        "Runs of each probe's kernel programs per second, measured with `warpgauge.probe.cpu.utilization`.",
        &["probe"],
    ),
    gauge(
        "warpgauge.probe.shed",
        "1",
        "1 while the probe is given up because all together cost more than `probes.budget`.",
        &["probe"],
    ),
    gauge(
        "warpgauge.scheduler.armed",
        "{process}",
        "Processes whose threads are followed by the scheduler's programs now, since they are victims of a stall.",
        &[],
    ),
];
