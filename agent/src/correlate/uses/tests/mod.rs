//! Who uses what, by each rank and in each order; who is no victim.
//!
//! In: signals made up. Out: devices by evidence, as `GPU-1 nvml`. What can go wrong is what is tested.

mod any_order;
mod ends;
mod roles;
mod seen;

use super::*;
use crate::correlate::allocations::fixtures::{gpu, mig};
use crate::model::open_nodes::{OpenNode, Visible, VisibleDevice, VisibleList};
use crate::model::signal::{GpuContext, GpuProcess, SourceState};
use crate::model::{CallKind, Gpu, ProcessRole, Tid, Workload};

const PID: Pid = Pid(7);
const START: StartTicks = StartTicks(100);

fn at(second: u64) -> MonoNs {
    MonoNs(second * 1_000_000_000)
}

/// Devices of a node: `GPU-1` is parted.
fn devices() -> [Gpu; 6] {
    [
        gpu("GPU-0", 0, Some(1)), // minors are in the order of probing, not in that of addresses
        gpu("GPU-1", 1, Some(0)),
        gpu("GPU-2", 2, Some(2)),
        mig("MIG-1", "GPU-1", (0, 7, 0), Some(0), "1g.10gb"),
        mig("MIG-2", "GPU-1", (1, 3, 0), Some(2), "1c.2g.20gb"),
        mig("MIG-3", "GPU-1", (2, 3, 1), Some(2), "1c.2g.20gb"),
    ]
}

fn exists(gpu: Gpu) -> Signal {
    Signal::Gpu { at: at(0), gpu }
}

fn node() -> UseTable {
    let mut table = UseTable::new(&Telemetry::default());
    devices().into_iter().for_each(|gpu| table.push(&exists(gpu)));
    table.push(&Signal::Tick { at: at(0) });
    table
}

fn uses(evidence: UseEvidence, hw_id: &str, end: bool) -> Signal {
    let role = "workload".to_owned();
    Signal::Uses { at: at(1), uses: Uses { pid: PID, hw_id: hw_id.into(), evidence, role, end } }
}

fn list(hw_id: &str, pids: &[u32], context: GpuContext) -> Signal {
    let one = |pid: &u32| GpuProcess { pid: Pid(*pid), memory: None, sm_utilization: None, context };
    let processes = GpuProcesses { hw_id: hw_id.into(), processes: pids.iter().map(one).collect() };
    Signal::Processes { at: at(2), processes: Box::new(processes) }
}

fn open(start: StartTicks, nodes: &[OpenNode], visible: Option<Visible>) -> Signal {
    let open = OpenNodes { pid: PID, start, nodes: nodes.to_vec(), visible };
    Signal::OpenNodes { at: at(3), open: Box::new(open) }
}

fn nodes(nodes: &[OpenNode]) -> Signal {
    open(START, nodes, None)
}

fn minor(minor: u32) -> OpenNode {
    OpenNode::Gpu { minor }
}

fn part(gpu: u32, instance: u32, compute: Option<u32>) -> OpenNode {
    OpenNode::Instance { gpu, instance, compute }
}

fn sighting(start: Option<StartTicks>, comm: &str) -> Signal {
    let (comm, workload) = (Some(comm.to_owned()), Workload::default());
    let process = Sighting { start, comm, cgroup_id: None, cgroup: None, workload };
    Signal::Process { at: at(4), pid: PID, process: Some(Box::new(process)) }
}

fn call(pid: Pid) -> Call {
    Call {
        pid,
        tid: Tid(8),
        kind: CallKind::Ioctl,
        op: 0xc020_462a,
        driver: Some("nvidia".to_owned()),
        device: None,
        node: None,
        function: None,
        rm: None,
        lock: None,
        edge: Edge::Enter,
        caller: None,
    }
}

fn of(table: &UseTable, pid: Pid) -> Vec<String> {
    table.devices(pid).map(|(hw_id, evidence)| format!("{hw_id} {}", evidence.name())).collect()
}

/// The devices of the process after these signals, on a node with all devices.
#[track_caller]
fn check(signals: &[Signal], want: &[&str]) {
    let mut table = node();
    signals.iter().for_each(|signal| table.push(signal));
    assert_eq!(of(&table, PID), want, "{signals:#?}");
    let only = (want.len() == 1).then(|| want[0].split(' ').next().unwrap());
    assert_eq!(table.only_device(PID), only);
}

