//! What RM is asked for and what it answers; UVM's calls, faults and the work it does for nobody in particular; XIDs.

use std::collections::BTreeSet;

use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::harness::received::{Point, Record};
use warpgauge_tests::needs;

use super::caller::{ALLOC, CONTROL, CONTROL_NODE, Caller, GPU_NODE, UVM_NODE};
use super::watched::{DURATION, ERRORS, Shared, count, wait_hanging};

const RM_CALLS: &str = "gpu.driver.rm.calls";

/// ioctl returns 0; RM says that the GPU is lost.
#[test]
fn what_rm_answers_is_counted_although_the_call_returns_zero() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 71);
    let uid = ("k8s.pod.uid", pod.pod_uid.as_str());
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    Module::Nvidia.order("status 0x2a 0x20800110 0x0f 1");
    Module::Nvidia.order("status 0x2b 0xc7c0 0x51 2");
    let control = format!("ioctl {CONTROL_NODE} {CONTROL} 8=0x20800110 28");
    let old = format!("ioctl {CONTROL_NODE} 0xc020462b 12=0xc7c0 28");
    let new = format!("ioctl {CONTROL_NODE} {ALLOC} 12=0xc7c0 40");
    for (call, status) in [(&control, 0x0f), (&control, 0), (&old, 0x51), (&new, 0x51), (&new, 0)] {
        let answer = caller.call(call);
        assert_eq!((answer.value, answer.words.as_slice()), (Ok(0), [status].as_slice()), "{call}");
    }
    // through the wrapper for large blocks nothing is different for RM
    for (operation, status, want) in [
        ("NV2080_CTRL_CMD_GPU_GET_NAME_STRING", "NV_ERR_GPU_IS_LOST", 1.0),
        ("NV2080_CTRL_CMD_GPU_GET_NAME_STRING", "NV_OK", 1.0),
        ("AMPERE_COMPUTE_B", "NV_ERR_NO_MEMORY", 2.0),
        ("AMPERE_COMPUTE_B", "NV_OK", 1.0),
    ] {
        let of = [uid, ("gpu.driver.rm.operation", operation), ("gpu.driver.rm.status", status)];
        watched.wait_sum(RM_CALLS, &of, want);
    }
    for (operation, calls, errors) in [("NV_ESC_RM_CONTROL", 2.0, 1.0), ("NV_ESC_RM_ALLOC", 3.0, 2.0)] {
        let of = [uid, ("gpu.driver.operation", operation)];
        watched.wait_sum(DURATION, &of, calls);
        watched.wait_sum(ERRORS, &of, errors);
    }
    watched.assert_nothing_lost();
}

#[test]
fn a_fault_within_an_ioctl_is_kept_apart_from_it() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 72);
    let uid = ("k8s.pod.uid", pod.pod_uid.as_str());
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE, UVM_NODE]);
    caller.call(&format!("mmap {UVM_NODE}"));
    Module::Uvm.order("sleep fault 0 0 100 0 1");
    Module::Nvidia.order("sleep rm 255 0x2a 200 0 1");
    let answer = caller.call(&format!("nested {CONTROL_NODE} {CONTROL}"));
    caller.call("touch");
    watched.wait_sum(DURATION, &[uid, ("gpu.driver.call", "ioctl")], 1.0);
    watched.wait_sum(DURATION, &[uid, ("gpu.driver.call", "fault")], 2.0);
    let fault = watched.seconds(DURATION, &[uid, ("gpu.driver.call", "fault")]);
    let ioctl = watched.seconds(DURATION, &[uid, ("gpu.driver.call", "ioctl")]);
    let took = answer.took.as_secs_f64();
    assert!(0.08 <= fault && fault < ioctl, "{fault} s of 0.1 s, within {ioctl} s");
    assert!((0.24..=took).contains(&ioctl), "{ioctl} s of 0.3 s, {took} s by its own clock");
    watched.wait_quiet();
    watched.assert_nothing_lost();
}

