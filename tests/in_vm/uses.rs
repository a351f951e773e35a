//! What ends a process's use of a GPU, and what becomes of a process that runs another program; the driver's power.

use warpgauge::model::Signal;
use warpgauge::model::signal::ModuleState;
use warpgauge::sources::probes::events::Events;
use warpgauge::sources::probes::functions;
use warpgauge::sources::probes::hooks::{Edge, Event as At, Hook};
use warpgauge_ebpf::event::{Event, power, what};
use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::needs;

use super::caller::{CONTROL, CONTROL_NODE, Caller, UVM_NODE};
use super::watched::Shared;
use crate::known_processes::programs_of;

/// The UUID of the double's second and of its third GPU, as words of a block.
const SECOND: &str = "0=0x1eaba15c 4=0x00400000 8=0x00000080 12=0x01000000";
const THIRD: &str = "0=0x1eaba15c 4=0x00400000 8=0x00000080 12=0x02000000";
const SECOND_GPU: &str = "GPU-5ca1ab1e-0000-4000-8000-000000000001";
const THIRD_GPU: &str = "GPU-5ca1ab1e-0000-4000-8000-000000000002";

const REGISTER_GPU: u32 = 37;
const UNREGISTER_GPU: u32 = 38;

/// Hangs until it is told; gives the device of that stall, which is this process's `number`th (from 0).
#[track_caller]
fn device_of_stall(watched: &mut Shared, caller: &mut Caller, number: usize) -> String {
    Module::Nvidia.order("hang ioctl 255 0x2a 1");
    caller.begin(&format!("ioctl {CONTROL_NODE} {CONTROL}"));
    let begin = wait_for(&format!("stall {number}"), 20, || {
        watched.stalls(&caller.pid(), "begin").into_iter().nth(number)
    });
    Module::Nvidia.order("clear");
    assert_eq!(caller.answer().value, Ok(0));
    begin.get("hw.id").to_owned()
}

/// A process of two GPUs is of neither; of the one that it lets go it is no more.
#[test]
fn a_gpu_that_is_let_go_is_used_no_more() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 81);
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE, UVM_NODE]);
    let call = |caller: &mut Caller, call: u32, uuid: &str| {
        caller.call(&format!("ioctl {UVM_NODE} {call} {uuid}"));
    };
    call(&mut caller, REGISTER_GPU, SECOND);
    assert_eq!(device_of_stall(&mut watched, &mut caller, 0), SECOND_GPU);
    call(&mut caller, REGISTER_GPU, THIRD);
    assert_eq!(device_of_stall(&mut watched, &mut caller, 1), "", "it may be either");
    call(&mut caller, UNREGISTER_GPU, SECOND);
    assert_eq!(device_of_stall(&mut watched, &mut caller, 2), THIRD_GPU);
    call(&mut caller, UNREGISTER_GPU, THIRD);
    assert_eq!(device_of_stall(&mut watched, &mut caller, 3), "");
}

/// The former program's GPU is not the next one's, although the process is the same.
#[test]
fn another_program_has_no_gpu_before_it_registers() {
    needs!(Vm);
    let mut watched = Shared::agent();
    let pod = PodCgroup::new(Version::V2, 82);
    let mut caller = Caller::in_pod(&pod, &[CONTROL_NODE, UVM_NODE]);
    let pid = caller.pid();
    caller.call(&format!("ioctl {UVM_NODE} {REGISTER_GPU} {SECOND}"));
    assert_eq!(device_of_stall(&mut watched, &mut caller, 0), SECOND_GPU);
    caller.exec();
    assert_eq!(caller.pid(), pid);
    caller.open(&[CONTROL_NODE, UVM_NODE]);
    assert_eq!(device_of_stall(&mut watched, &mut caller, 1), "");
    caller.call(&format!("ioctl {UVM_NODE} {REGISTER_GPU} {THIRD}"));
    assert_eq!(device_of_stall(&mut watched, &mut caller, 2), THIRD_GPU);
    let told = watched.stalls(&pid, "begin");
    assert!(told.iter().all(|stall| stall.get("k8s.pod.uid") == pod.pod_uid), "{told:?}");
    watched.wait_quiet();
}

#[test]
fn the_driver_going_to_sleep_and_waking_up_is_told() {
    needs!(Vm);
    let _shared = Shared::agent(); // for the rules of the double; it sees the same events in its own maps
    let at = At::KprobeEvent {
        module: functions::Module::Nvidia,
        function: "nv_set_system_power_state".to_owned(),
        edge: Edge::Entry,
    };
    let hook = Hook { program: "kp_power", event: at, optional: false };
    // this process gives the orders, and must be seen
    let mut loaded = programs_of(1, &[hook]);
    let mut seen = Vec::new();
    for (order, code, state) in [
        ("power standby", power::STANDBY, ModuleState::Suspending),
        ("power running", power::RUNNING, ModuleState::Loaded),
        ("power hibernate", power::HIBERNATE, ModuleState::Suspending),
        ("power running", power::RUNNING, ModuleState::Loaded),
    ] {
        Module::Nvidia.order(order);
        let event = wait_for(order, 10, || {
            let item = loaded.events.next()?;
            Event::from_bytes(&item).filter(|event| event.what == what::POWER)
        });
        assert_eq!((event.code, event.tgid), (code, std::process::id()), "{order}");
        let mut said = Vec::new();
        Events::default().take(&event, &mut |signal| said.push(signal));
        let [Signal::Driver { at, driver }] = said.as_slice() else { panic!("{order}: {said:?}") };
        assert_eq!(driver.state, state, "{order}");
        seen.push(*at);
    }
    assert!(seen.is_sorted(), "{seen:?}");
}
