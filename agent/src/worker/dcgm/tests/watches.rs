//! Watching: a refused field takes no other with it, conflicts are found, what is gone is watched again.
//!
//! In: scripted refusals. Out: what is watched, and rows. What can go wrong: nothing.

use super::super::engine::{Entity, ReturnCode};
use super::super::fake::{EPOCH_US, Fake, Says};
use super::super::task::Memory;
use super::{just, play, rows, states, watched};
use crate::wire::report::Kind;

#[test]
fn a_refused_field_takes_no_other_with_it() {
    let fake = Fake::new(2);
    fake.world.borrow_mut().watch = Box::new(|_, fields| match fields.contains(&240) {
        true => Err(ReturnCode::NOT_SUPPORTED),
        false => Ok(()),
    });
    let fields: Vec<u16> = vec![150, 151, 152, 153, 155, 156, 157, 200, 201, 202, 203, 240, 241, 242, 243];
    let told = just(&fake, &fields, 2);
    for gpu in ["GPU-0", "GPU-1"] {
        for &field in fields.iter().filter(|f| **f != 240) {
            assert_eq!(rows(&told, gpu, field), ["0:0", "1:1"], "{field}");
        }
        assert_eq!(rows(&told, gpu, 240), ["0:not_supported"]);
    }
}

#[test]
fn only_the_gpu_that_refuses_goes_without() {
    let fake = Fake::new(3);
    fake.world.borrow_mut().watch = Box::new(|entities, fields| {
        let is_bad = entities.contains(&Entity::gpu(1)) && fields.contains(&310);
        if is_bad { Err(ReturnCode::NO_PERMISSION) } else { Ok(()) }
    });
    let told = just(&fake, &[150, 155, 310, 311], 2);
    assert_eq!(rows(&told, "GPU-0", 310), ["0:0", "1:1"]);
    assert_eq!(rows(&told, "GPU-1", 310), ["0:not_permitted"]);
    assert_eq!(rows(&told, "GPU-1", 311), ["0:0", "1:1"]);
    assert_eq!(rows(&told, "GPU-2", 310), ["0:0", "1:1"]);
    assert!(fake.watch_calls.get() < 20, "{}", fake.watch_calls.get());
}

#[test]
fn an_engine_that_refuses_everything_is_not_asked_without_end() {
    let fake = Fake::new(8);
    fake.world.borrow_mut().watch = Box::new(|_, _| Err(ReturnCode::GENERIC_ERROR));
    let fields: Vec<u16> = (1..1_000).filter(|id| dcgm_ffi::field_table::by_id(*id).is_some()).collect();
    let told = just(&fake, &fields, 2);
    assert_eq!(rows(&told, "GPU-7", 150), ["0:refused"]);
    assert!(fake.watch_calls.get() < 1_000, "{}", fake.watch_calls.get());
}

#[test]
fn what_was_refused_is_tried_again_after_five_minutes() {
    let fake = Fake::new(1);
    let refuse = |fake: &Fake, so: bool| {
        fake.world.borrow_mut().watch =
            Box::new(
                move |_, fields| {
                    if so && fields.contains(&240) { Err(ReturnCode::NOT_SUPPORTED) } else { Ok(()) }
                },
            );
    };
    refuse(&fake, true);
    let (told, _) = play(&fake, &mut Memory::default(), &[150, 240], 303, &mut |second, _| {
        if second == 100 {
            refuse(&fake, false);
        }
        Ok(())
    });
    let rows = rows(&told, "GPU-0", 240);
    let refused = rows.iter().filter(|row| row.ends_with("not_supported")).count();
    assert!((25..=31).contains(&refused), "each ten seconds: {refused}");
    assert_eq!(rows[refused..], ["300:300", "301:301", "302:302"]);
}

#[test]
fn a_field_that_the_library_does_not_know_is_unknown() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().unknown.insert(1091);
    let told = just(&fake, &[150, 1091], 1);
    assert_eq!(rows(&told, "GPU-0", 1091), ["0:unknown_field"]);
    assert_eq!(rows(&told, "GPU-0", 150), ["0:0"]);
}

#[test]
fn a_field_of_a_kind_of_device_that_is_not_here_is_not_silently_missing() {
    let told = just(&Fake::new(1), &[150, 858, 1100, 501], 1);
    for field in [858, 1100, 501] {
        assert_eq!(rows(&told, "GPU-0", field), ["0:not_found"], "{field}");
    }
}

