//! Profiling fields: by GPU, apart from the rest, paused and stuck.
//!
//! In: scripted refusals and values. Out: rows, states and answers. What can go wrong: nothing.

use super::super::engine::{Entity, MetricGroup, ReturnCode};
use super::super::fake::{EPOCH_US, Fake, Says};
use super::super::task::Memory;
use super::{just, play, rows, states, watched};

#[test]
fn each_gpu_is_asked_for_itself() {
    let fake = Fake::new(3);
    fake.world.borrow_mut().watch = Box::new(|entities, fields| {
        let refused = entities.contains(&Entity::gpu(1)) && fields.iter().any(|f| *f > 1_000);
        if refused { Err(ReturnCode::NOT_SUPPORTED) } else { Ok(()) }
    });
    let told = just(&fake, &[203, 1001, 1004], 2);
    for gpu in ["GPU-0", "GPU-2"] {
        assert_eq!(rows(&told, gpu, 1001), ["0:0", "1:1"]);
        assert_eq!(rows(&told, gpu, 203), ["0:0", "1:1"]);
    }
    assert_eq!(rows(&told, "GPU-1", 1001), ["0:not_supported"]);
    assert_eq!(rows(&told, "GPU-1", 1004), ["0:not_supported"]);
    assert_eq!(rows(&told, "GPU-1", 203), ["0:0", "1:1"]);
    assert_eq!(states(&told), ["0 profiling true"]);
}

#[test]
fn a_missing_module_is_named() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().watch = Box::new(|_, fields| match fields.iter().any(|f| *f > 1_000) {
        true => Err(ReturnCode::MODULE_NOT_LOADED),
        false => Ok(()),
    });
    let told = just(&fake, &[203, 1001], 1);
    assert_eq!(rows(&told, "GPU-0", 1001), ["0:module_missing"]);
    assert_eq!(states(&told), ["0 profiling false module_missing"]);
}

#[test]
fn fields_of_two_passes_are_chosen_among() {
    let fake = Fake::new(1);
    {
        let mut world = fake.world.borrow_mut();
        let group = |major, minor, fields: &[u16]| MetricGroup { major, minor, fields: fields.to_vec() };
        world.metric_groups =
            vec![group(0, 0, &[1002, 1003]), group(1, 0, &[1004]), group(1, 1, &[1006, 1007])];
        world.watch = Box::new(|_, fields| match fields.contains(&1004) && fields.contains(&1006) {
            true => Err(ReturnCode::PROFILING_MULTI_PASS),
            false => Ok(()),
        });
    }
    let told = just(&fake, &[1002, 1004, 1006, 1007], 1);
    assert_eq!(rows(&told, "GPU-0", 1004), ["0:conflict"]);
    for field in [1002, 1006, 1007] {
        assert_eq!(rows(&told, "GPU-0", field), ["0:0"], "{field}");
    }
}

/// Paused at second 2 and resumed at second 6; the answers, and the rows of a profiling field.
fn check_pause(pause: Result<(), ReturnCode>, answers: [&str; 2], want: &[&str]) {
    let fake = Fake::new(1);
    fake.world.borrow_mut().pause = pause;
    let (mut said, mut while_paused) = (Vec::new(), 0);
    let (told, _) = play(&fake, &mut Memory::default(), &[203, 1001], 8, &mut |second, session| {
        match second {
            2 => {
                said.push(session.pause(fake.now.get())?);
                fake.world.borrow_mut().value = Box::new(move |_, field, _, us| match field {
                    1001 if pause.is_ok() && us < EPOCH_US + 6_000_000 => Says::Blank,
                    _ => Says::Int((us - EPOCH_US) / 1_000_000),
                });
            }
            4 => while_paused = watched(&fake, 1001).len(),
            6 => said.push(session.resume(fake.now.get())?),
            _ => {}
        }
        Ok(())
    });
    let texts: Vec<String> = said.into_iter().map(|(done, text)| format!("{done} {text}")).collect();
    assert_eq!(texts, answers);
    assert_eq!(while_paused, usize::from(pause.is_ok()));
    assert_eq!(rows(&told, "GPU-0", 1001), want);
    assert_eq!(states(&told), ["0 profiling true", "2 profiling false paused", "6 profiling true"]);
    assert_eq!(rows(&told, "GPU-0", 203).len(), 8, "the rest goes on");
}

#[test]
fn the_engine_pauses_if_it_can() {
    let answers =
        ["true profiling is paused by the engine, for all its clients", "true the engine profiles again"];
    check_pause(Ok(()), answers, &["0:0", "1:1", "2:paused", "6:6", "7:7"]);
}

#[test]
fn an_engine_that_cannot_pause_is_not_asked_for_the_fields() {
    let answers = [
        "true profiling fields are no longer watched; the engine has nothing to pause",
        "true profiling fields are watched again",
    ];
    check_pause(Err(ReturnCode::NOT_SUPPORTED), answers, &["0:0", "1:1", "2:paused", "6:6", "7:7"]);
}

