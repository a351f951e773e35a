//! What ends a use: its own end, a list, another program, the end of the process, another process under the number.

use super::*;
use crate::model::{Caller, CgroupId};

const NVML: UseEvidence = UseEvidence::Nvml;

fn used() -> Signal {
    uses(NVML, "GPU-0", false)
}

fn tick(second: u64) -> Signal {
    Signal::Tick { at: at(second) }
}

fn exit() -> Signal {
    Signal::Exit { at: at(10), pid: PID }
}

#[test]
fn a_list_ends_what_it_does_not_name() {
    let listed = |hw_id: &str, pids: &[u32]| list(hw_id, pids, GpuContext::Compute);
    check(&[listed("GPU-0", &[7, 8])], &["GPU-0 nvml"]);
    check(&[listed("GPU-0", &[7]), listed("GPU-0", &[8])], &[]);
    check(&[listed("GPU-0", &[7]), listed("GPU-2", &[8])], &["GPU-0 nvml"]);
    check(&[used(), listed("GPU-0", &[])], &[]);
    check(&[used(), nodes(&[minor(2)]), listed("GPU-0", &[])], &["GPU-2 open_fd"]);
    let uvm = uses(UseEvidence::UvmChannel, "GPU-0", false);
    check(&[used(), uvm, listed("GPU-0", &[])], &["GPU-0 uvm_channel"]);
}

#[test]
fn evidence_is_in_force_since_it_began() {
    let mut table = node();
    let later = Signal::Uses {
        at: at(9),
        uses: Uses { pid: PID, hw_id: "GPU-0".into(), evidence: NVML, role: "workload".into(), end: false },
    };
    let since = |table: &UseTable| table.since(PID, "GPU-0", NVML);
    for signal in [used(), later.clone()] {
        table.push(&signal);
        assert_eq!(since(&table), Some(at(1)), "said again");
    }
    table.push(&uses(NVML, "GPU-0", true));
    assert_eq!(since(&table), None);
    table.push(&later);
    assert_eq!(since(&table), Some(at(9)));
}

#[test]
fn another_program_uses_nothing_yet() {
    let exec = || Signal::Exec { at: at(5), pid: PID };
    let uvm = || uses(UseEvidence::UvmChannel, "GPU-2", false);
    check(&[used(), uvm(), nodes(&[minor(1)]), exec()], &[]);
    check(&[exec(), used()], &["GPU-0 nvml"]);
    // to be met is not to change
    check(&[used(), sighting(Some(START), "python3")], &["GPU-0 nvml"]);
    let mut table = node();
    [list("GPU-0", &[7], GpuContext::Compute), exec()].iter().for_each(|signal| table.push(signal));
    assert_eq!((table.rows, table.listed.len()), (0, 0));
    table.push(&list("GPU-0", &[7], GpuContext::Compute));
    assert_eq!(of(&table, PID), ["GPU-0 nvml"], "the next list says whether it has a context");
}

#[test]
fn a_process_that_has_ended_is_remembered_while_its_files_are_closed() {
    check(&[used(), exit(), tick(69)], &["GPU-0 nvml"]);
    check(&[used(), exit(), tick(70)], &[]);
    check(&[used(), exit(), Signal::Exit { at: at(60), pid: PID }, tick(70)], &[]); // told twice
    check(&[used(), exit(), list("GPU-0", &[7], GpuContext::Compute), tick(69)], &["GPU-0 nvml"]);
    check(&[used(), exit(), list("GPU-0", &[7], GpuContext::Compute), tick(70)], &[]); // still listed
    let looked_at_before = || [used(), nodes(&[minor(1)]), exit(), nodes(&[minor(2)])].to_vec();
    check(&looked_at_before(), &["GPU-0 nvml"]);
    check(&[looked_at_before(), vec![tick(70)]].concat(), &[]);
    check(&[used(), exit(), uses(NVML, "GPU-2", false)], &["GPU-2 nvml"]); // another process
    let mut table = node();
    [used(), exit(), tick(70)].iter().for_each(|signal| table.push(signal));
    assert!(table.processes.is_empty() && table.listed.is_empty() && table.rows == 0);
}

#[test]
fn another_process_under_the_number_has_nothing_of_the_former_one() {
    let (earlier, later) = (StartTicks(99), StartTicks(101));
    let nodes_of = |start, minor_number| open(start, &[minor(minor_number)], None);
    check(&[nodes(&[minor(1)]), used(), nodes_of(later, 2)], &["GPU-2 open_fd"]);
    check(&[nodes(&[minor(1)]), nodes_of(earlier, 2)], &["GPU-0 open_fd"]); // late news
    check(&[nodes(&[minor(1)]), used(), sighting(Some(later), "x")], &[]);
    check(&[nodes(&[minor(1)]), used(), sighting(Some(START), "x")], &["GPU-0 nvml"]);
    let calls = |start| {
        let caller = Caller { comm: "x".into(), start, cgroup: CgroupId(1) };
        Signal::Call { at: at(6), call: Box::new(Call { caller: Some(caller), ..call(PID) }) }
    };
    check(&[nodes(&[minor(1)]), calls(later)], &[]);
    check(&[used(), calls(START), calls(later)], &[]);
    check(&[used(), calls(START)], &["GPU-0 nvml"]);
    check(&[nodes(&[minor(1)]), calls(START)], &["GPU-0 open_fd"]);
    check(&[nodes(&[minor(1)]), calls(earlier)], &["GPU-0 open_fd"]);
}

#[test]
fn in_a_foreign_pid_namespace_nobody_uses_anything() {
    let namespace = |up| {
        let source = SourceState { name: "pid_namespace".into(), up, reason: None, late: None };
        Signal::Source { at: at(0), source }
    };
    let uvm = || uses(UseEvidence::UvmChannel, "GPU-0", false);
    let all = || vec![uvm(), list("GPU-0", &[7], GpuContext::Compute), nodes(&[minor(1)])];
    check(&[all(), vec![namespace(false)]].concat(), &[]);
    check(&[vec![namespace(false)], all()].concat(), &[]);
    check(&[vec![namespace(false), namespace(true)], all()].concat(), &["GPU-0 uvm_channel"]);
}
