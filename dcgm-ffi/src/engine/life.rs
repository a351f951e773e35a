//! The life of an engine, call by call: what is asked of the library, in which order, and what is done with
//! its answers.
//!
//! In: scripts of return codes as they were measured on the vendor's engine. Out: tests.

use std::time::Duration;

use super::fake::Fake;
use super::{Engine, FieldGroup, Group};
use crate::address::Address;
use crate::entity::{Entity, EntityGroup};
use crate::error::Error;
use crate::field_kind::FieldKind;
use crate::library::{FieldMeta, Library};
use crate::return_code::ReturnCode;
use crate::version::Version;

const SECOND: Duration = Duration::from_secs(1);

fn connect(library: &Library) -> Result<Engine<'_>, Error> {
    library.connect(&Address::Host("node:5555".into()), Duration::from_millis(250))
}

fn watched(engine: &Engine<'_>) -> (Group, FieldGroup) {
    let group = engine.group("gpus", &[Entity::gpu(0)]).unwrap();
    let fields = engine.field_group("performance", &[150, 155]).unwrap();
    engine.watch(group, fields, SECOND, 30 * SECOND, 0).unwrap();
    (group, fields)
}

#[test]
fn what_was_made_is_taken_back_in_order() {
    let fake = Fake::new("4.6.0");
    let library = fake.open();
    let engine = connect(&library).unwrap();
    let (group, _) = watched(&engine);
    assert_eq!(engine.all_gpus().unwrap().len(), 32, "a count beyond the array is cut");
    let begin = [
        "dcgmConnect_v2 node:5555 250 0",
        "dcgmHostengineVersionInfo 0x4d",
        "dcgmGroupCreate 1 gpus",
        "dcgmGroupAddEntity 4 1/0",
        "dcgmFieldGroupCreate 2 performance",
        "dcgmWatchFields 4 5 1000000 30 0",
        "dcgmGetAllDevices",
    ];
    assert_eq!(fake.log(), begin);
    let second = engine.group("other", &[]).unwrap();
    engine.destroy_group(second).unwrap();
    fake.log();
    drop(engine);
    library.shutdown();
    let end = [
        "dcgmUnwatchFields 4 5",
        "dcgmFieldGroupDestroy 5",
        "dcgmGroupDestroy 4",
        "dcgmDisconnect 0x4d",
        "dcgmShutdown",
    ];
    assert_eq!(fake.log(), end, "{group:?}");
}

#[test]
fn an_engine_that_does_not_answer_is_asked_once_only() {
    let fake = Fake::new("4.6.0");
    let library = fake.open();
    let engine = connect(&library).unwrap();
    watched(&engine);
    fake.log();
    fake.answers("dcgmUnwatchFields", &[-11]);
    drop(engine);
    assert_eq!(fake.log(), ["dcgmUnwatchFields 4 5", "dcgmDisconnect 0x4d"]);
}

#[test]
fn a_connection_counts_when_somebody_answers() {
    // What connect answers, what the first request answers, the handle written, and the error.
    type Case = (i32, i32, Option<usize>, fn(&Error) -> bool);
    let dead = |error: &Error| matches!(error, Error::DeadConnection { .. }) && error.is_disconnected();
    let cases: [Case; 4] = [
        (-21, 0, Some(77), |e| *e == Error::Call { function: "dcgmConnect_v2", code: ReturnCode(-21) }),
        (0, -21, Some(77), dead),
        (0, -11, Some(77), dead),
        (0, 0, None, dead),
    ];
    for (connected, answered, handle, is_right) in cases {
        let fake = Fake::new("4.6.0");
        let library = fake.open();
        fake.answers("dcgmConnect_v2", &[connected]);
        fake.answers("dcgmHostengineVersionInfo", &[answered]);
        fake.handle(handle);
        let error = connect(&library).err().unwrap();
        assert!(is_right(&error), "{connected} {answered}: {error}");
        assert!(!error.remedy().is_empty());
        let given_back = fake.log().iter().filter(|call| *call == "dcgmDisconnect 0x4d").count();
        assert_eq!(given_back, usize::from(handle.is_some()), "{connected} {answered}");
    }
}

