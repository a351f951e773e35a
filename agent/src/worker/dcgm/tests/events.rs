//! XIDs and bind events: each once. Health: every device, each time.
//!
//! In: scripted events, as they were recorded of NVIDIA's engine. Out: rows. What can go wrong: nothing.

use super::super::engine::{Entity, GpuState, Incident, ReturnCode};
use super::super::fake::{EPOCH_US, Fake, Says};
use super::super::task::Memory;
use super::{ci, gi, just, mig, play, rows, watched};
use crate::wire::report::Kind;

const SECOND: i64 = 1_000_000;

/// XIDs of GPU 0 as (the engine learns of it, number, time of the sample) in ms, and what is told.
fn check(what: &str, xids: &[(i64, i64, i64)], want: &[&str]) {
    let fake = Fake::new(1);
    let us = |ms: i64| EPOCH_US + ms * 1_000;
    fake.world.borrow_mut().xids =
        xids.iter().map(|&(known, xid, at)| (us(known), Entity::gpu(0), xid, us(at))).collect();
    let told = just(&fake, &[150, 230], 12);
    assert_eq!(rows(&told, "GPU-0", 230), want, "{what}");
}

#[test]
fn each_xid_is_told_once() {
    check("none", &[], &[]);
    check("one", &[(2_500, 31, 2_500)], &["3:31"]);
    check("two at once", &[(2_500, 31, 2_400), (2_500, 13, 2_450)], &["3:31", "3:13"]);
    check("twice the same, a second apart", &[(2_500, 31, 2_500), (3_600, 31, 3_500)], &["3:31", "4:31"]);
    check("late, behind a newer one", &[(2_500, 31, 2_500), (5_100, 79, 2_000)], &["3:31", "6:79"]);
    check("one fault, told both ways", &[(2_500, 79, 2_500), (3_600, 79, 3_472)], &["3:79"]);
    check("two faults", &[(2_500, 79, 2_500), (6_600, 79, 6_500)], &["3:79", "7:79"]);
    check("an hour old at the start", &[(0, 79, -3_600_000)], &["0:79"]);
}

#[test]
fn a_new_engine_that_reads_the_old_log_again_tells_nothing_twice() {
    let mut memory = Memory::default();
    let fake = Fake::new(1);
    fake.world.borrow_mut().xids = vec![(0, Entity::gpu(0), 79, EPOCH_US - 3_600 * SECOND)];
    for (session, want) in [vec!["0:79"], vec![]].into_iter().enumerate() {
        let (told, _) = play(&fake, &mut memory, &[230], 3, &mut |_, _| Ok(()));
        assert_eq!(rows(&told, "GPU-0", 230), want, "session {session}");
    }
}

#[test]
fn an_xid_has_the_age_of_its_sample() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().xids = vec![(0, Entity::gpu(0), 79, EPOCH_US - 3_600 * SECOND)];
    let told = just(&fake, &[230], 1);
    let age = told.iter().find_map(|(_, kind)| match kind {
        Kind::Samples(samples) => samples.values.iter().find(|v| v.field == 230).map(|v| v.age_ns),
        _ => None,
    });
    assert_eq!(age.unwrap() / 1_000_000_000, 3_600);
}

#[test]
fn an_xid_of_an_instance_goes_to_its_device() {
    let fake = Fake::new(1);
    {
        let mut world = fake.world.borrow_mut();
        world.mig = vec![mig(gi(7), Entity::gpu(0)), mig(ci(7), gi(7)), mig(ci(8), gi(7))];
        let at = |n: i64| EPOCH_US + n * SECOND / 10;
        world.xids =
            vec![(at(1), gi(7), 13, at(1)), (at(2), ci(8), 31, at(2)), (at(3), Entity::gpu(0), 74, at(3))];
    }
    let told = just(&fake, &[230], 3);
    assert_eq!(rows(&told, "MIG-7", 230), ["1:13"]);
    assert_eq!(rows(&told, "MIG-8", 230), ["1:31"]);
    assert_eq!(rows(&told, "GPU-0", 230), ["1:74"]);
}

#[test]
fn a_bind_event_is_reported_once_and_an_old_one_never() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().value = Box::new(|_, field, _, us| match (field, us - EPOCH_US) {
        (6, ..2_000_000) => Says::At(EPOCH_US - SECOND, 2),
        (6, ..4_000_000) => Says::At(EPOCH_US + 2 * SECOND, 1),
        (6, _) => Says::At(EPOCH_US + 4 * SECOND, 2),
        _ => Says::Int(1),
    });
    let told = just(&fake, &[150], 8);
    let events: Vec<(i64, i64)> = told
        .iter()
        .filter_map(|(second, kind)| match kind {
            Kind::Bind(bind) => Some((*second, bind.event)),
            _ => None,
        })
        .collect();
    assert_eq!(events, [(2, 1), (4, 2)]);
}

