//! Limits, versions, and the faults of a scenario, through the exported functions.
//!
//! In: scenarios. Out: a failed test. The codes are those measured with the real engine (see the parent).

use std::ffi::CString;

use gpu_scenario::overlay::{EngineState, Overlay};
use gpu_scenario::simulator;

use super::rig::{Rig, START, scenario_text};
use crate::abi::devices::{DeviceAttributes, MigHierarchy};
use crate::abi::version_word;
use crate::calls::{devices, groups, health, session};
use crate::engine::groups::ALL_GPUS;

fn connected(scenario: &str, more: &str) -> Rig {
    let mut rig = Rig::of(scenario, more);
    rig.at(300);
    assert_eq!(rig.connect(), 0);
    rig
}

#[test]
fn groups_and_field_groups_run_out() {
    let rig = connected("h100x4", "");
    let name = CString::new("same").unwrap();
    let mut id = 0;
    // SAFETY: a text and a place for the id
    let mut create = || unsafe { groups::dcgmGroupCreate(rig.handle, 1, name.as_ptr(), &raw mut id) };
    let made = (0..100).take_while(|_| create() == 0).count();
    assert_eq!((made, create()), (62, -24), "names of groups need not differ");
    let made: Vec<(i32, usize)> = (0..62).map(|n| rig.field_group(&format!("f{n}"), &[150])).collect();
    assert_eq!((made[0], made[60].0, made[61].0), ((0, 4), 0, -24));
    assert_eq!(rig.field_group("f0", &[150]).0, -26);
    assert_eq!(rig.field_group("g", &[150, 1600]).0, -1, "an id of a later library");
}

#[test]
fn entities_are_taken_once_and_only_if_they_exist() {
    let rig = connected("h100mig", "");
    let wanted =
        [((1, 0), 0), ((1, 0), -1), ((1, 9), -1), ((0, 0), -1), ((4, 7), 0), ((4, 9), -1), ((6, 0x0101), 0)];
    let (_, codes) = rig.group(&wanted.map(|(entity, _)| entity));
    assert_eq!(codes, wanted.map(|(_, code)| code));
}

#[test]
fn a_refused_field_undoes_the_whole_watch_call() {
    let rig = connected("fault-refused-field", "");
    let (_, fields) = rig.field_group("f", &[150, 1003]);
    assert_eq!(rig.watch(ALL_GPUS, fields, 1000), -38);
    let (code, seen) = rig.latest(ALL_GPUS, fields);
    assert_eq!((code, seen.len()), (0, 8));
    assert!(seen.iter().all(|seen| seen.status == -16), "{seen:?}");
}

#[test]
fn two_fields_spoil_one_another_only_together() {
    let rig = connected("fault-spoil", "");
    let values = |name: &str, fields: &[u16]| {
        let (_, id) = rig.field_group(name, fields);
        assert_eq!(rig.watch(ALL_GPUS, id, 1000), 0);
        let seen = rig.latest(ALL_GPUS, id).1;
        assert_eq!(groups::dcgmUnwatchFields(rig.handle, ALL_GPUS, id), 0);
        seen.into_iter().map(|seen| (seen.status, seen.value == "blank")).collect::<Vec<_>>()
    };
    assert_eq!(values("both", &[310, 1200, 1211]), vec![(0, true); 6]);
    rig.at(1300);
    assert_eq!(values("one", &[310]), vec![(0, false); 2]);
    assert_eq!(values("other", &[1200, 1211]), vec![(0, false); 4]);
}

#[test]
fn an_older_engine_answers_latest_values_with_20() {
    let rig = connected("fault-old-engine", "");
    let (_, fields) = rig.field_group("f", &[150]);
    assert_eq!(rig.watch(ALL_GPUS, fields, 1000), 0);
    assert_eq!(rig.latest(ALL_GPUS, fields).0, -20);
    assert_eq!(rig.of_entities(&[(1, 0)], &[150], 0).0, -20);
    assert_eq!(rig.since(ALL_GPUS, fields, 0).0, 0, "values since a time have no new sub-command");
}

#[test]
fn versions_decide_structs_and_calls() {
    // SAFETY: structs of numbers, for which zero is a value
    let mut group = unsafe { Box::<crate::abi::values::GroupInfoV3>::new_zeroed().assume_init() };
    for (scenario, word, code) in
        [("h100x4", 0x0300_2108, 0), ("h100x4", 0x0200_0308, -12), ("fault-library-3", 0x0300_2108, -12)]
    {
        let rig = connected(scenario, "");
        group.version = word;
        // SAFETY: a place as large as the largest form
        let found = unsafe { groups::dcgmGroupGetInfo(rig.handle, ALL_GPUS, &raw mut *group) };
        assert_eq!(found, code, "{scenario} {word:x}");
        let calls = if scenario == "h100x4" { 0 } else { -20 };
        assert_eq!(session::dcgmDetachDriver(rig.handle), calls, "{scenario}");
        assert_eq!(session::dcgmAttachDriver(rig.handle), calls, "{scenario}");
        // SAFETY: a struct of numbers, with a wrong version word
        let mut attributes = unsafe { Box::<DeviceAttributes>::new_zeroed().assume_init() };
        attributes.version = 7;
        // SAFETY: a place of the right kind
        assert_eq!(unsafe { devices::dcgmGetDeviceAttributes(rig.handle, 0, &raw mut *attributes) }, -12);
    }
}