#[test]
fn addresses_reach_the_library_as_it_wants_them() {
    let fake = Fake::new("4.4.2");
    let library = fake.open();
    drop(library.connect(&Address::Unix("/tmp/e".into()), Duration::ZERO).unwrap());
    assert_eq!(fake.log()[0], "dcgmConnect_v2 /tmp/e 1 1", "0 ms would mean 5 s");
    let error = library.connect(&Address::parse("vsock://2:5555").unwrap(), SECOND).err().unwrap();
    assert_eq!(error, Error::NoUri { address: "vsock://2:5555".into() });
    assert!(error.remedy().contains("4.5"), "{}", error.remedy());
    assert_eq!(fake.log(), Vec::<String>::new());
}

#[test]
fn an_engine_inside_is_started_by_the_structure_of_the_version() {
    for (version, stamp) in [("4.6.0", "0x03000068"), ("4.2.3", "0x02000050"), ("3.1.3", "0x02000050")] {
        let fake = Fake::new(version);
        let library = fake.open();
        fake.handle(Some(0x7fff_ffff));
        drop(library.start_embedded().unwrap());
        let calls = [
            &format!("dcgmStartEmbedded_v2 {stamp} 1"),
            "dcgmHostengineVersionInfo 0x7fffffff",
            "dcgmStopEmbedded 0x7fffffff",
        ];
        assert_eq!(fake.log(), calls, "{version}");
    }
}

#[test]
fn what_an_engine_inside_keeps_ends_with_it() {
    let fake = Fake::new("4.6.0");
    let library = fake.open();
    fake.handle(Some(0x7fff_ffff));
    let engine = library.start_embedded().unwrap();
    engine.group("mine", &[Entity::gpu(0)]).unwrap();
    assert!(fake.log().iter().any(|call| call.starts_with("dcgmGroupCreate")));
    drop(engine);
    assert_eq!(fake.log(), ["dcgmStopEmbedded 0x7fffffff"], "each call would take its time");
}

#[test]
fn an_engine_that_already_runs_inside_is_taken_over_or_refused() {
    let fake = Fake::new("4.6.0");
    let library = fake.open();
    fake.answers("dcgmStartEmbedded_v2", &[-12]);
    fake.handle(None); // it succeeds and leaves the handle as it was
    let engine = library.start_embedded().unwrap();
    assert_eq!(
        fake.log(),
        [
            "dcgmStartEmbedded_v2 0x03000068 1",
            "dcgmStartEmbedded_v2 0x01000048 1",
            "dcgmHostengineVersionInfo 0x7fffffff"
        ]
    );
    assert_eq!(library.start_embedded().err(), Some(Error::AlreadyEmbedded));
    assert_eq!(fake.log(), Vec::<String>::new(), "ours is in use: nothing was asked");
    drop(engine);
    fake.answers("dcgmHostengineVersionInfo", &[-21]);
    assert!(library.start_embedded().is_err());
    assert!(library.start_embedded().is_ok(), "a failed start does not stand in the way");
}

#[test]
fn a_group_of_another_connection_is_refused() {
    let fake = Fake::new("4.6.0");
    let library = fake.open();
    let old = connect(&library).unwrap();
    let (group, fields) = watched(&old);
    drop(old);
    let new = connect(&library).unwrap();
    fake.log();
    let stale = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::Stale { .. })), "{result:?}");
    };
    stale(new.watch(group, fields, SECOND, SECOND, 0));
    stale(new.unwatch(group, fields));
    stale(new.add_entity(group, Entity::gpu(0)));
    stale(new.latest(group, fields, &mut |_, _| {}));
    stale(new.destroy_group(group));
    stale(new.destroy_field_group(fields));
    assert_eq!(fake.log(), Vec::<String>::new());
}

