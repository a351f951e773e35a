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
        (VID_HEAP, "hang rm 255 0x4a 1", VID_HEAP, "semaphore"),
        ("0xc0384641", "hang rm 255 0x41 1", "0xc0384641", "mutex"),
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
        // one wait, although the semaphore's function jumps into the mutex's
        let of = [("k8s.pod.uid", victims.pod_uid.as_str()), ("gpu.driver.lock.mode", mode)];
        wait_for(&format!("the wait of {rule}"), 20, || {
            let slow: u64 = watched.feed.latest(WAITS, &of).iter().map(long_ones).sum();
            assert!(slow <= 1, "{rule}: {slow} waits of one");
            (slow == 1).then_some(())
        });
        let of_holder = [("k8s.pod.uid", holders.pod_uid.as_str()), ("gpu.driver.lock.mode", mode)];
        let waits: u64 = watched.feed.latest(WAITS, &of_holder).iter().map(long_ones).sum();
        assert_eq!(waits, 0, "{rule}: the holder waited for nobody");
    }
    watched.wait_quiet();
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

/// Who took a semaphore that another thread has let go holds it no more.
#[test]
fn a_semaphore_let_go_by_another_thread_is_free() {
    needs!(Vm);
    let mut watched = Shared::agent();
    Module::Nvidia.order("lock gpu semaphore 50 handover");
    let mut holder = Caller::start();
    let mut victim = Caller::start();
    holder.open(&[CONTROL_NODE]);
    victim.open(&[CONTROL_NODE]);
    Module::Nvidia.order(&format!("hang rm 255 {VID_HEAP_NR} 1"));
    holder.begin(&format!("ioctl {CONTROL_NODE} {VID_HEAP}"));
    wait_hanging(Module::Nvidia, 1);
    victim.begin(&format!("ioctl {CONTROL_NODE} {VID_HEAP}"));
    let begin = watched.wait_stall(&victim.pid(), "begin");
    assert_eq!(begin.get("gpu.stall.holder.pid"), holder.pid(), "not who had it before: {begin:?}");
    Module::Nvidia.order("clear");
    assert_eq!((holder.answer().value, victim.answer().value), (Ok(0), Ok(0)));
}

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
