//! RM's locks: the victim and the holder of a wait are told apart and named.

use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::needs;

use super::caller::{ALLOC, CONTROL, CONTROL_NODE, Caller, VID_HEAP};
use super::watched::{Shared, count, wait_hanging};

const WAITS: &str = "gpu.driver.lock.wait.duration";

#[test]
fn the_holder_of_a_lock_is_named_to_its_victim() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let (holders, victims) = (PodCgroup::new(Version::V2, 61), PodCgroup::new(Version::V2, 62));
    // what holds the lock, what waits for it, and how
    for (holds, rule, waits, mode) in [
        (ALLOC, "hang rm 255 0x2b 1", CONTROL, "read"),
        (CONTROL, "hang rm 255 0x2a 1", ALLOC, "write"),
        (IDLE_CHANNELS, "hang rm 255 0x41 1", IDLE_CHANNELS, "mutex"),
    ] {
        let mut holder = Caller::in_pod(&holders, &[CONTROL_NODE]);
        let mut victim = Caller::in_pod(&victims, &[CONTROL_NODE]);
        let (holder_pid, victim_pid) = (holder.pid(), victim.pid());
        Module::Nvidia.order(rule);
        holder.begin(&format!("ioctl {CONTROL_NODE} {holds}"));
        wait_hanging(Module::Nvidia, 1);
        victim.begin(&format!("ioctl {CONTROL_NODE} {waits}"));
        let begin = wait_for(&format!("the victim of {rule}"), 20, || {
            watched
                .stalls(&victim_pid, "begin")
                .into_iter()
                .find(|r| r.get("gpu.stall.cause") == "driver_lock")
        });
        assert_eq!(Module::Nvidia.number("hanging"), Some(1), "{rule}: told while it waits");
        assert_eq!(begin.get("gpu.stall.holder.pid"), holder_pid, "{rule}: {begin:?}");
        assert_eq!(begin.get("gpu.stall.holder.thread.id"), holder_pid, "{rule}");
        assert_eq!(begin.get("gpu.stall.holder.pod.uid"), holders.pod_uid, "{rule}");
        assert_eq!(begin.get("k8s.pod.uid"), victims.pod_uid, "{rule}");
        let exclusive = if mode == "read" { "read" } else { "write" };
        assert_eq!(begin.get("gpu.driver.lock.mode"), exclusive, "{rule}");
        let of_holder = watched.wait_stall(&holder_pid, "begin");
        assert_eq!(of_holder.get("gpu.stall.cause"), "driver_call", "{rule}: it waits for nobody");
        Module::Nvidia.order("clear");
        assert_eq!((holder.answer().value, victim.answer().value), (Ok(0), Ok(0)), "{rule}");
        watched.wait_stall(&victim_pid, "end");
        wait_counted(&mut watched, &victims.pod_uid, mode, 1);
        assert_eq!(
            long_waits(&mut watched, &holders.pod_uid, mode),
            0,
            "{rule}: the holder waited for nobody"
        );
    }
    watched.wait_quiet();
}

/// A GPU's lock is had without its semaphore, which only wakes who waits: whoever came out of it has not taken anything
/// that it would be seen to let go. So the wait is told, and nobody is blamed: not who has the lock, since that was not
/// seen, nor who has waited for it and let go since.
#[test]
fn a_wait_for_a_gpu_is_told_without_a_holder() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let (holders, victims) = (PodCgroup::new(Version::V2, 64), PodCgroup::new(Version::V2, 65));
    let mut former = Caller::in_pod(&victims, &[CONTROL_NODE]);
    for round in 1..=2 {
        let mut holder = Caller::in_pod(&holders, &[CONTROL_NODE]);
        Module::Nvidia.order(&format!("hang rm 255 {VID_HEAP_NR} 1"));
        holder.begin(&format!("ioctl {CONTROL_NODE} {VID_HEAP}"));
        wait_hanging(Module::Nvidia, 1);
        // the first round's victim leaves nobody behind it, and lives on
        let mut later = (round == 2).then(|| Caller::in_pod(&victims, &[CONTROL_NODE]));
        let victim = later.as_mut().unwrap_or(&mut former);
        victim.begin(&format!("ioctl {CONTROL_NODE} {VID_HEAP}"));
        let begin = watched.wait_stall(&victim.pid(), "begin");
        assert_eq!(Module::Nvidia.number("hanging"), Some(1), "round {round}: told while it waits");
        let held = ["gpu.stall.holder.pid", "gpu.stall.holder.thread.id", "gpu.stall.holder.pod.uid"];
        assert_eq!(held.map(|key| begin.get(key)), ["", "", ""], "round {round}: {begin:?}");
        assert_eq!(begin.get("gpu.stall.cause"), "driver_call", "round {round}: no holder, no proof");
        assert_eq!(begin.get("gpu.driver.lock.mode"), "write", "round {round}: the lock is named");
        let lock = begin.get("gpu.driver.lock.name");
        let evidence = begin.get("gpu.stall.evidence");
        assert!(evidence.contains(&format!("who has lock {lock} is not known")), "round {round}: {evidence}");
        assert_eq!(begin.get("k8s.pod.uid"), victims.pod_uid, "round {round}");
        Module::Nvidia.order("clear");
        assert_eq!((holder.answer().value, victim.answer().value), (Ok(0), Ok(0)), "round {round}");
        watched.wait_stall(&victim.pid(), "end");
        // one wait each, although the semaphore's function jumps into the mutex's
        wait_counted(&mut watched, &victims.pod_uid, "semaphore", round);
        assert_eq!(long_waits(&mut watched, &victims.pod_uid, "mutex"), 0, "round {round}");
        assert_eq!(long_waits(&mut watched, &holders.pod_uid, "semaphore"), 0, "round {round}");
    }
    watched.wait_quiet();
}

