//! What the driver's inside adds up to, booked into series: the resource manager, locks, unified memory, scheduling.
//!
//! In: attributed differences. Out: changed series. What can go wrong: series beyond the limit, refused and counted.

use std::sync::Arc;

use super::Snapshot;
use crate::export::driver_catalog;
use crate::export::series_key::Key;
use crate::export::whose::{Whose, process_of};
use crate::model::{
    Attributed, CgroupId, Fact, LockWaits, MonoNs, Pid, RmCalls, Scheduling, UvmWork, UvmWorkKind, rm,
};
use crate::telemetry::Attributes;

impl Snapshot {
    pub(super) fn rm_calls(&mut self, fact: &Attributed<Fact>, at: MonoNs, calls: &RmCalls) {
        let whose = self.owner(fact, calls.pid, Some(calls.cgroup), calls.last, at);
        if calls.calls == 0 {
            return;
        }
        let (operation, status) = (rm::operation(calls.escape, calls.code), calls.status.map(rm::status));
        let attributes = || {
            let mut attributes: Attributes = vec![("gpu.driver.rm.operation", operation.to_string())];
            attributes.extend(status.map(|status| ("gpu.driver.rm.status", status.to_string())));
            attributes.extend(whose.attributes());
            attributes
        };
        let key = Key::Rm(Arc::clone(&whose), operation, status);
        self.table.add(&driver_catalog::RM_CALLS, key.clone(), at, calls.calls, attributes);
        self.table.add_time(&driver_catalog::RM_TIME, key, at, calls.time, attributes);
    }

    pub(super) fn lock_waits(&mut self, fact: &Attributed<Fact>, at: MonoNs, waits: &LockWaits) {
        let whose = self.owner(fact, waits.pid, Some(waits.cgroup), waits.last, at);
        if waits.waits.count() == 0 {
            return;
        }
        let name = lock_name(&waits.lock);
        let key = Key::Lock(Arc::clone(&whose), name.into(), waits.mode);
        self.table.record(&driver_catalog::LOCK_WAIT, key, at, &waits.waits, || {
            let mut attributes: Attributes = vec![
                ("gpu.driver.lock.name", name.to_owned()),
                ("gpu.driver.lock.mode", waits.mode.name().to_owned()),
            ];
            attributes.extend(whose.attributes());
            attributes
        });
    }

    pub(super) fn uvm_work(&mut self, at: MonoNs, work: &UvmWork) {
        let metric = match work.kind {
            UvmWorkKind::Service => &driver_catalog::UVM_SERVICE,
            UvmWorkKind::Eviction => &driver_catalog::UVM_EVICTION,
        };
        self.table.record(metric, Key::Node, at, &work.latency, Attributes::new);
    }

    pub(super) fn scheduling(&mut self, fact: &Attributed<Fact>, at: MonoNs, scheduling: &Scheduling) {
        let whose = self.owner(fact, scheduling.pid, None, false, at);
        if scheduling.times == 0 {
            return;
        }
        let reason = scheduling.reason;
        let key = Key::OffCpu(Arc::clone(&whose), Some(reason));
        self.table.add_time(&driver_catalog::OFF_CPU, key, at, scheduling.waited, || {
            let mut attributes: Attributes = vec![("gpu.process.off_cpu.reason", reason.name().to_owned())];
            attributes.extend(whose.attributes());
            attributes
        });
        let key = Key::OffCpu(Arc::clone(&whose), None);
        self.table.add_time(&driver_catalog::RUN_QUEUE, key, at, scheduling.queued, || whose.attributes());
    }

    /// The workload of a process; it was heard of.
    fn owner(
        &mut self,
        fact: &Attributed<Fact>,
        pid: Pid,
        cgroup: Option<CgroupId>,
        last: bool,
        at: MonoNs,
    ) -> Arc<Whose> {
        let process = process_of(fact, pid).is();
        let whose = self.whose(process, cgroup);
        self.workloads.heard(&whose, pid, last, at);
        whose
    }
}

/// Locks come and go with the clients of the resource manager; their series must not.
fn lock_name(lock: &str) -> &str {
    const NUMBERED: u64 = 64;
    let number = lock.strip_prefix("lock-").and_then(|number| number.parse::<u64>().ok());
    if number.is_some_and(|number| number > NUMBERED) { "other" } else { lock }
}
