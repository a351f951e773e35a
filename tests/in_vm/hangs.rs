//! Calls that hang: each kind is told with what it is while it hangs, and in time; many at once all have their ends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::{Module, major};
use warpgauge_tests::harness::live::wall_ns;
use warpgauge_tests::needs;

use super::caller::{ALLOC, CONTROL, CONTROL_NODE, Caller, GPU_NODE, UVM_NODE};
use super::watched::{DURATION, Shared, THRESHOLD, count, wait_hanging};

/// A call that hangs.
struct Hung<'a> {
    module: Module,
    rule: &'a str,
    before: &'a [&'a str],
    call: &'a str,
    /// Attributes of its stall.
    want: &'a [(&'a str, &'a str)],
    /// Words of its evidence.
    evidence: &'a str,
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of calls")]
fn each_kind_is_told_while_it_hangs() {
    needs!(Vm);
    let uvm = format!("{}:0", major("nvidia-uvm").unwrap());
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 41);
    let cases = [
        Hung {
            module: Module::Nvidia,
            rule: "hang ioctl 255 0x2a 1",
            // a process that only asks would be taken for a monitor after a while
            before: &[&format!("ioctl {CONTROL_NODE} {ALLOC} 12=0xc7c0")],
            call: &format!("ioctl {CONTROL_NODE} {CONTROL}"),
            want: &[
                ("gpu.driver.call", "ioctl"),
                ("gpu.driver.device", "195:255"),
                ("gpu.driver.operation", "NV_ESC_RM_CONTROL"),
                ("gpu.stall.cause", "driver_call"),
            ],
            evidence: "seen inside the call, state D",
        },
        Hung {
            module: Module::Nvidia,
            rule: "hang rm 255 0x2a 1",
            before: &[],
            call: &format!("ioctl {CONTROL_NODE} {CONTROL} 8=0x20800110"),
            want: &[
                ("gpu.driver.call", "ioctl"),
                ("gpu.driver.operation", "NV_ESC_RM_CONTROL"),
                ("gpu.driver.rm.operation", "NV2080_CTRL_CMD_GPU_GET_NAME_STRING"),
            ],
            evidence: "in rm_ioctl for",
        },
        Hung {
            module: Module::Nvidia,
            rule: "hang rm 255 0x2b 1",
            before: &[],
            call: &format!("ioctl {CONTROL_NODE} {ALLOC} 12=0xabcd"),
            want: &[("gpu.driver.operation", "NV_ESC_RM_ALLOC"), ("gpu.driver.rm.operation", "0xabcd")],
            evidence: "in rm_ioctl for",
        },
        Hung {
            module: Module::Nvidia,
            rule: "hang open 1 0 1",
            before: &[],
            call: "open /dev/nvidia1",
            want: &[("gpu.driver.call", "open"), ("gpu.driver.device", "195:1")],
            evidence: "state D",
        },
        Hung {
            module: Module::Nvidia,
            rule: "hang init 1 0 1",
            before: &["close /dev/nvidia1"],
            call: "open /dev/nvidia1",
            want: &[
                ("gpu.driver.call", "open"),
                ("gpu.driver.device", "195:1"),
                ("gpu.stall.cause", "slow_open"),
            ],
            evidence: "a GPU is brought up",
        },
        Hung {
            module: Module::Nvidia,
            rule: "hang close 1 0 1",
            before: &[],
            call: "close /dev/nvidia1",
            want: &[("gpu.driver.call", "close"), ("gpu.driver.device", "195:1")],
            evidence: "state D",
        },
        Hung {
            module: Module::Nvidia,
            rule: "hang mmap 0 0 1",
            before: &[],
            call: &format!("mmap {GPU_NODE}"),
            want: &[("gpu.driver.call", "mmap"), ("gpu.driver.device", "195:0")],
            evidence: "state D",
        },
        Hung {
            module: Module::Nvidia,
            rule: "hang poll 0 0 1",
            before: &[],
            call: &format!("poll {GPU_NODE} 0"),
            want: &[("gpu.driver.call", "poll"), ("gpu.driver.device", "195:0")],
            evidence: "state D",
        },
        Hung {
            module: Module::Uvm,
            rule: "hang api 0 37 1",
            before: &[],
            call: &format!("ioctl {UVM_NODE} 37"),
            want: &[
                ("gpu.driver.call", "ioctl"),
                ("gpu.driver.device", &uvm),
                ("gpu.driver.operation", "UVM_REGISTER_GPU"),
            ],
            evidence: "in uvm_api_register for",
        },
        Hung {
            module: Module::Uvm,
            rule: "hang fault 0 0 1",
            before: &[&format!("mmap {UVM_NODE}")],
            call: "touch",
            want: &[("gpu.driver.call", "fault")],
            evidence: "state D",
        },
        Hung {
            module: Module::Uvm,
            rule: "hang fault 0 0 1",
            before: &[],
            call: &format!("nested {CONTROL_NODE} {CONTROL}"),
            want: &[("gpu.driver.call", "ioctl"), ("gpu.driver.device", "195:255")],
            evidence: "in another call (fault) for",
        },
    ];
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE, GPU_NODE, UVM_NODE]);
    let pid = caller.pid();
    for (number, hung) in cases.iter().enumerate() {
        for call in hung.before {
            caller.call(call);
        }
        hung.module.order(hung.rule);
        caller.begin(hung.call);
        wait_hanging(hung.module, 1);
        let rule = hung.rule;
        let begin = wait_for(&format!("the stall of {rule}"), 20, || {
            watched.stalls(&pid, "begin").into_iter().nth(number)
        });
        assert_eq!(hung.module.number("hanging"), Some(1), "{rule}: told while it hangs");
        for (name, want) in hung.want {
            assert_eq!(begin.get(name), *want, "{rule}: {name} of {begin:?}");
        }
        assert_eq!(begin.get("thread.id"), pid, "{rule}");
        assert_eq!(begin.get("k8s.pod.uid"), pod.pod_uid, "{rule}");
        assert_eq!(begin.get("container.id"), pod.container_id, "{rule}");
        assert_eq!(begin.get("process.linux.cgroup"), pod.path(), "{rule}");
        assert!(begin.get("gpu.stall.evidence").contains(hung.evidence), "{rule}: {begin:?}");
        hung.module.order("release");
        let answer = caller.answer();
        assert!(answer.value.is_ok(), "{rule}: {answer:?}");
        let end = wait_for(&format!("the end of {rule}"), 20, || {
            watched.stalls(&pid, "end").into_iter().nth(number)
        });
        assert_eq!(end.get("gpu.stall.id"), begin.get("gpu.stall.id"), "{rule}");
        let said: f64 = end.get("gpu.stall.duration").parse().unwrap();
        let took = answer.took.as_secs_f64();
        assert!(said <= took && took - said < 0.5, "{rule}: {said} s, {took} s by its own clock");
    }
    watched.wait_quiet();
    watched.assert_nothing_lost();
    assert_eq!(watched.stalls(&pid, "unobserved"), []);
    assert_eq!(watched.stalls(&pid, "end").len(), cases.len(), "each told once");
}