#[test]
fn a_dead_or_foreign_handle_and_a_missing_init() {
    let mut rig = Rig::of("h100x4", "");
    let status = |handle| groups::dcgmGroupDestroy(handle, 99);
    assert_eq!(status(5), -21);
    rig.at(300);
    assert_eq!(rig.connect(), 0);
    assert_eq!(status(rig.handle), -5);
    assert_eq!(session::dcgmDisconnect(rig.handle), 0);
    assert_eq!(status(rig.handle), -21);
    assert_eq!(session::dcgmShutdown(), 0);
    assert_eq!(status(rig.handle), -10);
}

#[test]
fn the_embedded_engine_runs_once() {
    let rig = Rig::of("h100x4", "");
    let (mut first, mut second) = (0, 77);
    // SAFETY: places for handles
    unsafe {
        assert_eq!(session::dcgmStartEmbedded(1, &raw mut first), 0);
        assert_eq!(session::dcgmStartEmbedded(1, &raw mut second), 0);
    }
    assert_eq!((first, second), (0x7fff_ffff, 77), "the second handle stays untouched");
    assert_eq!((session::dcgmStopEmbedded(1), session::dcgmStopEmbedded(first)), (-1, 0));
    drop(rig);
}

#[test]
fn a_call_hangs_until_the_fault_is_gone() {
    let rig = connected("h100x4", "faults:\n- hang: {call: dcgmGetLatestValues_v2, from: 1, seconds: 20}\n");
    let (_, fields) = rig.field_group("f", &[150]);
    assert_eq!(rig.watch(ALL_GPUS, fields, 1000), 0);
    assert_eq!(rig.latest(ALL_GPUS, fields).0, 0);
    rig.at(1500);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // time goes on in leaps while the call waits
        scope.spawn(|| {
            let mut now = START + 1_500_000;
            while !done.load(std::sync::atomic::Ordering::SeqCst) && now < START + 3_600_000_000 {
                now += 1_000_000;
                simulator().set_time(Some(now));
                std::thread::yield_now();
            }
        });
        let (code, seen) = rig.latest(ALL_GPUS, fields);
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!((code, seen.len()), (0, 4));
        assert!(START + 21_500_000 <= simulator().now_us(), "it blocked for 20 s at least");
    });
}

#[test]
fn a_hung_engine_times_out_and_a_connect_to_it_returns_a_dead_handle() {
    let text = scenario_text("h100x4") + "request_timeout: 0.05\n";
    let mut rig = Rig::of_text(&text);
    simulator().set_time(None); // the waits are real ones
    assert_eq!(rig.connect(), 0);
    simulator().inject(Overlay { engine: EngineState::Hung, ..Overlay::default() });
    assert_eq!(groups::dcgmGroupDestroy(rig.handle, 99), -11);
    let alive = rig.handle;
    assert_eq!(rig.connect(), 0, "the return value is that of the clean-up");
    assert_eq!(groups::dcgmGroupDestroy(rig.handle, 99), -21);
    simulator().inject(Overlay::default());
    assert_eq!(groups::dcgmGroupDestroy(alive, 99), -5, "the old handle works again");
}

#[test]
fn instances_change_under_the_client() {
    let rig = connected("mig-names", "");
    let names = || {
        // SAFETY: a struct of numbers
        let mut list = unsafe { Box::<MigHierarchy>::new_zeroed().assume_init() };
        list.version = version_word::<MigHierarchy>(2);
        // SAFETY: a place of the right kind
        assert_eq!(unsafe { devices::dcgmGetGpuInstanceHierarchy(rig.handle, &raw mut *list) }, 0);
        list.entityList[..list.count as usize]
            .iter()
            .map(|e| (e.entity.entityId, e.info.nvmlProfileSlices))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), [(0, 1), (0, 1)]);
    let (_, fields) = rig.field_group("f", &[50]);
    let (group, _) = rig.group(&[(5, 0)]);
    assert_eq!(rig.watch(group, fields, 1000), 0);
    assert_eq!(rig.latest(group, fields).1[0].value, "1g.11gb", "DCGM's name, not NVML's");
    let text = "mig:\n  0:\n  - {profile: 3g.47gb, uuid: MIG-a}\n  - {profile: 2g.24gb, uuid: MIG-b}\n";
    rig.at(2000);
    simulator().inject(gpu_scenario::load::overlay_from("now", text).unwrap());
    assert_eq!(names(), [(0, 3), (0, 3), (1, 2), (1, 2)]);
}

#[test]
fn reads_of_the_driver_come_in_another_order() {
    let rig = connected("h100x4", "live_profiling_crashes: false\n");
    let order = |fields: &[u16]| {
        let (code, seen) = rig.of_entities(&[(1, 0)], fields, 1);
        (code, seen.into_iter().map(|seen| seen.field).collect::<Vec<_>>())
    };
    assert_eq!(order(&[156, 150, 310, 155]), (0, vec![150, 155, 156, 310]));
    assert_eq!(order(&[150, 230]).0, -3, "an event has no live value");
    assert_eq!(order(&[150, 1001]).0, 0, "this scenario says that the engine does not die of it");
}

#[test]
fn pausing_depends_on_who_serves() {
    for (scenario, code) in [("h100x4", -6), ("t4x1", -33), ("mixed-profiling", 0)] {
        let rig = connected(scenario, "");
        assert_eq!(health::dcgmProfPause(rig.handle), code, "{scenario}");
        assert_eq!(health::dcgmProfResume(rig.handle), code, "{scenario}");
    }
}
