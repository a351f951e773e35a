//! Who may be a victim; several workloads on one device.

use super::*;
use crate::model::call::RmCall;

fn told(hw_id: &str, role: &str) -> Signal {
    let (evidence, role) = (UseEvidence::Nvml, role.to_owned());
    Signal::Uses { at: at(0), uses: Uses { pid: PID, hw_id: hw_id.into(), evidence, role, end: false } }
}

fn role(role: ProcessRole) -> Signal {
    Signal::Role { at: at(0), pid: PID, role }
}

/// What is said after these signals; of a call that every monitor makes, whether it has a victim.
#[track_caller]
fn check_role(signals: &[Signal], (device, is_bystander): (Option<&str>, bool)) {
    let mut table = node();
    signals.iter().for_each(|signal| table.push(signal));
    let want = (!is_bystander).then_some(Confidence::High);
    assert_eq!((table.only_device(PID), table.as_victim(&call(PID))), (device, want), "{signals:?}");
}

#[test]
fn the_latest_word_on_a_process_counts() {
    check_role(&[told("GPU-0", "workload")], (Some("GPU-0"), false));
    check_role(&[told("GPU-0", "monitor")], (Some("GPU-0"), true));
    check_role(&[told("GPU-0", "workload"), told("GPU-2", "workload")], (None, false));
    check_role(&[role(ProcessRole::Monitor)], (None, true));
    check_role(&[role(ProcessRole::Agent)], (None, true));
    check_role(&[role(ProcessRole::Monitor), role(ProcessRole::Workload)], (None, false));
    // it has been seen at work
    check_role(&[told("GPU-0", "workload"), role(ProcessRole::Monitor)], (Some("GPU-0"), false));
    let listed = list("GPU-0", &[7], GpuContext::Compute);
    check_role(&[role(ProcessRole::Monitor), listed], (Some("GPU-0"), false));
}

#[test]
fn another_program_is_not_presumed_to_be_what_the_former_one_was() {
    let (met, exec) = (|| sighting(None, "x"), || Signal::Exec { at: at(1), pid: PID });
    for another in [met, exec] {
        check_role(&[role(ProcessRole::Monitor), another()], (None, false));
        check_role(&[role(ProcessRole::Agent), another()], (None, true));
    }
    check_role(&[told("GPU-0", "monitor"), met()], (Some("GPU-0"), true));
    check_role(&[told("GPU-0", "monitor"), exec()], (None, true));
}

#[test]
fn a_presumed_monitor_is_believed_where_no_monitor_spends_its_time() {
    let victim = |standing: &Signal, call: &Call| {
        let mut table = UseTable::new(&Telemetry::default());
        table.push(standing);
        table.as_victim(call)
    };
    let made = |kind: CallKind, driver: &str, op: u32, rm: Option<RmCall>| Call {
        kind,
        op,
        driver: Some(driver.to_owned()),
        rm,
        ..call(PID)
    };
    let control = RmCall { cmd: Some(0x2080_014a), class: None };
    let class = RmCall { cmd: None, class: Some(0x80) };
    for (call, want) in [
        (made(CallKind::Ioctl, "nvidia", 0xc030_462b, None), Some(Confidence::Low)),
        (made(CallKind::Ioctl, "nvidia", 0xc010_46d3, Some(class)), Some(Confidence::Low)),
        (made(CallKind::Driver, "nvidia", 0, Some(class)), Some(Confidence::Low)),
        (made(CallKind::Open, "nvidia", 0, None), Some(Confidence::Low)),
        (made(CallKind::Ioctl, "uvm", 0x3000_0001, None), Some(Confidence::Low)),
        (made(CallKind::Fault, "uvm", 0, None), Some(Confidence::Low)),
        // 43 is another command there
        (made(CallKind::Ioctl, "other", 0x2b, None), None),
        (made(CallKind::Ioctl, "nvidia", 0xc020_462a, Some(control)), None),
        (made(CallKind::Lock, "nvidia", 0, None), None),
        (made(CallKind::Poll, "nvidia", 0, None), None),
        (made(CallKind::Close, "nvidia", 0, None), None),
    ] {
        assert_eq!(victim(&role(ProcessRole::Monitor), &call), want, "{call:?}");
        assert_eq!(victim(&role(ProcessRole::Agent), &call), None, "{call:?}");
        assert_eq!(victim(&role(ProcessRole::Mps), &call), None, "{call:?}");
        assert_eq!(victim(&told("GPU-1", "monitor"), &call), None, "{call:?}");
        assert_eq!(victim(&role(ProcessRole::Workload), &call), Some(Confidence::High), "{call:?}");
    }
}

#[test]
fn the_server_of_mps_is_no_workload_and_its_clients_are() {
    // it allocates what workloads allocate, and NVML lists it among those that compute
    let server = || sighting(Some(START), "nvidia-cuda-mps");
    for server in [server(), role(ProcessRole::Mps), told("GPU-0", "mps")] {
        let computes = list("GPU-0", &[7], GpuContext::Compute);
        for works in [role(ProcessRole::Workload), told("GPU-0", "workload")] {
            let listed = computes.clone();
            check_role(&[works.clone(), server.clone(), listed.clone()], (Some("GPU-0"), true));
            check_role(&[listed, server.clone(), works], (Some("GPU-0"), true));
        }
    }
    check_role(&[server(), Signal::Exec { at: at(5), pid: PID }], (None, false));
    check_role(&[sighting(Some(START), "nvidia-cuda-mp")], (None, false));
    let mut table = node();
    table.push(&server());
    table.push(&list("GPU-0", &[7, 501, 502], GpuContext::Mps));
    for client in [501, 502].map(Pid) {
        assert_eq!(of(&table, client), ["GPU-0 nvml"]);
        assert_eq!(table.as_victim(&call(client)), Some(Confidence::High));
    }
    assert_eq!(table.as_victim(&call(PID)), None);
}

/// Case time-slicing-four-pods.md: processes of four pods on one GPU; each has its own use, and it ends alone.
#[test]
fn workloads_that_share_a_device_keep_their_own_uses() {
    let mut table = node();
    table.push(&list("GPU-0", &[101, 102, 103, 104], GpuContext::Compute));
    let all = [101, 102, 103, 104].map(Pid);
    assert_eq!(all.map(|pid| of(&table, pid)), [["GPU-0 nvml"]; 4]);
    table.push(&list("GPU-0", &[101, 103, 104], GpuContext::Compute));
    table.push(&Signal::Exit { at: at(3), pid: Pid(104) });
    table.push(&Signal::Tick { at: at(63) });
    assert_eq!(all.map(|pid| table.only_device(pid)), [Some("GPU-0"), None, Some("GPU-0"), None]);
}

/// Case mps-logical-slots.md: what its processes run on decides, whatever their pods were given.
#[test]
fn slots_of_mps_are_told_by_the_process() {
    let mut table = node();
    let given = Uses {
        pid: Pid(601),
        hw_id: "GPU-0".into(),
        evidence: UseEvidence::Allocation,
        role: "workload".into(),
        end: false,
    };
    table.push(&Signal::Uses { at: at(1), uses: given });
    table.push(&list("GPU-0", &[501, 502], GpuContext::Mps));
    assert_eq!(of(&table, Pid(601)), ["GPU-0 allocation"], "nothing better is known yet");
    table.push(&list("GPU-2", &[601], GpuContext::Mps));
    let uses = [501, 502, 601].map(|pid| of(&table, Pid(pid)));
    assert_eq!(uses, [["GPU-0 nvml"], ["GPU-0 nvml"], ["GPU-2 nvml"]]);
}