/// From the moment that a call has lasted too long to the record at the receiver.
#[test]
fn a_call_in_state_d_is_exported_within_two_seconds_of_its_threshold() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let mut caller = Caller::start();
    caller.open(&[CONTROL_NODE]);
    for round in 0..3 {
        Module::Nvidia.order("hang rm 255 0x2a 1");
        let begun = Instant::now();
        caller.begin(&format!("ioctl {CONTROL_NODE} {CONTROL}"));
        let begin =
            wait_for("the stall", 20, || watched.stalls(&caller.pid(), "begin").into_iter().nth(round));
        let (after, received) = (begun.elapsed(), wall_ns());
        assert_eq!(Module::Nvidia.number("hanging"), Some(1), "told while it hangs");
        assert!(after <= THRESHOLD + Duration::from_secs(2), "{after:?}");
        assert!(THRESHOLD <= after, "{after:?} is too early");
        assert!(begin.observed <= received, "{begin:?}");
        assert!(begin.get("gpu.stall.evidence").contains("state D"), "{begin:?}");
        Module::Nvidia.order("release");
        assert_eq!(caller.answer().value, Ok(0));
    }
}

#[test]
fn twenty_four_at_once_all_have_their_ends() {
    needs!(Vm);
    overlapping(44, 24);
}