#[test]
fn bad_arguments_are_refused_before_the_engine_takes_them() {
    for (version, most) in [("3.3.9", 64), ("4.6.0", 1024)] {
        let fake = Fake::new(version);
        let library = fake.open();
        let engine = connect(&library).unwrap();
        let (group, fields) = watched(&engine);
        fake.log();
        let refused =
            |error: Option<Error>| assert!(matches!(error, Some(Error::Argument { .. })), "{error:?}");
        refused(engine.watch(group, fields, Duration::ZERO, SECOND, 0).err());
        refused(engine.watch(group, fields, Duration::from_nanos(999), SECOND, 0).err());
        refused(engine.watch(group, fields, Duration::MAX, SECOND, 0).err());
        refused(engine.watch(group, fields, SECOND, SECOND, -1).err());
        refused(engine.field_group("many", &[1; 129]).err());
        refused(engine.field_group("none", &[]).err());
        refused(engine.field_group("zero\0byte", &[1]).err());
        let entities: Vec<Entity> = (0..=most).map(Entity::gpu).collect();
        refused(engine.group("many", &entities).err());
        assert_eq!(fake.log(), Vec::<String>::new(), "{version}");
        assert_eq!(engine.entities_max(), most as usize);
    }
}

#[test]
fn a_name_that_is_taken_is_tried_anew_and_a_refused_entity_takes_its_group_along() {
    let fake = Fake::new("4.6.0");
    let library = fake.open();
    let engine = connect(&library).unwrap();
    fake.log();
    fake.answers("dcgmFieldGroupCreate", &[-26, -26]);
    engine.field_group("errors", &[230]).unwrap();
    assert_eq!(fake.log(), ["dcgmFieldGroupCreate 1 errors"; 3]);
    fake.answers("dcgmFieldGroupCreate", &[-26; 20]);
    let error = engine.field_group("errors", &[230]).err().unwrap();
    assert_eq!((error.code(), fake.log().len()), (Some(ReturnCode::DUPLICATE_KEY), 8));
    fake.answers("dcgmGroupAddEntity", &[0, -18]);
    let error = engine.group("gpus", &[Entity::gpu(0), Entity::gpu(1)]).err().unwrap();
    assert_eq!(error.code(), Some(ReturnCode::GPU_IS_LOST));
    assert_eq!(fake.log().last().unwrap(), "dcgmGroupDestroy 15");
}