#[test]
fn values_that_stand_still_are_told_and_mended() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().value = Box::new(|_, field, _, us| match field {
        1002 => Says::Double(0.5),
        _ => Says::Int((us - EPOCH_US) / 1_000_000),
    });
    let (told, _) = play(&fake, &mut Memory::default(), &[203, 1002], 100, &mut |second, _| {
        if second == 80 {
            fake.world.borrow_mut().value = Box::new(|_, _, _, us| Says::Int((us - EPOCH_US) / 1_000_000));
        }
        Ok(())
    });
    let states = states(&told);
    assert_eq!(states.len(), 3, "{states:?}");
    assert_eq!(states[1], "60 profiling false stuck");
    assert_eq!(states[2], "80 profiling true");
}

/// Blank from second 5 on; the states after the first.
fn check_blank(paused_elsewhere: bool, want: &[&str]) {
    let fake = Fake::new(1);
    fake.world.borrow_mut().paused_elsewhere = paused_elsewhere;
    fake.world.borrow_mut().value = Box::new(|_, field, _, us| match field {
        1002 if us >= EPOCH_US + 5_000_000 => Says::Blank,
        _ => Says::Int((us - EPOCH_US) / 1_000_000),
    });
    assert_eq!(states(&just(&fake, &[203, 1002], 20))[1..], *want);
}

#[test]
fn what_another_client_paused_is_not_stuck() {
    check_blank(true, &["9 profiling false paused"]);
    check_blank(false, &["9 profiling false stuck"]);
}

/// What pauses and resumes see of an engine whose devices change meanwhile: its own pause, by second.
#[test]
fn a_paused_engine_is_resumed_whatever_became_of_the_watches() {
    let fake = Fake::new(1);
    let mut paused = Vec::new();
    let (told, _) = play(&fake, &mut Memory::default(), &[203, 1001], 9, &mut |second, session| {
        match second {
            2 => drop(session.pause(fake.now.get())?),
            3 => {
                let gpu = Fake::new(2).world.into_inner().gpus.remove(&1).unwrap();
                fake.world.borrow_mut().gpus.insert(1, gpu);
            }
            6 => assert_eq!(session.resume(fake.now.get())?, (true, "the engine profiles again".into())),
            _ => {}
        }
        paused.push(fake.paused.get());
        Ok(())
    });
    assert_eq!(paused, [false, false, true, true, true, true, false, false, false]);
    for gpu in ["GPU-0", "GPU-1"] {
        assert_eq!(rows(&told, gpu, 1001).last().unwrap(), "8:8");
    }
    assert!(rows(&told, "GPU-1", 1001)[0].ends_with(":paused"));
}

#[test]
fn a_pause_outlives_the_connection() {
    let (first, second) = (Fake::new(1), Fake::new(1));
    let mut memory = Memory::default();
    let (_, ended) = play(&first, &mut memory, &[203, 1001], 3, &mut |at, session| {
        if at == 1 {
            session.pause(first.now.get())?;
        }
        Ok(())
    });
    assert_eq!(ended, Ok(()));
    second.now.set(first.now.get());
    let (told, _) = play(&second, &mut memory, &[203, 1001], 6, &mut |at, session| {
        assert_eq!(second.paused.get(), at < 3);
        if at == 2 {
            session.resume(second.now.get())?;
        }
        Ok(())
    });
    assert_eq!(states(&told), ["3 profiling false paused", "5 profiling true"]);
    assert_eq!(rows(&told, "GPU-0", 1001), ["3:paused", "5:5", "6:6", "7:7", "8:8"]);
}

#[test]
fn a_refusal_is_told_once_each_time_however_often_profiling_is_paused() {
    let fake = Fake::new(1);
    {
        let mut world = fake.world.borrow_mut();
        world.pause = Err(ReturnCode::NOT_SUPPORTED);
        world.watch = Box::new(|_, fields| match fields.contains(&1002) {
            true => Err(ReturnCode::NOT_SUPPORTED),
            false => Ok(()),
        });
    }
    let (mut refused, mut while_paused) = (Vec::new(), 9);
    let (_, ended) = play(&fake, &mut Memory::default(), &[1001, 1002], 400, &mut |second, session| {
        match second {
            2 | 6 | 10 => drop(session.pause(fake.now.get())?),
            4 | 8 => drop(session.resume(fake.now.get())?),
            399 => while_paused = watched(&fake, 1001).len() + watched(&fake, 1002).len(),
            _ => {}
        }
        if [1, 5, 9].contains(&second) {
            refused.push(session.refusals.list.len());
        }
        Ok(())
    });
    assert_eq!((ended, refused), (Ok(()), vec![1, 1, 1]));
    assert_eq!(while_paused, 0, "five minutes later, too");
}

#[test]
fn a_slow_call_is_not_profiling_that_is_stuck() {
    let fake = Fake::new(1);
    let (told, _) = play(&fake, &mut Memory::default(), &[203, 1001], 10, &mut |second, _| {
        if second == 5 {
            fake.pass(std::time::Duration::from_secs(50));
        }
        Ok(())
    });
    assert_eq!(states(&told), ["0 profiling true"]);
}