#[test]
fn two_hundred_at_once_all_have_their_ends() {
    needs!(Vm);
    overlapping(45, 200);
}

fn overlapping(pod: u32, calls: usize) {
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, pod);
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    let pid = caller.pid();
    Module::Nvidia.order("hang ioctl 255 0x2a");
    caller.begin(&format!("crowd {calls} {CONTROL_NODE} {CONTROL}"));
    wait_hanging(Module::Nvidia, calls as u64);
    wait_for("all stalls", 60, || (watched.stalls(&pid, "begin").len() == calls).then_some(()));
    assert_eq!(Module::Nvidia.number("hanging"), Some(calls as u64));
    let ended = count(Module::Nvidia, "ioctl").ended;
    Module::Nvidia.order("clear");
    assert_eq!(caller.answer().value, Ok(calls as i64));
    assert_eq!(count(Module::Nvidia, "ioctl").ended - ended, calls as u64);

    wait_for("all ends", 60, || (calls <= watched.stalls(&pid, "end").len()).then_some(()));
    let of = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", "ioctl")];
    watched.wait_sum(DURATION, &of, calls as f64);
    watched.wait_quiet();
    watched.assert_nothing_lost();
    caller.end();
    let told = |watched: &mut Shared, state| watched.stalls(&pid, state).len();
    assert_eq!(
        (told(&mut watched, "begin"), told(&mut watched, "end"), told(&mut watched, "unobserved")),
        (calls, calls, 0)
    );
}

#[test]
fn a_killed_process_leaves_no_open_stall() {
    needs!(Vm);
    let mut watched = Shared::agent();
    for (module, rule, call, calls) in [
        (Module::Nvidia, "hangk ioctl 255 0x2a", format!("crowd 8 {CONTROL_NODE} {CONTROL}"), 8),
        (Module::Nvidia, "hangk rm 255 0x2a", format!("crowd 8 {CONTROL_NODE} {CONTROL}"), 8),
        (Module::Uvm, "hangk fault 0 0", "touch".to_owned(), 1),
    ] {
        let mut caller = Caller::start();
        caller.open(&[CONTROL_NODE, UVM_NODE]);
        caller.call(&format!("mmap {UVM_NODE}"));
        let pid = caller.pid();
        module.order(rule);
        caller.begin(&call);
        wait_hanging(module, calls);
        let told = |watched: &mut Shared, state: &str| -> BTreeSet<String> {
            watched.stalls(&pid, state).iter().map(|r| r.get("gpu.stall.id").to_owned()).collect()
        };
        wait_for(&format!("stalls of {rule}"), 20, || {
            (told(&mut watched, "begin").len() as u64 == calls).then_some(())
        });
        caller.kill();
        module.order("clear");
        wait_for(&format!("ends of {rule}"), 20, || {
            let (begun, ended) = (told(&mut watched, "begin"), told(&mut watched, "end"));
            (begun == &ended | &told(&mut watched, "unobserved")).then_some(())
        });
        watched.wait_quiet();
    }
    watched.assert_nothing_lost();
}

/// Its files are closed after its end: the one who waits then is a thread of nobody's, and still this process's.
#[test]
fn a_killed_process_that_hangs_in_its_last_close_is_told() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 43);
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE]);
    let pid = caller.pid();
    Module::Nvidia.order("hang close 255 0 1");
    caller.kill_unwaited();
    wait_hanging(Module::Nvidia, 1);
    let begin = watched.wait_stall(&pid, "begin");
    assert_eq!(Module::Nvidia.number("hanging"), Some(1), "told while it hangs");
    assert_eq!((begin.get("gpu.driver.call"), begin.get("gpu.driver.device")), ("close", "195:255"));
    assert_eq!(begin.get("k8s.pod.uid"), pod.pod_uid);
    Module::Nvidia.order("clear");
    let end = watched.wait_stall(&pid, "end");
    assert_eq!(end.get("gpu.stall.id"), begin.get("gpu.stall.id"));
    watched.wait_quiet();
}