fn wait_counted(watched: &mut Shared, pod: &str, mode: &str, want: u64) {
    wait_for(&format!("{want} waits of mode {mode}"), 20, || {
        let slow = long_waits(watched, pod, mode);
        assert!(slow <= want, "{mode}: {slow} waits, not {want}");
        (slow == want).then_some(())
    });
}

fn long_waits(watched: &mut Shared, pod: &str, mode: &str) -> u64 {
    let of = [("k8s.pod.uid", pod), ("gpu.driver.lock.mode", mode)];
    watched.feed.latest(WAITS, &of).iter().map(long_ones).sum()
}

/// How many of a histogram's values are above 0.125 s: bucket `i` of scale 0 ends at 2^(i+1) s.
fn long_ones(point: &warpgauge_tests::harness::received::Point) -> u64 {
    let (scale, buckets) = point.buckets.clone().unwrap();
    assert_eq!(scale, 0);
    buckets.iter().filter(|(index, _)| **index >= -3).map(|(_, count)| count).sum()
}

/// A thread of the kernel's own has the lock: it is named, and is nobody's.
#[test]
fn a_thread_of_the_kernel_can_be_the_holder() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 63);
    let mut victim = Caller::in_pod(&pod, &[CONTROL_NODE]);
    Module::Nvidia.order("lock api write 0 thread");
    victim.begin(&format!("ioctl {CONTROL_NODE} {CONTROL}"));
    let begin = watched.wait_stall(&victim.pid(), "begin");
    assert_eq!(count(Module::Nvidia, "ioctl").in_flight, 1, "told while it waits");
    assert_eq!(begin.get("gpu.stall.cause"), "driver_lock", "{begin:?}");
    assert_eq!(begin.get("gpu.stall.holder.thread.name"), "nv_queue");
    assert_eq!(begin.get("gpu.stall.holder.pod.uid"), "");
    Module::Nvidia.order("release");
    assert_eq!(victim.answer().value, Ok(0));
}

/// Who took a mutex that another thread has let go is not blamed once somebody else has it.
#[test]
fn a_mutex_let_go_by_another_thread_is_its_next_holders() {
    needs!(Vm);
    let mut watched = Shared::agent();
    Module::Nvidia.order("lock mutex mutex 50 handover");
    let mut holder = Caller::start();
    let mut victim = Caller::start();
    holder.open(&[CONTROL_NODE]);
    victim.open(&[CONTROL_NODE]);
    Module::Nvidia.order("hang rm 255 0x41 1");
    holder.begin(&format!("ioctl {CONTROL_NODE} {IDLE_CHANNELS}"));
    wait_hanging(Module::Nvidia, 1);
    victim.begin(&format!("ioctl {CONTROL_NODE} {IDLE_CHANNELS}"));
    let begin = watched.wait_stall(&victim.pid(), "begin");
    assert_eq!(begin.get("gpu.stall.holder.pid"), holder.pid(), "not who had it before: {begin:?}");
    Module::Nvidia.order("clear");
    assert_eq!((holder.answer().value, victim.answer().value), (Ok(0), Ok(0)));
}

/// `NV_ESC_RM_IDLE_CHANNELS`, 56 bytes.
const IDLE_CHANNELS: &str = "0xc0384641";
const VID_HEAP_NR: &str = "0x4a";

/// A suspended node: the wait is for the driver's power lock, before any other.
#[test]
fn a_call_that_waits_for_the_resume_is_told() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let mut caller = Caller::start();
    caller.open(&[CONTROL_NODE]);
    Module::Nvidia.order("power standby");
    caller.begin(&format!("ioctl {CONTROL_NODE} {CONTROL}"));
    let begin = watched.wait_stall(&caller.pid(), "begin");
    assert_eq!(count(Module::Nvidia, "rm").in_flight, 0);
    assert_eq!(begin.get("gpu.driver.operation"), "NV_ESC_RM_CONTROL", "{begin:?}");
    Module::Nvidia.order("power running");
    assert_eq!(caller.answer().value, Ok(0));
    watched.wait_stall(&caller.pid(), "end");
}