#[test]
fn two_fields_that_spoil_one_another_are_watched_apart() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().value = Box::new(|entity, field, with, us| {
        let spoilt = with.contains(&310) && with.contains(&1_205);
        match field {
            52 | 55 => Says::Int(entity.id.into()),
            _ if spoilt => Says::Blank,
            _ => Says::Int((us - EPOCH_US) / 1_000_000),
        }
    });
    let fields: Vec<u16> = std::iter::once(310).chain(1_200..1_212).collect();
    // Fields 1200… are of links.
    let link = Entity::new(super::super::engine::EntityGroup::Link, 1);
    let known = |id: u16| dcgm_ffi::field_table::by_id(id).unwrap().level;
    assert_eq!(known(310), super::super::engine::EntityGroup::Gpu);
    if known(1_200) == super::super::engine::EntityGroup::Link {
        fake.world.borrow_mut().links = vec![(Entity::gpu(0), 0, link)];
    }
    let told = just(&fake, &fields, 30);
    for field in &fields {
        let rows = rows(&told, "GPU-0", *field);
        assert!(
            rows.last().is_some_and(|row| row.starts_with("29") && row.ends_with(":29")),
            "{field}: {rows:?}"
        );
    }
}

#[test]
fn a_pair_in_one_group_is_split_and_told_once() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().value = Box::new(|entity, field, with, us| match field {
        52 | 55 => Says::Int(entity.id.into()),
        _ if with.contains(&310) && with.contains(&396) => Says::Blank,
        _ => Says::Int((us - EPOCH_US) / 1_000_000),
    });
    let fields: Vec<u16> = vec![310, 311, 312, 313, 390, 391, 392, 393, 394, 395, 396];
    let told = just(&fake, &fields, 20);
    for field in &fields {
        let rows = rows(&told, "GPU-0", *field);
        assert_eq!(rows.last().unwrap(), "19:19", "{field}: {rows:?}");
    }
    let apart =
        |state: &Kind| matches!(state, Kind::Note(s) if s.what.contains("310, 311, 312, 313, 390, 391 with"));
    assert!(told.iter().any(|(_, kind)| apart(kind)));
    let conflicts = states(&told).iter().filter(|state| state.ends_with("conflict")).count();
    assert_eq!(conflicts, 1, "{:?}", states(&told));
}

#[test]
fn blank_for_another_reason_is_not_split_without_end() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().value = Box::new(|_, field, _, _| match field {
        52 | 55 => Says::Int(0),
        _ => Says::Blank,
    });
    let mut sets = Vec::new();
    let (told, _) = play(&fake, &mut Memory::default(), &[310, 311, 312, 313], 500, &mut |second, _| {
        if second == 400 {
            sets = watched(&fake, 310);
        }
        Ok(())
    });
    assert!(fake.watch_calls.get() < 12, "one try: {}", fake.watch_calls.get());
    assert!(states(&told).iter().all(|state| !state.ends_with("conflict")));
    assert_eq!(sets.len(), 1);
    assert_eq!(rows(&told, "GPU-0", 310)[..2], ["7:blank", "17:blank"]);
}

#[test]
fn a_watch_that_the_engine_forgot_is_made_again() {
    let fake = Fake::new(1);
    let (told, _) = play(&fake, &mut Memory::default(), &[150], 6, &mut |second, session| {
        if second == 3 {
            let unit = &session.polls[0].unit;
            super::super::engine::Dcgm::unwatch(&fake, unit.group, unit.handle)?;
        }
        Ok(())
    });
    let rows = rows(&told, "GPU-0", 150);
    assert_eq!(rows.last().unwrap(), "5:5");
    assert!(rows.len() >= 5, "{rows:?}");
}

#[test]
fn nothing_is_lost_of_a_device_when_the_engine_is_made_anew() {
    let mut memory = Memory::default();
    let first = Fake::new(2);
    let (told, ended) = play(&first, &mut memory, &[150], 10, &mut |second, _| {
        if second == 4 {
            first.world.borrow_mut().dead = true;
        }
        Ok(())
    });
    assert_eq!(ended, Err(ReturnCode::CONNECTION_NOT_VALID));
    assert_eq!(rows(&told, "GPU-1", 150).last().unwrap(), "3:3");
    // The new engine numbers its GPUs the other way round, and has samples of its own.
    let second = Fake::new(2);
    second.now.set(first.now.get());
    {
        let mut world = second.world.borrow_mut();
        let (a, b) = (world.gpus.remove(&0).unwrap(), world.gpus.remove(&1).unwrap());
        world.gpus = [(0, b), (1, a)].into();
    }
    let before = key_of(&told, "GPU-1");
    let (told, _) = play(&second, &mut memory, &[150], 2, &mut |_, _| Ok(()));
    assert_eq!(key_of(&told, "GPU-1"), before);
    assert_eq!(rows(&told, "GPU-1", 150), ["4:4", "5:5"]);
}