#[test]
fn the_best_evidence_decides_whatever_came_first() {
    use UseEvidence::{Allocation, CapFd, Env, Nvml, OpenFd, UvmChannel};
    let best = [UvmChannel, Nvml, CapFd, Allocation, OpenFd, Env];
    for (rank, evidence) in best.into_iter().enumerate() {
        let mut signals = vec![uses(evidence, "GPU-0", false)];
        for worse in best.into_iter().skip(rank + 1) {
            signals.push(uses(worse, "GPU-2", false));
        }
        let want = format!("GPU-0 {}", evidence.name());
        check(&signals, &[&want]);
        signals.reverse();
        check(&signals, &[&want]);
        // two of the same rank are two devices
        signals.push(uses(evidence, "GPU-2", false));
        check(&signals, &[&want, &format!("GPU-2 {}", evidence.name())]);
        // and what ends leaves the next best in force
        signals.extend([uses(evidence, "GPU-0", true), uses(evidence, "GPU-2", true)]);
        let next = best.get(rank + 1).map(|next| format!("GPU-2 {}", next.name()));
        check(&signals, &next.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn nodes_are_devices_by_their_minors() {
    check(&[nodes(&[minor(1)])], &["GPU-0 open_fd"]);
    check(&[nodes(&[minor(0), minor(1), minor(9)])], &["GPU-0 open_fd", "GPU-1 open_fd"]);
    check(&[nodes(&[minor(1)]), nodes(&[minor(2)])], &["GPU-2 open_fd"]);
    check(&[nodes(&[minor(1)]), nodes(&[])], &[]);
    // the capability names the very instance, the node of its GPU only that
    let cap = [minor(0), part(0, 3, None), part(0, 3, Some(1))];
    check(&[nodes(&cap)], &["MIG-3 cap_fd"]);
    check(&[nodes(&[part(0, 3, None)])], &["MIG-2 cap_fd", "MIG-3 cap_fd"]);
    check(&[nodes(&[part(0, 7, None), part(0, 3, Some(0))])], &["MIG-1 cap_fd", "MIG-2 cap_fd"]);
    check(&[nodes(&[part(1, 7, None), part(0, 9, None)])], &[]);
}

#[test]
fn a_device_that_is_known_later_is_found_later() {
    let mut table = UseTable::new(&Telemetry::default());
    table.push(&nodes(&[minor(0), part(0, 7, Some(0))]));
    assert_eq!(of(&table, PID), [] as [&str; 0]);
    let [_, board, _, instance, ..] = devices();
    table.push(&exists(board));
    table.push(&Signal::Tick { at: at(4) });
    assert_eq!(of(&table, PID), ["GPU-1 open_fd"]);
    table.push(&exists(instance));
    table.push(&Signal::Tick { at: at(5) });
    assert_eq!(of(&table, PID), ["MIG-1 cap_fd"]);
    assert_eq!(table.since(PID, "MIG-1", UseEvidence::CapFd), Some(at(3)), "since the node was open");
    let gone = |hw_id: &str| Signal::GpuState { at: at(6), hw_id: hw_id.into(), state: DeviceState::Gone };
    table.push(&gone("MIG-1"));
    table.push(&Signal::Tick { at: at(6) });
    assert_eq!(of(&table, PID), ["GPU-1 open_fd"], "the instance was taken apart");
}

#[test]
fn a_mig_device_says_more_exactly_which_part_of_a_gpu_it_is() {
    let uvm = || uses(UseEvidence::UvmChannel, "GPU-1", false);
    check(&[uvm(), list("MIG-2", &[7], GpuContext::Compute)], &["MIG-2 nvml"]);
    check(&[uvm(), nodes(&[minor(0), part(0, 7, Some(0))])], &["MIG-1 cap_fd"]);
    check(&[uvm(), nodes(&[part(0, 7, Some(0))]), list("MIG-2", &[7], GpuContext::Compute)], &["MIG-2 nvml"]);
    // of another GPU it says nothing
    let other = uses(UseEvidence::UvmChannel, "GPU-0", false);
    check(&[other, list("MIG-2", &[7], GpuContext::Compute)], &["GPU-0 uvm_channel"]);
}
