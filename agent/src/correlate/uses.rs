//! Which process uses which device, and in which role.
//!
//! In: `uses`, roles, `process` and `exit` signals. Out: the one device of a process, and whether it may be a victim.
//! What can go wrong: a process may use several devices; then a call cannot be put to one of them by this alone. A
//! process that has ended is remembered for a while: the driver closes its files after that. That a process only watches
//! is a guess from what it has not done so far: one that hangs on its way to computing is believed, with less confidence.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::{Call, CallKind, Confidence, MonoNs, Pid, ProcessRole, Signal};
use crate::telemetry::{Counter, Telemetry};

/// Uses in force now.
#[derive(Debug)]
pub struct UseTable {
    processes: BTreeMap<Pid, Known>,
    refused: Counter,
}

/// What is known of a process.
#[derive(Debug, Default)]
struct Known {
    devices: BTreeSet<String>,
    standing: Standing,
    ended: Option<MonoNs>,
}

/// Whether a process may be a victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    /// It may, for all that is known.
    #[default]
    Victim,
    /// It asks the driver, and has not allocated anything that computes *so far*: probably a monitor.
    Presumed,
    /// It is a monitor, or this agent.
    Bystander,
}

impl UseTable {
    /// Most processes kept; beyond it new ones are not learned.
    const PROCESSES_MAX: usize = 16_384;
    /// Most devices kept of one process: more than any node has.
    const DEVICES_MAX: usize = 256;
    /// How long a process that has ended is remembered.
    const REMEMBERED: Duration = Duration::from_secs(60);

    /// No uses; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "uses")]);
        Self { processes: BTreeMap::new(), refused }
    }

    /// Learns from a signal.
    pub fn push(&mut self, signal: &Signal) {
        match signal {
            Signal::Uses { uses, .. } if uses.end => {
                if let Some(known) = self.processes.get_mut(&uses.pid) {
                    known.devices.remove(&uses.hw_id);
                }
            }
            Signal::Uses { uses, .. } => {
                if let Some(known) = self.known(uses.pid) {
                    if known.devices.len() < Self::DEVICES_MAX {
                        known.devices.insert(uses.hw_id.clone());
                    }
                    let works = uses.role == "workload";
                    known.standing = if works { Standing::Victim } else { Standing::Bystander };
                }
            }
            Signal::Role { pid, role, .. } => {
                if let Some(known) = self.known(*pid) {
                    known.standing = match role {
                        ProcessRole::Workload => Standing::Victim,
                        ProcessRole::Agent => Standing::Bystander,
                        // who is known to use a device has said more by that than by its silence
                        ProcessRole::Monitor if known.devices.is_empty() => Standing::Presumed,
                        ProcessRole::Monitor => known.standing,
                    };
                }
            }
            // another program: that the former one has allocated nothing says nothing of it
            Signal::Process { pid, process: Some(_), .. } => {
                if let Some(known) = self.processes.get_mut(pid)
                    && known.standing == Standing::Presumed
                {
                    known.standing = Standing::Victim;
                }
            }
            Signal::Exit { at, pid } => {
                if let Some(known) = self.processes.get_mut(pid) {
                    known.ended = Some(*at);
                }
            }
            Signal::Tick { at } => {
                let age = |known: &Known| known.ended.and_then(|ended| at.since(ended)).unwrap_or_default();
                self.processes.retain(|_, known| age(known) < Self::REMEMBERED);
            }
            Signal::Gpu { .. }
            | Signal::Driver { .. }
            | Signal::GpuState { .. }
            | Signal::Samples { .. }
            | Signal::Processes { .. }
            | Signal::Health { .. }
            | Signal::Process { process: None, .. }
            | Signal::Call { .. }
            | Signal::Thread { .. }
            | Signal::CallStats { .. }
            | Signal::RmCalls { .. }
            | Signal::LockWaits { .. }
            | Signal::UvmWork { .. }
            | Signal::Scheduling { .. }
            | Signal::LockHolders { .. }
            | Signal::XidReport { .. }
            | Signal::VendorCalls { .. }
            | Signal::DriverLog { .. }
            | Signal::Allocation { .. }
            | Signal::PodDevices { .. }
            | Signal::JobDevices { .. }
            | Signal::Source { .. }
            | Signal::End { .. } => {}
        }
    }

    /// The process; what was known of an earlier one with its number is forgotten.
    fn known(&mut self, pid: Pid) -> Option<&mut Known> {
        if self.processes.len() >= Self::PROCESSES_MAX && !self.processes.contains_key(&pid) {
            self.refused.add(1);
            return None;
        }
        let known = self.processes.entry(pid).or_default();
        if known.ended.is_some() {
            *known = Known::default();
        }
        Some(known)
    }

    /// The device of a process that uses exactly one.
    pub fn only_device(&self, pid: Pid) -> Option<&str> {
        let devices = &self.processes.get(&pid)?.devices;
        devices.first().filter(|_| devices.len() == 1).map(String::as_str)
    }

    /// How sure it is that the caller of this call is somebody's workload; `None`: it is a monitor or this agent, which
    /// is never a victim. One that is only presumed to be a monitor is believed where no monitor spends its time.
    pub fn as_victim(&self, call: &Call) -> Option<Confidence> {
        let standing = self.processes.get(&call.pid).map(|known| known.standing).unwrap_or_default();
        match standing {
            Standing::Victim => Some(Confidence::High),
            Standing::Presumed => is_on_the_way_to_computing(call).then_some(Confidence::Low),
            Standing::Bystander => None,
        }
    }
}