/// Which process works on which GPU, by what it registers; faults of GPUs and evictions are served by the kernel's own
/// threads, for whoever it may be.
#[test]
fn a_registered_process_belongs_to_its_gpu_and_kernel_threads_to_nobody() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 73);
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE, UVM_NODE]);
    // the UUID of the double's second GPU, and the words of a channel
    let uuid = "0=0x1eaba15c 4=0x00400000 8=0x00000080 12=0x01000000";
    for call in [37, 25, 27] {
        caller.call(&format!("ioctl {UVM_NODE} {call} {uuid}"));
    }
    Module::Nvidia.order("hang ioctl 255 0x2a 1");
    caller.begin(&format!("ioctl {CONTROL_NODE} {CONTROL}"));
    let begin = watched.wait_stall(&caller.pid(), "begin");
    assert_eq!(begin.get("hw.id"), "GPU-5ca1ab1e-0000-4000-8000-000000000001", "{begin:?}");
    Module::Nvidia.order("clear");
    caller.answer();

    let (service, evict) = ("gpu.driver.uvm.service.duration", "gpu.driver.uvm.eviction.duration");
    let (served, evicted) = (watched.sum(service, &[]), watched.sum(evict, &[]));
    let before = watched.seconds(service, &[]);
    for _ in 0..3 {
        Module::Uvm.order("service 20");
    }
    Module::Uvm.order("evict 20");
    watched.wait_sum(service, &[], served + 3.0);
    watched.wait_sum(evict, &[], evicted + 1.0);
    assert!(0.048 <= watched.seconds(service, &[]) - before);
    // one more, in the process that migrates
    caller.call(&format!("ioctl {UVM_NODE} 51 {uuid}"));
    watched.wait_sum(evict, &[], evicted + 2.0);
    let has_owner = |point: &Point| point.attributes.keys().any(|name| name.contains('.'));
    assert!(!watched.feed.latest(service, &[]).iter().any(has_owner), "of nobody");
    // a hung service is nobody's stall
    Module::Uvm.order("service 0");
    wait_for("the service to hang", 10, || (count(Module::Uvm, "service").in_flight == 1).then_some(()));
    Module::Uvm.order("hang ioctl 0 37 1");
    caller.begin(&format!("ioctl {UVM_NODE} 37"));
    wait_hanging(Module::Uvm, 1);
    wait_for("the caller's stall", 20, || (watched.stalls(&caller.pid(), "begin").len() == 2).then_some(()));
    let of_kernel = |r: &&Record| r.event == "gpu.stall" && r.get("thread.name").starts_with("UVM");
    assert_eq!(watched.feed.records().iter().find(of_kernel), None);
    Module::Uvm.order("clear");
    caller.answer();
}

#[test]
fn xids_of_the_log_and_of_the_drivers_function_are_held_against_each_other() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let check = "warpgauge.xid.cross_check";
    let results = ["both", "probe_only", "log_only"];
    let before = results.map(|result| watched.sum(check, &[("result", result)]));
    let told_before = xids(&mut watched).len();
    Module::Nvidia.order("xid 0000:3b:00 79 GPU has fallen off the bus.");
    Module::Nvidia.order("xid 0000:5e:00 31 pid=77, name=python3, Ch 00000008, MMU Fault");
    Module::Nvidia.order("xid_unlogged 0000:5e:00 13 Graphics Exception");
    Module::Nvidia.order("log 4 NVRM: Xid (PCI:0000:3b:00): 43, pid=77, name=python3, Ch 00000008");
    for ((result, before), more) in results.into_iter().zip(before).zip([2.0, 1.0, 1.0]) {
        watched.wait_sum(check, &[("result", result)], before + more);
    }
    let told = wait_for("all four", 20, || {
        let told = xids(&mut watched).split_off(told_before);
        (told.len() == 4).then_some(told)
    });
    let told: BTreeSet<(&str, &str)> = told.iter().map(|(code, pci)| (code.as_str(), &pci[..10])).collect();
    let want = [("79", "0000:3b:00"), ("31", "0000:5e:00"), ("13", "0000:5e:00"), ("43", "0000:3b:00")];
    assert_eq!(told, want.into());
}

/// Codes and addresses of all that were told.
fn xids(watched: &mut Shared) -> Vec<(String, String)> {
    let xids = watched.feed.records().iter().filter(|r| r.event == "gpu.xid");
    xids.map(|r| (r.get("gpu.xid.code").to_owned(), r.get("gpu.pci.address").to_owned())).collect()
}

#[test]
fn the_first_open_of_a_gpu_is_its_own_operation() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 74);
    Module::Nvidia.order("sleep init 0 0 100 0 1");
    Module::Nvidia.order("fail init 1 0 -5 1");
    let mut caller = Caller::in_pod(&pod, &[GPU_NODE, GPU_NODE]);
    assert_eq!(caller.try_call("open /dev/nvidia1").value, Err(5));
    let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.operation", "rm_init_adapter")];
    watched.wait_sum(DURATION, &of, 2.0);
    assert!(0.08 <= watched.seconds(DURATION, &of));
    let opens = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", "open")];
    watched.wait_sum(ERRORS, &opens, 1.0);
}
