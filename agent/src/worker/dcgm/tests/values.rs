//! What a value means: new ones once, absences with their reason, stale ones, rates after a gap.
//!
//! In: scripted values. Out: rows. What can go wrong: nothing.

use super::super::engine::{Entity, GpuState, ReturnCode};
use super::super::fake::{EPOCH_US, Fake, Says};
use super::super::task::Memory;
use super::{just, play, rows};

/// One GPU whose field 150 follows a script, by second of the sample.
fn check(what: &str, of: impl Fn(i64) -> Says + 'static, seconds: u32, want: &[&str]) {
    check_field(what, 150, of, seconds, want);
}

fn check_field(what: &str, field: u16, of: impl Fn(i64) -> Says + 'static, seconds: u32, want: &[&str]) {
    let fake = Fake::new(1);
    fake.world.borrow_mut().value = Box::new(move |_, id, _, us| match id {
        52 | 55 => Says::Int(0),
        _ if id == field => of((us - EPOCH_US) / 1_000_000),
        // Keeps the group from being all blank.
        _ => Says::Int(us),
    });
    let told = just(&fake, &[field, 155], seconds);
    assert_eq!(rows(&told, "GPU-0", field), want, "{what}");
}

#[test]
fn a_sample_is_told_once_and_soon() {
    check("each second", Says::Int, 4, &["0:0", "1:1", "2:2", "3:3"]);
    check("every other second", |s| Says::At(EPOCH_US + s / 2 * 2_000_000, s), 6, &["0:0", "2:2", "4:4"]);
    check("a text", |s| Says::Text(format!("v{s}")), 2, &["0:v0", "1:v1"]);
    check("a number", |_| Says::Double(0.5), 2, &["0:0.5", "1:0.5"]);
}

#[test]
fn no_value_has_a_reason() {
    check("blank at first", |s| if s < 2 { Says::Blank } else { Says::Int(s) }, 4, &["2:2", "3:3"]);
    check("blank for long", |_| Says::Blank, 6, &["3:blank"]);
    check(
        "blank in between",
        |s| if s == 2 { Says::Blank } else { Says::Int(s) },
        4,
        &["0:0", "1:1", "2:blank", "3:3"],
    );
    check("still blank after ten seconds", |_| Says::Blank, 15, &["3:blank", "13:blank"]);
    let code = |n: i32| move |_| Says::Code(ReturnCode(n));
    check("not supported", code(-6), 3, &["0:not_supported"]);
    check("no permission", code(-17), 3, &["0:not_permitted"]);
    check("bad parameter", code(-1), 3, &["0:refused"]);
    check("no data", code(-14), 5, &["3:blank"]);
    check("driver given up", code(-57), 3, &["0:source_down"]);
    check("binary", |_| Says::Binary, 3, &["0:unexportable"]);
}

#[test]
fn an_old_sample_is_stale_and_told_so_once() {
    // The engine serves the sample of second 2 for ever.
    let frozen = |s: i64| if s <= 2 { Says::Int(s) } else { Says::At(EPOCH_US + 2_000_000, 2) };
    check("frozen", frozen, 9, &["0:0", "1:1", "2:2", "6:stale"]);
    let back = move |s: i64| if s < 8 { frozen(s) } else { Says::Int(s) };
    check("and back", back, 9, &["0:0", "1:1", "2:2", "6:stale", "8:8"]);
}

#[test]
fn a_rate_after_a_gap_is_the_agents_to_leave_out() {
    let gap = |s: i64| match s {
        3 => Says::Blank,
        4 => Says::Int(3_091_674),
        _ => Says::Int(s),
    };
    check_field("NVLink throughput", 449, gap, 6, &["0:0", "1:1", "2:2", "3:blank", "4:3091674", "5:5"]);
    check("no rate", gap, 6, &["0:0", "1:1", "2:2", "3:blank", "4:3091674", "5:5"]);
}

#[test]
fn an_event_field_neither_ages_nor_misses() {
    let fake = Fake::new(0);
    fake.world.borrow_mut().switches = vec![0];
    fake.world.borrow_mut().value = Box::new(|_, field, _, us| match (field, us - EPOCH_US) {
        (856, ..3_000_000) => Says::Code(ReturnCode::NO_DATA),
        (856, _) => Says::At(EPOCH_US + 3_000_000, 12_028),
        (858, _) => Says::Int(40),
        _ => Says::Code(ReturnCode::NOT_SUPPORTED),
    });
    let told = just(&fake, &[856, 858], 20);
    assert_eq!(rows(&told, "nvswitch-0", 856), ["3:12028"]);
    assert_eq!(rows(&told, "nvswitch-0", 858).len(), 20);
}

#[test]
fn a_lost_gpu_has_no_values_and_keeps_its_name() {
    let fake = Fake::new(2);
    fake.world.borrow_mut().value = Box::new(|entity, field, _, us| match field {
        52 | 55 => Says::Int(entity.id.into()),
        _ if entity == Entity::gpu(1) && (EPOCH_US + 3_000_000..EPOCH_US + 10_000_000).contains(&us) => {
            Says::Blank
        }
        _ => Says::Int((us - EPOCH_US) / 1_000_000),
    });
    let mut memory = Memory::default();
    let (told, _) = play(&fake, &mut memory, &[150], 13, &mut |second, _| {
        let mut world = fake.world.borrow_mut();
        let gpu = world.gpus.get_mut(&1).unwrap();
        match second {
            2 => {
                gpu.0 = GpuState::Lost;
                gpu.1.uuid = None;
            }
            10 => {
                gpu.0 = GpuState::Ok;
                gpu.1.uuid = Some("GPU-1".into());
            }
            _ => {}
        }
        Ok(())
    });
    assert_eq!(rows(&told, "GPU-0", 150).len(), 13, "the other one goes on");
    assert_eq!(rows(&told, "GPU-1", 150), ["0:0", "1:1", "2:2", "3:device_lost", "10:10", "11:11", "12:12"]);
}

#[test]
fn values_of_kinds_of_devices_go_to_their_parts() {
    use super::super::engine::EntityGroup::Link;
    let fake = Fake::new(1);
    {
        let mut world = fake.world.borrow_mut();
        world.links = vec![(Entity::gpu(0), 5, Entity::new(Link, 0x0501))];
        world.cpus = vec![(0, vec![0, 1])];
    }
    let told = just(&fake, &[150, 580, 1110, 1100], 1);
    assert_eq!(rows(&told, "GPU-0", 580), ["0/5:0"]);
    assert_eq!(rows(&told, "cpu-0", 1110), ["0:0"]);
    assert_eq!(rows(&told, "cpu-0", 1100), ["0/0:0", "0/1:0"]);
    assert_eq!(super::watched(&fake, 1100), Vec::<Vec<Entity>>::new(), "ended");
    assert_eq!(fake.left(), 0, "nothing is left in the engine");
}

#[test]
fn values_go_on_when_the_clock_is_set_back() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().value = Box::new(|_, _, _, us| Says::Int((us - EPOCH_US) / 1_000_000));
    let hour = 3_600 * 1_000_000;
    let (told, _) = play(&fake, &mut Memory::default(), &[150], 6, &mut |second, _| {
        if second == 3 {
            let mut now = fake.now.get();
            now.wall_us -= hour;
            fake.now.set(now);
        }
        Ok(())
    });
    let values: Vec<String> =
        rows(&told, "GPU-0", 150).into_iter().map(|row| row.split_once(':').unwrap().1.to_owned()).collect();
    assert_eq!(values, ["0", "1", "2", "-3597", "-3596", "-3595"]);
}
