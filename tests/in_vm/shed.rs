//! Probes that cost too much are given up while calls are under way: nothing of those stays open, and the loss is counted.

use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::needs;

use super::caller::{CONTROL, CONTROL_NODE, Caller, VID_HEAP};
use super::watched::{Own, count};

/// The least that may be configured: a busy caller costs more. Unit: CPUs.
const BUDGET: f64 = 0.001;

/// More calls than are ever made.
const ENDLESS: &str = "100000000";

#[test]
fn a_wait_that_outlasts_its_probe_is_closed_and_counted() {
    needs!(Vm);
    let mut watched = Own::with_budget("vm-shed", BUDGET);
    watched.run();
    let pod = PodCgroup::new(Version::V2, 85);
    let mut victim = Caller::in_pod(&pod, &[CONTROL_NODE]);
    let mut busy = Caller::start();
    busy.open(&[CONTROL_NODE]);
    // a lock that is held, and one who waits for it in an ioctl: three layers of one thread
    Module::Nvidia.order("lock gpu semaphore 0 thread");
    victim.begin(&format!("ioctl {CONTROL_NODE} {VID_HEAP}"));
    let begin = watched.wait_stall(&victim.pid(), "begin");
    busy.begin(&format!("repeat {ENDLESS} {CONTROL_NODE} {CONTROL}"));

    // two samples, half a minute apart
    for probe in ["locks", "rm", "ioctl"] {
        wait_for(&format!("{probe} to be given up"), 60, || {
            let (shed, of) = ("warpgauge.probe.shed", [("probe", probe)]);
            (watched.feed.value(shed, &of) == Some(1.0)).then_some(())
        });
    }
    let closed = watched.wait_stall(&victim.pid(), "unobserved");
    assert_eq!(closed.get("gpu.stall.id"), begin.get("gpu.stall.id"));
    assert!(1 <= count(Module::Nvidia, "ioctl").in_flight, "told while it still waits");
    busy.kill();
    watched.wait_quiet();
    wait_for("the map of holders to be empty", 30, || {
        (watched.feed.value("warpgauge.probe.entries", &[("map", "held")]) == Some(0.0)).then_some(())
    });
    // at least the three of the one who waits
    let lost = watched.sum("warpgauge.probe.lost_returns", &[]);
    assert!(3.0 <= lost, "{lost} returns lost");

    Module::Nvidia.order("release");
    assert_eq!(victim.answer().value, Ok(0));
    // its end is seen by nobody, and nothing is told twice
    watched.terminate();
    assert_eq!(watched.stalls(&victim.pid(), "begin").len(), 1);
    assert_eq!(watched.stalls(&victim.pid(), "unobserved").len(), 1);
    assert_eq!(watched.stalls(&victim.pid(), "end"), []);
}
