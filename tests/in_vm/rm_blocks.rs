//! What RM is asked for and answers where its own function cannot be watched: read along with the ioctl, from the
//! process's block.

use std::fs;
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::harness::programs;
use warpgauge_tests::needs;

use super::caller::{ALLOC, CONTROL, CONTROL_NODE, Caller, UVM_NODE};
use super::variant::Variant;
use super::watched::{DURATION, ERRORS, Own, Watched};

const RM_CALLS: &str = "gpu.driver.rm.calls";
const RM_TIME: &str = "gpu.driver.rm.time";
const DEBUGFS: &str = "/sys/kernel/debug";

/// No kprobe of the machine fires while this lives.
struct NoKprobes;

impl NoKprobes {
    fn begin() -> Self {
        mount("debugfs", DEBUGFS, "debugfs", MountFlags::empty(), c"").unwrap();
        let off = Self;
        fs::write(format!("{DEBUGFS}/kprobes/enabled"), "0").unwrap();
        off
    }
}

impl Drop for NoKprobes {
    fn drop(&mut self) {
        let on = fs::write(format!("{DEBUGFS}/kprobes/enabled"), "1");
        let gone = unmount(DEBUGFS, UnmountFlags::DETACH);
        assert!(on.is_ok() && gone.is_ok(), "{on:?} {gone:?}");
    }
}

fn wait_row(watched: &mut Watched, probe: &str, tactic: &str) {
    let of = [("probe", probe), ("tactic", tactic)];
    wait_for(&format!("probe {probe} as {tactic}"), 60, || {
        (watched.feed.value("warpgauge.probe.info", &of) == Some(1.0)).then_some(())
    });
}

