//! Agents that come before the driver, that are killed, and two at once.

use std::fs;

use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::needs;

use super::caller::{CONTROL, CONTROL_NODE, Caller};
use super::watched::{DURATION, Own, Watched, wait_hanging};

const EVENTS: &str = "/sys/kernel/tracing/kprobe_events";
const CALLS: u64 = 20;

/// Lines of kprobe events whose group begins so.
fn events(group: &str) -> Vec<String> {
    let all = fs::read_to_string(EVENTS).unwrap();
    let in_group = |line: &&str| line.split_once(':').is_some_and(|(_, rest)| rest.starts_with(group));
    all.lines().filter(in_group).map(str::to_owned).collect()
}

#[test]
fn an_agent_may_come_before_the_driver() {
    needs!(Vm);
    let mut watched = Own::agent("vm-before");
    Module::Uvm.unload().unwrap();
    Module::Nvidia.unload().unwrap();
    watched.start_without_driver();
    Module::Nvidia.load().unwrap();
    Module::Uvm.load().unwrap();
    watched.wait_probes(0);
    let pod = PodCgroup::new(Version::V2, 52);
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    caller.call(&format!("repeat {CALLS} {CONTROL_NODE} {CONTROL}"));
    let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", "ioctl")];
    watched.wait_sum(DURATION, &of, CALLS as f64);
}

#[test]
fn an_agent_killed_while_calls_hang_leaves_nothing_that_the_next_does_not_clear() {
    needs!(Vm);
    let mut watched = Own::agent("vm-leftovers");
    watched.run();
    let killed = watched.agent.as_ref().unwrap().pid();
    let mut caller = Caller::start();
    caller.open(&[CONTROL_NODE]);
    Module::Nvidia.order("hang ioctl 255 0x2a");
    caller.begin(&format!("crowd 24 {CONTROL_NODE} {CONTROL}"));
    wait_hanging(Module::Nvidia, 24);
    let first = caller.pid();
    wait_for("all stalls", 30, || (watched.stalls(&first, "begin").len() == 24).then_some(()));
    watched.agent.take().unwrap().kill();
    let group = format!("warpgauge_{killed}_");
    assert!(!events(&group).is_empty(), "SIGKILL leaves no time to remove them");

    // with the dead agent's events still there: the calls return, the driver goes and comes
    Module::Nvidia.order("clear");
    assert_eq!(caller.answer().value, Ok(24));
    caller.end();
    wait_for("the driver to be free", 10, || (Module::Uvm.unload().is_ok()).then_some(()));
    Module::Nvidia.unload().unwrap();
    Module::Nvidia.load().unwrap();
    Module::Uvm.load().unwrap();

    watched.run();
    assert_eq!(events(&group), Vec::<String>::new(), "cleared at the start");
    let pod = PodCgroup::new(Version::V2, 53);
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    caller.call(&format!("repeat {CALLS} {CONTROL_NODE} {CONTROL}"));
    let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", "ioctl")];
    watched.wait_sum(DURATION, &of, CALLS as f64);
    watched.terminate();
    assert_eq!(events("warpgauge_"), Vec::<String>::new());
}

#[test]
fn two_agents_at_once_do_not_disturb_each_other() {
    needs!(Vm);
    let mut first = Own::agent("vm-first");
    first.run();
    let mut second = Watched::new("vm-second");
    second.run();
    let group = |watched: &Watched| format!("warpgauge_{}_", watched.agent.as_ref().unwrap().pid());
    let (of_first, of_second) = (group(&first), group(&second));
    let (many, as_many) = (events(&of_first).len(), events(&of_second).len());
    assert!(30 < many && many == as_many, "{many} and {as_many} events");
    let pod = PodCgroup::new(Version::V2, 54);
    let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", "ioctl")];
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    let mut calls = 0.0;
    let mut repeat = |caller: &mut Caller| {
        caller.call(&format!("repeat {CALLS} {CONTROL_NODE} {CONTROL}"));
        calls += CALLS as f64;
        calls
    };
    let made = repeat(&mut caller);
    first.wait_sum(DURATION, &of, made);
    second.wait_sum(DURATION, &of, made);

    first.terminate();
    assert_eq!((events(&of_first).len(), events(&of_second).len()), (0, as_many));
    let made = repeat(&mut caller);
    second.wait_sum(DURATION, &of, made);

    first.run();
    assert_eq!(events(&of_second).len(), as_many, "a start clears nothing of an agent that lives");
    let third = group(&first);
    let made = repeat(&mut caller);
    second.wait_sum(DURATION, &of, made);
    // its counts began with it
    first.wait_sum(DURATION, &of, CALLS as f64);

    second.agent.take().unwrap().kill();
    let made = repeat(&mut caller);
    first.wait_sum(DURATION, &of, made - 2.0 * CALLS as f64);
    assert_eq!(events(&third).len(), many);
    first.terminate();
    second.run();
    assert_eq!(events(&of_second), Vec::<String>::new());
    second.terminate();
    assert_eq!(events("warpgauge_"), Vec::<String>::new());
}
