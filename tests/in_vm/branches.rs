//! A driver of another branch, with other names of its functions, takes the place of the one that was there.

use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::needs;

use super::caller::{CONTROL, CONTROL_NODE, Caller, GPU_NODE};
use super::variant::Variant;
use super::watched::{DURATION, Shared};

fn has_symbol(name: &str) -> bool {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    symbols.lines().any(|line| line.split_ascii_whitespace().nth(2) == Some(name))
}

/// Until the agent has noticed, the calls of a driver's other functions are not seen.
fn wait_seen(watched: &mut Shared, pod: u32) {
    let pod = PodCgroup::new(Version::V2, pod);
    let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", "ioctl")];
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    wait_for("the first call that is seen", 30, || {
        caller.call(&format!("ioctl {CONTROL_NODE} {CONTROL}"));
        (0.0 < watched.sum(DURATION, &of)).then_some(())
    });
    caller.end();
}

#[test]
fn a_driver_with_a_layer_in_front_is_counted_once() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let old = Variant::load(Module::load_old);
    assert!(has_symbol("nvidia_frontend_unlocked_ioctl") && !has_symbol("nvidia_unlocked_ioctl"));
    assert!(has_symbol("nvidia_frontend_open") && has_symbol("nvidia_open"), "both layers");
    wait_seen(&mut watched, 81);
    let seen = watched.feed.points().len();
    watched.wait_probes(seen);

    let pod = PodCgroup::new(Version::V2, 82);
    let of = |call| [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", call)];
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE, GPU_NODE]);
    caller.call(&format!("repeat 20 {CONTROL_NODE} {CONTROL}"));
    caller.call(&format!("poll {GPU_NODE} 0"));
    caller.call(&format!("close {GPU_NODE}"));
    let service = "gpu.driver.uvm.service.duration";
    let served = watched.sum(service, &[]);
    Module::Uvm.order("service 10");
    for (call, want) in [("ioctl", 20.0), ("open", 2.0), ("poll", 1.0), ("close", 1.0)] {
        watched.wait_sum(DURATION, &of(call), want);
    }
    watched.wait_sum(service, &[], served + 1.0);
    caller.end();
    drop(old);
    wait_seen(&mut watched, 80);
    let seen = watched.feed.points().len();
    watched.wait_probes(seen);
    watched.wait_quiet();
}