#[test]
fn values_are_handed_on_after_the_call() {
    let fake = Fake::new("4.6.0");
    let library = fake.open();
    let engine = connect(&library).unwrap();
    let (group, fields) = watched(&engine);
    fake.values(&[(1, 0, 150, 7), (77, 0, 150, 7), (1, 1, 155, 8)]);
    let read = || {
        let mut seen = Vec::new();
        let result = engine.latest(group, fields, &mut |entity, value| seen.push((entity.id, value.field)));
        result.map(|()| seen)
    };
    fake.answers("dcgmGetLatestValues_v2", &[-3, 0, -3]);
    let old = read().err().unwrap();
    assert!(matches!(old, Error::EngineTooOld { .. }), "{old}");
    assert_eq!(read().unwrap(), [(0, 150), (1, 155)]);
    let other = read().err().unwrap();
    assert!(matches!(other, Error::Call { .. }), "it understood us before: {other}");
    // A closure may use the engine, and its panic crosses no C frame.
    let panics = std::panic::AssertUnwindSafe(|| {
        engine.latest(group, fields, &mut |_, _| {
            engine.all_gpus().unwrap();
            panic!("in the closure");
        })
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(read().unwrap().len(), 2);
}

#[test]
fn large_requests_are_split() {
    for (version, entities, fields, calls) in [
        ("3.3.9", 100, 1, &["64x1 0", "36x1 0"][..]),
        ("4.6.0", 300, 1, &["256x1 0", "44x1 0"]),
        ("4.6.0", 2, 130, &["2x128 0", "2x2 0"]),
        ("4.6.0", 3, 128, &["2x128 0", "1x128 0"]),
        ("4.6.0", 0, 5, &[]),
    ] {
        let fake = Fake::new(version);
        let library = fake.open();
        let engine = connect(&library).unwrap();
        fake.log();
        let entities: Vec<Entity> = (0..entities).map(Entity::gpu).collect();
        let fields: Vec<u16> = (1..=fields).collect();
        let mut seen = 0;
        engine.latest_of(&entities, &fields, &mut |_, _| seen += 1).unwrap();
        assert_eq!(seen, entities.len() * fields.len());
        let want: Vec<String> = calls.iter().map(|c| format!("dcgmEntitiesGetLatestValues {c}")).collect();
        assert_eq!(fake.log(), want);
    }
}

#[test]
fn an_older_engine_gets_the_older_structure() {
    let fake = Fake::new("4.6.0");
    let library = fake.open();
    let engine = connect(&library).unwrap();
    fake.log();
    fake.answers("dcgmGetNvLinkLinkStatus", &[-12, 0, -6]);
    engine.links().unwrap();
    assert_eq!(fake.log(), ["dcgmGetNvLinkLinkStatus 0x050042bc", "dcgmGetNvLinkLinkStatus 0x040039bc"]);
    assert_eq!(engine.links().err().and_then(|e| e.code()), Some(ReturnCode::NOT_SUPPORTED));
    assert_eq!(fake.log().len(), 1, "another refusal is no question of versions");
}

#[test]
fn a_missing_function_is_named_and_takes_nothing_else_with_it() {
    let fake = Fake::new("3.1.3");
    fake.lacks("dcgmGetNvLinkLinkStatus");
    let library = fake.open();
    let engine = connect(&library).unwrap();
    let missing = |name| Some(Error::Symbol { library: "test".into(), name });
    assert_eq!(engine.links().err(), missing("dcgmGetNvLinkLinkStatus"));
    assert_eq!(engine.architecture(0).err(), missing("dcgmGetGpuChipArchitecture"));
    assert_eq!(engine.detach_driver().err(), missing("dcgmDetachDriver"));
    assert_eq!(engine.all_gpus().unwrap()[0], 3);
}

#[test]
fn a_library_without_a_version_is_as_old_as_its_functions() {
    let cases: [(&[&'static str], Version); 5] = [
        (&[], Version::new(3, 1, 0)),
        (&["dcgmGetCpuHierarchy"], Version::new(3, 3, 0)),
        (&["dcgmGetCpuHierarchy", "dcgmPolicyRegister_v2"], Version::new(4, 0, 0)),
        (&["dcgmPolicyRegister_v2", "dcgmGetNvLinkP2PStatus"], Version::new(4, 3, 0)),
        (&["dcgmGetNvLinkP2PStatus", "dcgmConnect_v3"], Version::new(4, 5, 0)),
    ];
    for (functions, level) in cases {
        let fake = Fake::new("unreadable");
        functions.iter().for_each(|function| fake.has(function));
        let library = fake.open();
        assert_eq!((library.version(), library.level()), (None, level), "{functions:?}");
    }
}

#[test]
fn the_library_tells_what_it_knows_of_a_field() {
    let library = Fake::new("4.6.0").open();
    let meta = |tag: &str, id, kind, global, entity_level, nvml_field| {
        Some(FieldMeta { id, tag: tag.into(), kind, global, entity_level, nvml_field })
    };
    let driver = meta("driver_version", 1, Some(FieldKind::Str), true, Some(EntityGroup::None), None);
    assert_eq!(library.field(1), driver);
    let level = Some(EntityGroup::ComputeInstance);
    assert_eq!(library.field(1002), meta("sm_active", 1002, Some(FieldKind::Double), false, level, Some(74)));
    assert_eq!(library.field(1003), meta("later", 1003, None, false, None, None));
    assert_eq!(library.field(9), None);
}

#[test]
fn engines_may_be_used_from_several_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Library>();
    shared::<Engine<'_>>();
}
