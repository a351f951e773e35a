//! The metrics about what goes on inside the driver: the resource manager, locks, unified memory, and where the threads
//! of stalled processes are.
//!
//! In: nothing. Out: [`STATIC`], a part of the [catalogue](super::catalog).
//! What can go wrong: nothing.

use super::catalog::{Kind, Metric, counter, with_workload};

/// `gpu.driver.rm.calls`
pub const RM_CALLS: Metric = counter(
    "gpu.driver.rm.calls",
    "{call}",
    "Calls into the driver's resource manager that came back, by what was asked for (the command of a control, the class of an allocation, else the escape; in hexadecimal where it has no name) and what it answered (`NV_OK` is success; none where the call has no answer that is known).",
    with_workload!("gpu.driver.rm.operation", "gpu.driver.rm.status"),
);
/// `gpu.driver.rm.time`
pub const RM_TIME: Metric = counter(
    "gpu.driver.rm.time",
    "s",
    "Time spent inside the resource manager by the same calls; where the probe `rm` is attached as `ioctl_block`, that of the whole ioctl.",
    with_workload!("gpu.driver.rm.operation", "gpu.driver.rm.status"),
);
/// `gpu.driver.lock.wait.duration`
pub const LOCK_WAIT: Metric = Metric {
    name: "gpu.driver.lock.wait.duration",
    kind: Kind::ExponentialHistogram,
    unit: "s",
    help: "How long threads waited for the driver's locks, without waits below 10 µs. `rm_api` is the lock of the resource manager's interface; the others are numbered as they appear, and beyond the 64th they are `other`.",
    attributes: with_workload!("gpu.driver.lock.name", "gpu.driver.lock.mode"),
};
/// `gpu.driver.uvm.service.duration`
pub const UVM_SERVICE: Metric = Metric {
    name: "gpu.driver.uvm.service.duration",
    kind: Kind::ExponentialHistogram,
    unit: "s",
    help: "How long it took to serve batches of page faults of GPUs on managed memory. Done by threads of the kernel, so it is the node's and nobody's own.",
    attributes: &[],
};
/// `gpu.driver.uvm.eviction.duration`
pub const UVM_EVICTION: Metric = Metric {
    name: "gpu.driver.uvm.eviction.duration",
    kind: Kind::ExponentialHistogram,
    unit: "s",
    help: "How long it took to move pages of managed memory out of a GPU's memory: there is more of it than fits.",
    attributes: &[],
};
/// `gpu.process.off_cpu.time`
pub const OFF_CPU: Metric = counter(
    "gpu.process.off_cpu.time",
    "s",
    "Time that threads did not run, by why they left the processor, until they were woken. Measured only while the process is a stall's victim, so it is not all of the time.",
    with_workload!("gpu.process.off_cpu.reason"),
);
/// `gpu.process.run_queue.time`
pub const RUN_QUEUE: Metric = counter(
    "gpu.process.run_queue.time",
    "s",
    "Time that threads were ready to run and waited for a processor; measured as above.",
    with_workload!(),
);
/// All of them.
pub const STATIC: &[Metric] = &[RM_CALLS, RM_TIME, LOCK_WAIT, UVM_SERVICE, UVM_EVICTION, OFF_CPU, RUN_QUEUE];
