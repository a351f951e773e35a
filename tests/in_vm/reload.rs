//! The driver goes and comes back under all probes.

use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::needs;

use super::caller::{CONTROL, CONTROL_NODE, Caller, UVM_NODE};
use super::watched::{DURATION, Shared, count};

const RELOADS: u32 = 10;
const CALLS: u64 = 20;

fn reload() {
    Module::Uvm.unload().unwrap();
    Module::Nvidia.unload().unwrap();
    Module::Nvidia.load().unwrap();
    Module::Uvm.load().unwrap();
}

/// What the double counted of ioctls since its load.
fn ioctls() -> u64 {
    count(Module::Nvidia, "ioctl").ended + count(Module::Uvm, "ioctl").ended
}

#[test]
fn ten_reloads_under_every_probe_lose_nothing() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 51);
    let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", "ioctl")];
    let mut calls = 0;
    for round in 0..RELOADS {
        reload();
        // at once: no probe is given time to notice
        let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE, UVM_NODE]);
        caller.call(&format!("repeat {CALLS} {CONTROL_NODE} {CONTROL}"));
        caller.call(&format!("repeat {CALLS} {UVM_NODE} 0x30000001"));
        caller.end();
        assert_eq!(ioctls(), 2 * CALLS, "round {round}");
        calls += ioctls();
        let lost =
            watched.sum("warpgauge.probe.lost", &[]) + watched.sum("warpgauge.probe.lost_returns", &[]);
        watched.wait_sum(DURATION, &of, calls as f64 - lost);
    }
    watched.assert_nothing_lost();
    let seen = watched.feed.points().len();
    watched.wait_probes(seen);
    watched.wait_quiet();
}
