//! The metrics about what the kubelet tells, and about what could be put together and what not.
//!
//! In: nothing. Out: [`STATIC`], a part of the [catalogue](super::catalog).
//! What can go wrong: nothing.

use super::catalog::{Metric, counter, gauge};

/// All of them.
pub const STATIC: &[Metric] = &[
    gauge(
        "warpgauge.kubelet.age",
        "s",
        "Time since the kubelet's last good answer about who was given which devices. It stays below the interval of 15 s while all is well; when it grows, what is known of pods is that old.",
        &[],
    ),
    counter("warpgauge.kubelet.calls", "{call}", "Questions to the kubelet.", &["call"]),
    counter(
        "warpgauge.kubelet.failures",
        "{call}",
        "Questions to the kubelet that gave no answer: its socket is gone (no_socket), may not be opened (not_permitted) or nobody listens (refused); late (slow); the connection broke (broken); not the protocol or not the message (garbage), or too long (too_large); a kubelet without the service (not_served); an error of the kubelet's (failed).",
        &["reason"],
    ),
    gauge("warpgauge.kubelet.pods", "{pod}", "Pods in the kubelet's last good answer.", &[]),
    gauge(
        "warpgauge.kubelet.devices",
        "{device}",
        "Ids of NVIDIA's devices (a shared device has one for each share) in the kubelet's last good answer: given to containers, and those that could be given by device plugins (allocatable).",
        &["state"],
    ),
    gauge(
        "warpgauge.kubelet.left_out",
        "{entry}",
        "Entries of the kubelet's last good answer that were left out: pods longer than any real one (too_long) or with names that cannot be (bad_name), device ids above the limit (too_many).",
        &["reason"],
    ),
    gauge(
        "warpgauge.open_nodes.processes",
        "{process}",
        "Processes that have device nodes of the driver open, as of the last look at them.",
        &[],
    ),
    counter(
        "warpgauge.mapping.failures",
        "{failure}",
        "What could not be put to a device or its owner, by stage. `allocation`: an id of the kubelet names no device of this node (`unknown_device`, again each minute) or has no known form (`malformed_id`); a process runs on a device while its pod was given others (`mismatch`) or none (`no_allocation`). `job_mapping`: a file of the job mapping directory names no device (`unknown_device`) or cannot be read (`unreadable`), or a line is no job id (`malformed_job`). `names`: a pod or a container whose processes were met, or a pod that was given devices, has had no name (no uid) for 10 s, since the kubelet's log links do not tell it (`no_log_link`) or /var/log/pods and /var/log/containers cannot be read (`unreadable`); once a workload. `open_nodes`: a process may not be looked at for the device nodes that it has open (`not_permitted`: it takes CAP_SYS_PTRACE) or cannot be (`unreadable`), or has more than are looked at (`too_many`).",
        &["stage", "reason"],
    ),
];
