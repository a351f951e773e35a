//! Every kind of call is counted where it belongs, and as often as the double counted it.

use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::driver::{Module, major};
use warpgauge_tests::needs;

use super::caller::{ALLOC, CONTROL, CONTROL_NODE, Caller, GPU_NODE, UVM_NODE};
use super::watched::{DURATION, ERRORS, Shared, count};

#[test]
fn each_call_is_counted_with_its_device_operation_and_pod() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 31);
    let kinds = ["ioctl", "open", "close", "mmap", "poll"];
    let before = kinds.map(|kind| (count(Module::Nvidia, kind).ended, count(Module::Uvm, kind).ended));
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE, GPU_NODE, UVM_NODE]);
    for _ in 0..3 {
        caller.call(&format!("ioctl {CONTROL_NODE} {CONTROL} 8=0x20800110"));
    }
    caller.call(&format!("repeat 100 {CONTROL_NODE} {ALLOC} 12=0x2080"));
    caller.call(&format!("ioctl {GPU_NODE} 0xc00446c9"));
    caller.call(&format!("ioctl {UVM_NODE} 0x30000001"));
    assert_eq!(caller.try_call(&format!("ioctl {UVM_NODE} 99")).value, Err(22));
    for node in [GPU_NODE, UVM_NODE] {
        caller.call(&format!("mmap {node}"));
        caller.call("touch");
        caller.call("touch");
    }
    caller.call(&format!("poll {GPU_NODE} 0"));
    for node in [CONTROL_NODE, GPU_NODE, UVM_NODE] {
        caller.call(&format!("close {node}"));
    }

    let uvm = format!("{}:0", major("nvidia-uvm").unwrap());
    let table: [(&str, &str, &str, f64); 16] = [
        ("195:255", "open", "", 1.0),
        ("195:0", "open", "", 1.0),
        (&uvm, "open", "", 1.0),
        ("195:255", "ioctl", "NV_ESC_RM_CONTROL", 3.0),
        ("195:255", "ioctl", "NV_ESC_RM_ALLOC", 100.0),
        ("195:0", "ioctl", "NV_ESC_REGISTER_FD", 1.0),
        (&uvm, "ioctl", "UVM_INITIALIZE", 1.0),
        // refused: its number is the caller's to choose
        (&uvm, "ioctl", "0x0", 1.0),
        ("195:0", "mmap", "", 1.0),
        (&uvm, "mmap", "", 1.0),
        ("195:0", "poll", "", 1.0),
        ("195:255", "close", "", 1.0),
        // the mapping keeps the file open
        ("195:0", "close", "", 0.0),
        (&uvm, "close", "", 0.0),
        ("", "fault", "", 2.0),
        ("", "driver", "rm_init_adapter", 1.0),
    ];
    for (device, call, operation, want) in table {
        let mut of = vec![("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", call)];
        of.extend(
            [("gpu.driver.device", device), ("gpu.driver.operation", operation)]
                .into_iter()
                .filter(|p| !p.1.is_empty()),
        );
        watched.wait_sum(DURATION, &of, want);
    }
    let of_pod = |call| [("k8s.pod.uid", pod.pod_uid.clone()), ("gpu.driver.call", call)];
    let errors = of_pod("ioctl".to_owned()).map(|(name, value)| (name, value));
    let errors: Vec<_> = errors.iter().map(|(name, value)| (*name, value.as_str())).collect();
    watched.wait_sum(ERRORS, &errors, 1.0);

    let pid = caller.pid();
    caller.end();
    for (kind, before) in kinds.into_iter().zip(before) {
        let calls = count(Module::Nvidia, kind).ended - before.0 + count(Module::Uvm, kind).ended - before.1;
        let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", kind)];
        watched.wait_sum(DURATION, &of, calls as f64);
    }
    watched.wait_quiet();
    watched.assert_nothing_lost();
    assert_eq!(watched.stalls(&pid, "begin"), [], "nothing was slow");
}

#[test]
fn a_call_is_as_long_as_its_caller_says() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 32);
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    for rule in ["sleep ioctl 255 0x2a 250 0", "spin ioctl 255 0x2b 250 -5"] {
        Module::Nvidia.order(rule);
    }
    for (command, operation, want) in
        [(CONTROL, "NV_ESC_RM_CONTROL", Ok(0)), (ALLOC, "NV_ESC_RM_ALLOC", Err(5))]
    {
        let answer = caller.try_call(&format!("ioctl {CONTROL_NODE} {command}"));
        assert_eq!(answer.value, want);
        let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.operation", operation)];
        watched.wait_sum(DURATION, &of, 1.0);
        let (said, took) = (watched.seconds(DURATION, &of), answer.took.as_secs_f64());
        assert!((0.2..=took).contains(&said), "{operation}: {said} s of 0.25 s, {took} s by its own clock");
        watched.wait_sum(ERRORS, &of, if want.is_ok() { 0.0 } else { 1.0 });
    }
}