fn key_of(told: &super::Told, hw_id: &str) -> u32 {
    let devices = told.iter().find_map(|(_, kind)| match kind {
        Kind::Inventory(inventory) => Some(inventory.devices.clone()),
        _ => None,
    });
    devices.unwrap().iter().find(|d| d.hw_id == hw_id).unwrap().key
}

#[test]
fn an_engine_that_is_too_old_is_told_apart() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().first_latest = Err(ReturnCode::FUNCTION_NOT_FOUND);
    let (_, ended) = play(&fake, &mut Memory::default(), &[150], 1, &mut |_, _| Ok(()));
    assert_eq!(ended, Err(ReturnCode::FUNCTION_NOT_FOUND));
}

#[test]
fn a_gpu_that_is_lost_at_the_start_takes_no_other_with_it() {
    use super::super::engine::GpuState;
    let fake = Fake::new(3);
    fake.world.borrow_mut().gpus.get_mut(&1).unwrap().0 = GpuState::Lost;
    let (told, _) = play(&fake, &mut Memory::default(), &[150, 155], 12, &mut |second, _| {
        if second == 5 {
            fake.world.borrow_mut().gpus.get_mut(&1).unwrap().0 = GpuState::Ok;
        }
        Ok(())
    });
    assert_eq!(rows(&told, "GPU-0", 150).len(), 12);
    assert_eq!(rows(&told, "GPU-2", 155).len(), 12);
    let lost = rows(&told, "GPU-1", 150);
    assert_eq!(lost[0], "0:device_lost");
    assert_eq!(lost[1..], (6..12).map(|second| format!("{second}:{second}")).collect::<Vec<_>>());
}

#[test]
fn a_pair_that_is_not_kept_is_taken_out_and_costs_few_watches() {
    let fake = Fake::new(2);
    fake.world.borrow_mut().value = Box::new(|entity, field, _, us| match (entity.id, field) {
        (1, 155) => Says::Code(ReturnCode::NOT_WATCHED),
        _ => Says::Int((us - EPOCH_US) / 1_000_000),
    });
    let told = just(&fake, &[150, 155], 200);
    assert!(fake.watch_calls.get() < 12, "{}", fake.watch_calls.get());
    for (gpu, field) in [("GPU-0", 150), ("GPU-0", 155), ("GPU-1", 150)] {
        assert_eq!(rows(&told, gpu, field).last().unwrap(), "199:199");
    }
    assert!(rows(&told, "GPU-1", 155).iter().all(|row| row.ends_with(":blank")));
}

#[test]
fn a_field_of_two_groups_is_watched_once_and_most_often() {
    let fake = Fake::new(1);
    let groups = [("slow", 10_000, &[150, 52, 54][..]), ("fast", 1_000, &[150, 155][..])];
    let configured: Vec<_> = groups
        .iter()
        .map(|(name, interval_ms, fields)| crate::wire::order::Group {
            name: (*name).to_owned(),
            interval_ms: *interval_ms,
            fields: fields.iter().map(u16::to_string).collect(),
        })
        .collect();
    let mut sets = Vec::new();
    let (told, _) = super::play_groups(&fake, &mut Memory::default(), &configured, 25, &mut |second, _| {
        if second == 20 {
            sets = fake.watched().into_iter().map(|(_, fields)| fields).collect();
        }
        Ok(())
    });
    sets.sort_unstable();
    assert_eq!(sets, [vec![6], vec![52, 54], vec![150, 155]]);
    assert_eq!(rows(&told, "GPU-0", 150).len(), 25);
    assert_eq!(rows(&told, "GPU-0", 52).len(), 3, "at its own interval, not at the inventory's");
}

#[test]
fn a_half_whose_other_half_is_gone_is_not_in_conflict_for_ever() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().value = Box::new(|_, field, _, us| match (field, us - EPOCH_US) {
        (_, 5_000_000..20_000_000) => Says::Blank,
        _ => Says::Int((us - EPOCH_US) / 1_000_000),
    });
    let (told, _) = play(&fake, &mut Memory::default(), &[310, 311], 12, &mut |second, session| {
        if second == 2 {
            session.polls[0].pair = Some(7);
        }
        Ok(())
    });
    assert_eq!(rows(&told, "GPU-0", 310).last().unwrap(), "5:blank", "no conflict");
}