#[test]
fn every_gpu_has_its_health_told_each_time() {
    let fake = Fake::new(2);
    let (told, _) = play(&fake, &mut Memory::default(), &[150], 14, &mut |second, _| {
        if second == 5 {
            let incident = Incident { systems: 0x2, level: 20, entity: Entity::gpu(1) };
            fake.world.borrow_mut().incidents = vec![incident];
        }
        Ok(())
    });
    let health: Vec<(i64, u32, u32)> = told
        .iter()
        .filter_map(|(second, kind)| match kind {
            Kind::Health(h) => Some((*second, h.key, h.levels.iter().sum())),
            _ => None,
        })
        .collect();
    assert_eq!(health, [(1, 1, 0), (1, 2, 0), (11, 1, 0), (11, 2, 2)]);
}

/// (second, key, sum of the levels) of each report.
fn health(told: &super::Told) -> Vec<(i64, u32, u32)> {
    let of = |(second, kind): &(i64, Kind)| match kind {
        Kind::Health(h) => Some((*second, h.key, h.levels.iter().sum())),
        _ => None,
    };
    told.iter().filter_map(of).collect()
}

#[test]
fn a_lost_gpu_is_not_healthy_and_takes_no_other_with_it() {
    let fake = Fake::new(2);
    fake.world.borrow_mut().gpus.get_mut(&0).unwrap().0 = GpuState::Lost;
    let told = just(&fake, &[150], 2);
    assert_eq!(health(&told), [(1, 2, 0)]);
    assert!(!watched(&fake, 6).concat().contains(&Entity::gpu(0)));
    let fake = Fake::new(2);
    let (told, _) = play(&fake, &mut Memory::default(), &[150], 12, &mut |second, _| {
        if second == 5 {
            fake.world.borrow_mut().gpus.get_mut(&1).unwrap().0 = GpuState::Lost;
        }
        Ok(())
    });
    assert_eq!(health(&told), [(1, 1, 0), (1, 2, 0), (11, 1, 0)]);
}

#[test]
fn what_gives_no_value_at_all_is_not_healthy() {
    // As after XID 119: every value is blank, and the check finds nothing.
    let fake = Fake::new(1);
    fake.world.borrow_mut().value = Box::new(|_, field, _, us| match field {
        150 | 155 if us >= EPOCH_US + 5 * SECOND => Says::Blank,
        _ => Says::Int(us),
    });
    assert_eq!(health(&just(&fake, &[150, 155], 32)), [(1, 1, 0)]);
}

#[test]
fn what_the_engine_forgot_is_watched_anew_and_what_it_refuses_is_told() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().xids = vec![(EPOCH_US + 30 * SECOND, Entity::gpu(0), 31, EPOCH_US + 30 * SECOND)];
    let mut calls = Vec::new();
    let (told, _) = play(&fake, &mut Memory::default(), &[230], 40, &mut |second, _| {
        let mut world = fake.world.borrow_mut();
        match second {
            2 => drop(world.refuses.insert("since", ReturnCode::NOT_CONFIGURED)),
            20 => drop(world.refuses.remove("since")),
            25 => drop(world.refuses.insert("check_health", ReturnCode::GENERIC_ERROR)),
            _ => {}
        }
        calls.push(fake.watch_calls.get());
        Ok(())
    });
    assert_eq!(rows(&told, "GPU-0", 230), ["30:31"]);
    assert_eq!(calls[19] - calls[1], 3, "at once, after a second, after ten");
    let notes: Vec<&str> = told
        .iter()
        .filter_map(|(_, kind)| match kind {
            Kind::Note(note) => Some(note.what.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("dcgmGetValuesSince_v2") && notes[1].starts_with("dcgmHealthCheck"));
}

#[test]
fn a_refused_health_watch_leaves_nothing_in_the_engine() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().refuses.insert("set_health", ReturnCode::MODULE_NOT_LOADED);
    just(&fake, &[150], 20);
    assert_eq!(fake.left(), 0);
}

#[test]
fn more_entities_than_a_group_holds_all_have_their_xids_told() {
    let fake = Fake::new(1);
    let ids: Vec<u32> = (0..100).collect();
    {
        let mut world = fake.world.borrow_mut();
        world.mig = ids.iter().flat_map(|id| [mig(gi(*id), Entity::gpu(0)), mig(ci(*id), gi(*id))]).collect();
        world.xids = vec![
            (EPOCH_US + SECOND / 2, ci(99), 31, EPOCH_US + SECOND / 2),
            (EPOCH_US + SECOND / 2, ci(0), 13, EPOCH_US + SECOND / 2),
            (EPOCH_US + SECOND / 2, Entity::gpu(0), 74, EPOCH_US + SECOND / 2),
        ];
    }
    let told = just(&fake, &[230], 8);
    assert_eq!(rows(&told, "MIG-99", 230), ["5:31"]);
    assert_eq!(rows(&told, "MIG-0", 230), ["5:13"]);
    assert_eq!(rows(&told, "GPU-0", 230), ["1:74"]);
}
