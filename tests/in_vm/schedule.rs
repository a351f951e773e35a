//! The scheduler's programs go to work for the victim of a stall that is told, and for nobody else.

use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::needs;

use super::caller::{ALLOC, CONTROL, CONTROL_NODE, Caller};
use super::watched::Shared;

const OFF_CPU: &str = "gpu.process.off_cpu.time";
const ARMED: &str = "warpgauge.scheduler.armed";

#[test]
fn the_victim_of_a_stall_is_followed_while_it_lasts() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let (pod, other_pod) = (PodCgroup::new(Version::V2, 83), PodCgroup::new(Version::V2, 84));
    let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.process.off_cpu.reason", "driver_call")];
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    let mut other = Caller::in_pod(&other_pod, &[CONTROL_NODE]);
    wait_for("nobody to be followed", 20, || (watched.sum(ARMED, &[]) == 0.0).then_some(()));
    assert_eq!(watched.sum(OFF_CPU, &of), 0.0);

    // one thread hangs; the other one sleeps again and again, each time too short to be told
    Module::Nvidia.order("hang ioctl 255 0x2b 1");
    Module::Nvidia.order("sleep ioctl 255 0x2a 50 0");
    caller.begin(&format!("beside {CONTROL_NODE} {CONTROL} {ALLOC}"));
    watched.wait_stall(&caller.pid(), "begin");
    wait_for("one process to be followed", 20, || (watched.sum(ARMED, &[]) == 1.0).then_some(()));
    let seconds = wait_for("its time off the processor", 30, || {
        let seconds = watched.sum(OFF_CPU, &of);
        (0.2 <= seconds).then_some(seconds)
    });
    other.call(&format!("poll {CONTROL_NODE} 0"));
    Module::Nvidia.order("release");
    let answer = caller.answer();
    assert_eq!(answer.value, Ok(0));
    assert!(seconds <= answer.took.as_secs_f64(), "{seconds} s of {answer:?}");

    watched.wait_stall(&caller.pid(), "end");
    wait_for("nobody to be followed any more", 20, || (watched.sum(ARMED, &[]) == 0.0).then_some(()));
    assert!(watched.sum(OFF_CPU, &of) <= answer.took.as_secs_f64() + 1.0, "{answer:?}");
    let of_other = watched.feed.latest(OFF_CPU, &[("k8s.pod.uid", other_pod.pod_uid.as_str())]);
    assert!(of_other.is_empty(), "{of_other:?}");
    let waits = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.process.off_cpu.reason", "driver_lock")];
    assert_eq!(watched.sum(OFF_CPU, &waits), 0.0, "nobody waits for a lock");
    watched.wait_quiet();
}