/// Whether a process that only watches has no business there: opens, allocations of the resource manager, and all of
/// unified memory. What a monitor does over and over (`RM_CONTROL`, waits for its locks, `poll`) is not among it.
fn is_on_the_way_to_computing(call: &Call) -> bool {
    /// `NV_ESC_RM_ALLOC`.
    const ALLOC: u32 = 0x2b;
    let of = |driver: &str| call.driver.as_deref() == Some(driver);
    // behind the wrapper for large blocks only the class tells
    let allocates = || of("nvidia") && call.kind == CallKind::Ioctl && call.op & 0xff == ALLOC;
    call.kind == CallKind::Open
        || of("uvm")
        || call.rm.is_some_and(|asked| asked.class.is_some())
        || allocates()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::call::RmCall;
    use crate::model::signal::Uses;
    use crate::model::{Edge, Process, Tid, Workload};

    const PID: Pid = Pid(7);

    fn uses(hw_id: &str, role: &str, end: bool) -> Signal {
        let (hw_id, evidence, role) = (hw_id.into(), "nvml".into(), role.into());
        Signal::Uses { at: MonoNs(0), uses: Uses { pid: PID, hw_id, evidence, role, end } }
    }

    fn role(role: ProcessRole) -> Signal {
        Signal::Role { at: MonoNs(0), pid: PID, role }
    }

    fn call(kind: CallKind, driver: &str, op: u32, rm: Option<RmCall>) -> Call {
        Call {
            pid: PID,
            tid: Tid(8),
            kind,
            op,
            driver: Some(driver.to_owned()),
            device: None,
            node: None,
            function: None,
            rm,
            lock: None,
            edge: Edge::Enter,
            caller: None,
        }
    }

    /// What is said after these signals; of a call that every monitor makes, whether it has a victim.
    #[track_caller]
    fn check(signals: &[Signal], (device, is_bystander): (Option<&str>, bool)) {
        let mut table = UseTable::new(&Telemetry::default());
        signals.iter().for_each(|signal| table.push(signal));
        let victim = table.as_victim(&call(CallKind::Ioctl, "nvidia", 0xc020_462a, None));
        let want = (!is_bystander).then_some(Confidence::High);
        assert_eq!((table.only_device(PID), victim), (device, want), "{signals:?}");
    }

    #[test]
    fn the_latest_word_on_a_process_counts() {
        check(&[uses("GPU-1", "workload", false)], (Some("GPU-1"), false));
        check(&[uses("GPU-1", "monitor", false)], (Some("GPU-1"), true));
        check(&[uses("GPU-1", "workload", false), uses("GPU-2", "workload", false)], (None, false));
        check(&[uses("GPU-1", "workload", false), uses("GPU-1", "workload", true)], (None, false));
        check(&[role(ProcessRole::Monitor)], (None, true));
        check(&[role(ProcessRole::Agent)], (None, true));
        check(&[role(ProcessRole::Monitor), role(ProcessRole::Workload)], (None, false));
        // it has been seen at work
        let used = uses("GPU-1", "workload", false);
        check(&[used, role(ProcessRole::Monitor)], (Some("GPU-1"), false));
    }

    #[test]
    fn another_program_is_not_presumed_to_be_what_the_former_one_was() {
        let process =
            Process { start: None, comm: None, cgroup_id: None, cgroup: None, workload: Workload::default() };
        let exec = || Signal::Process { at: MonoNs(1), pid: PID, process: Some(Box::new(process.clone())) };
        check(&[role(ProcessRole::Monitor), exec()], (None, false));
        check(&[role(ProcessRole::Agent), exec()], (None, true));
        check(&[uses("GPU-1", "monitor", false), exec()], (Some("GPU-1"), true));
    }

    #[test]
    fn a_presumed_monitor_is_believed_where_no_monitor_spends_its_time() {
        let victim = |standing: &Signal, call: &Call| {
            let mut table = UseTable::new(&Telemetry::default());
            table.push(standing);
            table.as_victim(call)
        };
        let control = RmCall { cmd: Some(0x2080_014a), class: None };
        let class = RmCall { cmd: None, class: Some(0x80) };
        for (call, want) in [
            (call(CallKind::Ioctl, "nvidia", 0xc030_462b, None), Some(Confidence::Low)),
            (call(CallKind::Ioctl, "nvidia", 0xc010_46d3, Some(class)), Some(Confidence::Low)),
            (call(CallKind::Driver, "nvidia", 0, Some(class)), Some(Confidence::Low)),
            (call(CallKind::Open, "nvidia", 0, None), Some(Confidence::Low)),
            (call(CallKind::Ioctl, "uvm", 0x3000_0001, None), Some(Confidence::Low)),
            (call(CallKind::Fault, "uvm", 0, None), Some(Confidence::Low)),
            // 43 is another command there
            (call(CallKind::Ioctl, "other", 0x2b, None), None),
            (call(CallKind::Ioctl, "nvidia", 0xc020_462a, Some(control)), None),
            (call(CallKind::Lock, "nvidia", 0, None), None),
            (call(CallKind::Poll, "nvidia", 0, None), None),
            (call(CallKind::Close, "nvidia", 0, None), None),
        ] {
            assert_eq!(victim(&role(ProcessRole::Monitor), &call), want, "{call:?}");
            assert_eq!(victim(&role(ProcessRole::Agent), &call), None, "{call:?}");
            assert_eq!(victim(&uses("GPU-1", "monitor", false), &call), None, "{call:?}");
            assert_eq!(victim(&role(ProcessRole::Workload), &call), Some(Confidence::High), "{call:?}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_remembered_while_its_files_are_closed() {
        let (exit, tick) = (Signal::Exit { at: MonoNs(0), pid: PID }, |s: u64| Signal::Tick {
            at: MonoNs(s * 1_000_000_000),
        });
        let used = || uses("GPU-1", "workload", false);
        check(&[used(), exit.clone(), tick(59)], (Some("GPU-1"), false));
        check(&[used(), exit.clone(), tick(60)], (None, false));
        check(&[used(), exit, uses("GPU-2", "monitor", false)], (Some("GPU-2"), true)); // another one
    }
}