/// What `doctor` says of a probe. It gives up after some seconds, which a busy machine may need for the programs.
fn doctor(probe: &str) -> String {
    let name = format!("\"probe {probe}\"");
    wait_for("the doctor to see the probes", 30, || {
        let mut doctor = Command::new(programs::agent());
        let out = doctor.args(["doctor", "--json", "--worker", "off", "--wait", "60"]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        eprintln!("{text}");
        text.lines().find(|line| line.contains(&name)).map(str::to_owned)
    })
}

/// Requests of every kind, and what is told of them.
fn check_requests(watched: &mut Watched, pod: &PodCgroup) {
    let uid = ("k8s.pod.uid", pod.pod_uid.as_str());
    let mut caller = Caller::in_pod(pod, &[CONTROL_NODE, UVM_NODE]);
    Module::Nvidia.order("status 0x2a 0x20800110 0x0f 1");
    Module::Nvidia.order("status 0x2b 0xc7c0 0x51 3");
    Module::Nvidia.order("sleep ioctl 255 0x34 50 0 1");
    let control = format!("ioctl {CONTROL_NODE} {CONTROL} 8=0x20800110 28");
    let old = format!("ioctl {CONTROL_NODE} 0xc020462b 12=0xc7c0 28");
    let new = format!("ioctl {CONTROL_NODE} {ALLOC} 12=0xc7c0 40");
    let wrapped = format!("wrapped {CONTROL_NODE} 0x2b 48 12=0xc7c0 40");
    let duplicate = format!("ioctl {CONTROL_NODE} 0xc01c4634 24");
    for (call, status) in [
        (&control, 0x0f),
        (&control, 0),
        (&old, 0x51),
        (&new, 0x51),
        (&wrapped, 0x51),
        (&wrapped, 0),
        (&duplicate, 0),
    ] {
        let answer = caller.call(call);
        assert_eq!((answer.value, answer.words.as_slice()), (Ok(0), [status].as_slice()), "{call}");
    }
    // the card info does not come to RM; UVM's numbers mean other things
    caller.call(&format!("ioctl {CONTROL_NODE} 0xc04846c8"));
    caller.call(&format!("ioctl {UVM_NODE} 0x30000001"));
    // a block that is not in memory when the call begins
    caller.call(&format!("mmap {UVM_NODE}"));
    caller.call(&format!("nested {CONTROL_NODE} {CONTROL}"));

    for (operation, status, want) in [
        ("NV2080_CTRL_CMD_GPU_GET_NAME_STRING", "NV_ERR_GPU_IS_LOST", 1.0),
        ("NV2080_CTRL_CMD_GPU_GET_NAME_STRING", "NV_OK", 1.0),
        ("AMPERE_COMPUTE_B", "NV_ERR_NO_MEMORY", 3.0),
        ("AMPERE_COMPUTE_B", "NV_OK", 1.0),
        ("NV_ESC_RM_DUP_OBJECT", "NV_OK", 1.0),
    ] {
        let of = [uid, ("gpu.driver.rm.operation", operation), ("gpu.driver.rm.status", status)];
        watched.wait_sum(RM_CALLS, &of, want);
    }
    watched.wait_sum(DURATION, &[uid, ("gpu.driver.call", "ioctl")], 10.0);
    watched.wait_sum(ERRORS, &[uid, ("gpu.driver.call", "ioctl")], 4.0);
    watched.wait_sum(RM_CALLS, &[uid], 8.0);
    let slept = watched.sum(RM_TIME, &[uid, ("gpu.driver.rm.operation", "NV_ESC_RM_DUP_OBJECT")]);
    assert!((0.04..0.3).contains(&slept), "{slept} s of 0.05 s");

    Module::Nvidia.order("hang ioctl 255 0x2a 1");
    caller.begin(&control);
    let begin = watched.wait_stall(&caller.pid(), "begin");
    assert_eq!(begin.get("gpu.driver.rm.operation"), "NV2080_CTRL_CMD_GPU_GET_NAME_STRING", "{begin:?}");
    Module::Nvidia.order("clear");
    caller.answer();
    watched.wait_sum(RM_CALLS, &[uid], 9.0);
    watched.wait_quiet();
    watched.assert_nothing_lost();
    caller.end();
}

#[test]
fn an_rm_that_cannot_be_traced_is_heard_through_its_ioctls() {
    needs!(Vm);
    let mut watched = Own::agent("vm-rm-untraced");
    let untraced = Variant::load(Module::load_untraced);
    watched.start_without_driver();
    wait_row(&mut watched, "ioctl", "tracefs_kprobe");
    wait_row(&mut watched, "rm", "ioctl_block");
    let refused = [("probe", "rm"), ("tactic", "tracefs_kprobe"), ("reason", "notrace")];
    assert_eq!(watched.feed.value("warpgauge.probe.refused", &refused), Some(1.0));
    check_requests(&mut watched, &PodCgroup::new(Version::V2, 75));

    // another driver, whose RM can be: it is heard itself again, and nothing twice
    drop(untraced);
    wait_row(&mut watched, "rm", "tracefs_kprobe");
    let pod = PodCgroup::new(Version::V2, 76);
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    caller.call(&format!("repeat 20 {CONTROL_NODE} {CONTROL} 8=0x20800110"));
    let uid = ("k8s.pod.uid", pod.pod_uid.as_str());
    watched.wait_sum(DURATION, &[uid, ("gpu.driver.call", "ioctl")], 20.0);
    watched.wait_sum(RM_CALLS, &[uid], 20.0);
    caller.end();
    watched.terminate();
}

#[test]
fn without_any_kprobe_rm_is_heard_through_system_calls() {
    needs!(Vm);
    let mut watched = Own::agent("vm-rm-tracepoints");
    let _off = NoKprobes::begin();
    watched.start_without_driver();
    wait_row(&mut watched, "ioctl", "syscall_tracepoint");
    wait_row(&mut watched, "rm", "ioctl_block");
    check_requests(&mut watched, &PodCgroup::new(Version::V2, 77));
    check_unread_open(&mut watched, &PodCgroup::new(Version::V2, 78));
    watched.terminate();
}

/// Nobody could read the path at its entry: that it is the driver's shows where the thread hangs.
fn check_unread_open(watched: &mut Watched, pod: &PodCgroup) {
    let mut caller = Caller::in_pod(pod, &[]);
    Module::Nvidia.order("hang open 1 0 1");
    caller.begin("unread-open /dev/nvidia1");
    let begin = watched.wait_stall(&caller.pid(), "begin");
    assert_eq!(begin.get("gpu.driver.call"), "open", "{begin:?}");
    assert_eq!(begin.get("k8s.pod.uid"), pod.pod_uid, "{begin:?}");
    Module::Nvidia.order("clear");
    assert_eq!(caller.answer().value, Ok(0));
    let end = watched.wait_stall(&caller.pid(), "end");
    assert_eq!(end.get("gpu.driver.return"), "3", "{end:?}");
    // its descriptor tells which device it was
    let of = [("k8s.pod.uid", &*pod.pod_uid), ("gpu.driver.call", "open"), ("gpu.driver.device", "195:1")];
    watched.wait_sum(DURATION, &of, 1.0);
    caller.end();
}

#[test]
fn the_doctor_says_what_cannot_be_traced() {
    needs!(Vm);
    let _watched = Own::agent("vm-rm-doctor");
    let _untraced = Variant::load(Module::load_untraced);
    let rm = doctor("rm");
    assert!(rm.contains("attached as ioctl_block; refused: tracefs_kprobe (notrace: "), "{rm}");
    let init = doctor("init_adapter");
    assert!(init.contains("(notrace: ") && init.contains("seen in that of `open`"), "{init}");
}
