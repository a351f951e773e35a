//! What the driver's inside adds up to: facts in, points out.
//!
//! In: one fact of each kind. Out: name, attributes and value of what leaves.

use super::*;
use crate::model::{LockMode, LockWaits, OffCpuReason, RmCalls, Scheduling, UvmWork, UvmWorkKind};

fn latency(n: u32) -> LatencyDelta {
    let mut slots = [0; SLOTS];
    slots[20] = n;
    LatencyDelta { slots, sum_ns: u64::from(n) * 1_000_000, errors: 0 }
}

fn rm(code: u32, status: Option<u32>, calls: u64) -> Signal {
    let calls = RmCalls {
        pid: Pid(1),
        cgroup: CgroupId(1),
        escape: 0x2a,
        code,
        status,
        calls,
        time: Duration::from_millis(calls),
        last: false,
    };
    Signal::RmCalls { at: mono(1), calls: Box::new(calls) }
}

fn lock(name: &str, mode: LockMode) -> Signal {
    let (pid, cgroup, lock) = (Pid(1), CgroupId(1), name.to_owned());
    let waits = LockWaits { pid, cgroup, lock, mode, waits: latency(2), last: false };
    Signal::LockWaits { at: mono(1), waits: Box::new(waits) }
}

fn uvm(kind: UvmWorkKind) -> Signal {
    Signal::UvmWork { at: mono(1), work: Box::new(UvmWork { kind, latency: latency(3) }) }
}

fn off(reason: OffCpuReason) -> Signal {
    let (waited, queued) = (Duration::from_millis(70), Duration::from_millis(7));
    let scheduling = Scheduling { pid: Pid(1), reason, times: 4, waited, queued, last: false };
    Signal::Scheduling { at: mono(1), scheduling }
}

/// `name attributes = value` of all points that are not the agent's own, and the zeros before them.
fn points(signals: &[Signal]) -> (Vec<String>, Vec<String>) {
    let mut snapshot = snapshot(Limits::default());
    for signal in signals {
        snapshot.push(&of(Fact::Reading(signal.clone()), 1, "p"));
    }
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    let line = |point: &Point| {
        for (name, _) in point.attributes.iter() {
            assert!(point.metric.attributes.contains(name), "{}: {name}", point.metric.name);
        }
        let value = match &point.value {
            Value::Count(n) => n.to_string(),
            Value::Nanos(ns) => format!("{} ms", ns / 1_000_000),
            Value::Latency(latency) => format!("{} in {} ms", latency.count(), latency.sum_ns / 1_000_000),
            other => panic!("{other:?}"),
        };
        format!("{} {} = {value}", point.metric.name, attributes(point))
    };
    let own = |point: &&Point| point.metric.name.starts_with("gpu.");
    let zeros = batch.zeros.iter().map(|(_, zero)| zero).filter(own).map(line).collect();
    (batch.points.iter().filter(own).map(line).collect(), zeros)
}

const P: &str = "k8s.pod.uid=p container.id=c";

#[test]
fn calls_of_the_resource_manager_are_told_apart_by_operation_and_status() {
    let (points, zeros) = points(&[
        rm(0x2080_0110, Some(0), 5),
        rm(0x2080_0110, Some(0x0f), 1),
        rm(0x2080_0110, Some(0), 2),
        rm(0x1234, None, 1),
    ]);
    let named = "gpu.driver.rm.operation=NV2080_CTRL_CMD_GPU_GET_NAME_STRING gpu.driver.rm.status";
    assert_eq!(
        points,
        [
            format!("gpu.driver.rm.calls {named}=NV_OK {P} = 7"),
            format!("gpu.driver.rm.calls {named}=NV_ERR_GPU_IS_LOST {P} = 1"),
            format!("gpu.driver.rm.calls gpu.driver.rm.operation=0x1234 {P} = 1"),
            format!("gpu.driver.rm.time {named}=NV_OK {P} = 7 ms"),
            format!("gpu.driver.rm.time {named}=NV_ERR_GPU_IS_LOST {P} = 1 ms"),
            format!("gpu.driver.rm.time gpu.driver.rm.operation=0x1234 {P} = 1 ms"),
        ]
    );
    let lost = |name| format!("gpu.driver.rm.{name} {named}=NV_ERR_GPU_IS_LOST {P} = ");
    assert_eq!(zeros, [lost("calls") + "0", lost("time") + "0 ms"], "the first failure is an increase");
}

#[test]
fn locks_unified_memory_and_scheduling() {
    let (points, _) = points(&[
        lock("rm_api", LockMode::Read),
        lock("lock-65", LockMode::Mutex),
        lock("lock-66", LockMode::Mutex),
        uvm(UvmWorkKind::Service),
        uvm(UvmWorkKind::Eviction),
        off(OffCpuReason::DriverLock),
        off(OffCpuReason::Preempted),
    ]);
    let wait = |name, mode| {
        format!("gpu.driver.lock.wait.duration gpu.driver.lock.name={name} gpu.driver.lock.mode={mode} {P}")
    };
    assert_eq!(
        points,
        [
            wait("rm_api", "read") + " = 2 in 2 ms",
            wait("other", "mutex") + " = 4 in 4 ms",
            "gpu.driver.uvm.service.duration  = 3 in 3 ms".to_owned(),
            "gpu.driver.uvm.eviction.duration  = 3 in 3 ms".to_owned(),
            format!("gpu.process.off_cpu.time gpu.process.off_cpu.reason=driver_lock {P} = 70 ms"),
            format!("gpu.process.off_cpu.time gpu.process.off_cpu.reason=preempted {P} = 70 ms"),
            format!("gpu.process.run_queue.time {P} = 14 ms"),
        ]
    );
}
