//! The metrics of what each workload has and uses.
//!
//! In: nothing. Out: [`STATIC`], a part of the [catalogue](super::catalog).
//! What can go wrong: nothing.

use super::catalog::{Kind, Metric, counter, gauge, with_workload};

/// `gpu.workload.memory.usage`
pub const MEMORY: Metric = Metric {
    name: "gpu.workload.memory.usage",
    kind: Kind::UpDownCounter,
    unit: "By",
    help: "Device memory that the workload's processes hold on the device, together, as NVML tells it.",
    attributes: with_workload!("hw.id"),
};
/// `gpu.workload.sm.utilization`
pub const SM: Metric = gauge(
    "gpu.workload.sm.utilization",
    "1",
    "Share of time in which kernels of the workload ran on the device: NVML's samples of its processes added up, 1 at most. On a MIG instance NVML has no such samples; `gpu.field.absent` says so.",
    with_workload!("hw.id"),
);
/// `gpu.workload.energy`
pub const ENERGY: Metric = counter(
    "gpu.workload.energy",
    "J",
    "The workload's part of the device's energy: between two readings of the device's energy counter, the increase times the workload's mean SM use (`gpu.workload.sm.utilization`) in that time; where the workloads' uses add up to more than 1, each is divided by their sum. The energy of the time in which no kernel ran, or in which it is not known whose did, is nobody's: the sum over all workloads is at most the increase of `hw.energy`. It is a share by time, no measurement: a kernel that draws little counts like one that draws much. Where the device has no energy counter, as MIG instances, `gpu.field.absent` says so.",
    with_workload!("hw.id"),
);
/// `gpu.workload.driver.time`
pub const DRIVER_TIME: Metric = counter(
    "gpu.workload.driver.time",
    "s",
    "Time that threads of the workload spent in finished system calls into the driver (`ioctl`, `open`, `close`, `mmap`, `poll`), added up over threads, so it may grow faster than time. It is the sum of the same calls in `gpu.driver.call.duration`; what is nested in them (the driver's own functions, locks) is not counted again. It names no device: most calls go through a node that all GPUs share.",
    with_workload!(),
);
/// All of them.
pub const STATIC: &[Metric] = &[MEMORY, SM, ENERGY, DRIVER_TIME];
