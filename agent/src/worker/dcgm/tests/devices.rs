//! Devices: their names, MIG instances, and what happens when they change.
//!
//! In: scripted lists. Out: inventories and where values go. What can go wrong: nothing.

use super::super::engine::{Entity, EntityGroup, GpuState, MigEntity, ReturnCode};
use super::super::fake::{Fake, Says};
use super::super::inventory::profile;
use super::super::task::Memory;
use super::{Told, ci, gi, just, mig, play, rows, watched};
use crate::wire::report::{Device, Kind};

fn inventories(told: &Told) -> Vec<(i64, Vec<Device>)> {
    let of = |(second, kind): &(i64, Kind)| match kind {
        Kind::Inventory(inventory) => Some((*second, inventory.devices.clone())),
        _ => None,
    };
    told.iter().filter_map(of).collect()
}

fn instance(gpu: u32, gpu_instance: u32, compute: &[u32]) -> Vec<MigEntity> {
    let mut all = vec![mig(gi(gpu_instance), Entity::gpu(gpu))];
    all.extend(compute.iter().map(|id| mig(ci(*id), gi(gpu_instance))));
    all
}

#[test]
fn a_gpu_is_told_with_all_that_names_it() {
    let told = just(&Fake::new(2), &[150], 1);
    let (_, devices) = inventories(&told).remove(0);
    let first = devices.first().unwrap().clone();
    let want = Device {
        hw_id: "GPU-0".into(),
        key: 1,
        kind: 1,
        state: 0,
        index: Some(0),
        minor: Some(0),
        pci: Some("0000:10:00.0".into()),
        model: Some("NVIDIA H100".into()),
        serial: Some("1650".into()),
        architecture: Some("hopper".into()),
        cpu_affinity: Some("0-31".into()),
        nvlink_peers: vec!["GPU-1=18".into()],
        ..Device::default()
    };
    assert_eq!(first, want);
    assert_eq!(devices.len(), 2);
    assert_eq!((devices[1].index, devices[1].minor), (Some(1), Some(1)));
}

#[test]
fn what_an_instance_measures_is_read_from_it_and_not_from_its_gpu() {
    let fake = Fake::new(2);
    // GPU 1 has two GPU instances; the first has two compute instances.
    fake.world.borrow_mut().mig = [instance(1, 7, &[8, 7]), instance(1, 9, &[9])].concat();
    let mut seen = Vec::new();
    let told = play(&fake, &mut Memory::default(), &[150, 252, 1002, 1005, 1009], 1, &mut |_, _| {
        let sorted = |field| {
            let mut all: Vec<Entity> = watched(&fake, field).concat();
            all.sort_unstable();
            all
        };
        seen = [150, 252, 1002, 1005, 1009].map(sorted).to_vec();
        Ok(())
    })
    .0;
    let gpus = vec![Entity::gpu(0), Entity::gpu(1)];
    let want = vec![
        gpus.clone(),                              // temperature: of the GPU
        vec![Entity::gpu(0), ci(7), ci(9)], // memory: shared by compute instances 7 and 8, so read once
        vec![Entity::gpu(0), ci(7), ci(8), ci(9)], // SM active: of the compute instance
        vec![Entity::gpu(0), gi(7), gi(9)], // DRAM active: of the GPU instance
        gpus,                               // PCIe: of the GPU
    ];
    assert_eq!(seen, want);
    assert_eq!(rows(&told, "MIG-7", 1005), ["0:0"], "of the GPU instance, on its lowest compute instance");
    assert_eq!(rows(&told, "MIG-8", 1005), Vec::<String>::new(), "and on no other");
    assert_eq!(rows(&told, "MIG-8", 1002), ["0:0"]);
    let (_, devices) = inventories(&told).remove(0);
    let mig: Vec<_> = devices.iter().filter(|d| d.kind == 2).collect();
    let parents: Vec<_> = mig.iter().map(|d| (d.hw_id.as_str(), d.parent.as_deref().unwrap())).collect();
    assert_eq!(parents, [("MIG-7", "GPU-1"), ("MIG-8", "GPU-1"), ("MIG-9", "GPU-1")]);
    assert!(mig.iter().all(|d| d.mig_profile.as_deref() == Some("1g.10gb")));
    assert_eq!(mig.iter().map(|d| d.gpu_instance).collect::<Vec<_>>(), [Some(7), Some(7), Some(9)]);
}

#[test]
fn a_reconfigured_gpu_is_listed_anew_within_two_intervals() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().mig = instance(0, 0, &[0]);
    let (told, _) = play(&fake, &mut Memory::default(), &[150, 252], 9, &mut |second, _| {
        if second == 5 {
            fake.world.borrow_mut().mig = instance(0, 3, &[3]);
        }
        Ok(())
    });
    let lists: Vec<(i64, Vec<String>)> = inventories(&told)
        .into_iter()
        .map(|(second, devices)| (second, devices.into_iter().map(|d| d.hw_id).collect()))
        .collect();
    let names = |of: &[&str]| of.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(lists, [(0, names(&["GPU-0", "MIG-0"])), (6, names(&["GPU-0", "MIG-3"]))]);
    assert_eq!(rows(&told, "MIG-0", 252).last().unwrap(), "5:5");
    assert_eq!(rows(&told, "MIG-3", 252), ["6:6", "7:7", "8:8"]);
    assert_eq!(rows(&told, "GPU-0", 150).len(), 9, "each second once, across the new watch");
}

#[test]
fn a_gpu_that_comes_later_is_found() {
    let fake = Fake::new(1);
    let (told, _) = play(&fake, &mut Memory::default(), &[150], 6, &mut |second, _| {
        if second == 3 {
            let gpu = Fake::new(2).world.into_inner().gpus.remove(&1).unwrap();
            fake.world.borrow_mut().gpus.insert(1, gpu);
        }
        Ok(())
    });
    assert_eq!(rows(&told, "GPU-1", 150), ["4:4", "5:5"]);
}

#[test]
fn an_instance_that_has_no_name_yet_is_listed_when_it_has() {
    let fake = Fake::new(1);
    {
        let mut world = fake.world.borrow_mut();
        world.mig = instance(0, 0, &[0]);
        world.value = Box::new(|_, field, _, us| match field {
            54 if us < super::super::fake::EPOCH_US + 1 => Says::Blank,
            54 => Says::Text("MIG-late".into()),
            _ => Says::Int(1),
        });
    }
    // The identity is sampled once a minute.
    let told = just(&fake, &[252], 64);
    let second = inventories(&told).iter().find(|(_, devices)| devices.len() == 2).unwrap().0;
    assert!((60..=62).contains(&second), "{second}");
    assert_eq!(rows(&told, "MIG-late", 252).last().unwrap(), "63:1");
}

#[test]
fn a_switch_is_named_by_its_address() {
    let fake = Fake::new(0);
    {
        let mut world = fake.world.borrow_mut();
        world.switches = vec![4, 5];
        world.value = Box::new(|entity, field, _, _| match (entity.group, field) {
            (EntityGroup::Switch, 866) => Says::Int(0),
            (EntityGroup::Switch, 867) => Says::Int(0xc3),
            (EntityGroup::Switch, 868 | 869) => Says::Int(0),
            _ => Says::Int(40),
        });
    }
    let told = just(&fake, &[858], 1);
    assert_eq!(rows(&told, "nvswitch-0000:c3:00.0", 858), ["0:40"]);
    assert_eq!(rows(&told, "nvswitch-5", 858), ["0:40"], "it tells the address of the other one");
}

#[test]
fn texts_of_dcgm_are_put_in_form_but_not_corrected() {
    for (text, want) in
        [("1g.11gb", "1g.11gb"), ("MIG 1g.12gb+me", "1g.12gb+me"), ("1G.12GB+gfx", "1g.12gb+gfx")]
    {
        assert_eq!(profile(text), want);
    }
}

#[test]
fn a_refused_list_removes_nothing() {
    let fake = Fake::new(2);
    {
        let mut world = fake.world.borrow_mut();
        world.mig = instance(1, 7, &[7]);
        world.switches = vec![0];
        world.links = vec![(Entity::gpu(0), 5, Entity::new(EntityGroup::Link, 0x0501))];
        world.cpus = vec![(0, vec![0, 1])];
        world.value = Box::new(|entity, field, _, us| match field {
            54 => Says::Text(format!("MIG-{}", entity.id)),
            866..=869 => Says::Blank,
            _ => Says::Int((us - super::super::fake::EPOCH_US) / 1_000_000),
        });
    }
    let (told, _) = play(&fake, &mut Memory::default(), &[150, 252, 580, 858, 1100], 20, &mut |second, _| {
        let mut world = fake.world.borrow_mut();
        match second {
            4 => {
                let lists = ["gpus", "switches", "mig", "links", "cpus"];
                world.refuses = lists.map(|list| (list, ReturnCode::GENERIC_ERROR)).into();
            }
            // Everything is listed anew while the lists of links and CPUs are refused.
            8 => {
                world.refuses.remove("mig");
                world.mig = instance(1, 8, &[8]);
            }
            _ => {}
        }
        Ok(())
    });
    let lists: Vec<usize> = inventories(&told).iter().map(|(_, devices)| devices.len()).collect();
    assert_eq!(lists, [5, 5]);
    for (device, field, row) in [
        ("GPU-0", 150, "19:19"),
        ("MIG-8", 252, "19:19"),
        ("GPU-0", 580, "19/5:19"),
        ("nvswitch-0", 858, "19:19"),
        ("cpu-0", 1100, "19/1:19"),
    ] {
        assert_eq!(rows(&told, device, field).last().unwrap(), row);
    }
}

#[test]
fn a_gpu_that_is_parted_anew_under_the_same_ids_is_seen() {
    for says_it in ["its ids", "its uuid"] {
        let fake = Fake::new(1);
        fake.world.borrow_mut().mig = instance(0, 0, &[0]);
        let (told, _) = play(&fake, &mut Memory::default(), &[54, 252], 9, &mut |second, _| {
            if second == 5 {
                let mut world = fake.world.borrow_mut();
                world.value = Box::new(|_, field, _, us| match field {
                    54 => Says::Text("MIG-other".into()),
                    50 => Says::Text("2g.20gb".into()),
                    _ => Says::Int((us - super::super::fake::EPOCH_US) / 1_000_000),
                });
                if says_it == "its ids" {
                    world.mig.iter_mut().for_each(|entity| entity.profile = 14);
                }
            }
            Ok(())
        });
        assert_eq!(rows(&told, "MIG-other", 252).last().unwrap(), "8:8", "{says_it}");
        let (_, devices) = inventories(&told).pop().unwrap();
        assert_eq!(devices[1].mig_profile.as_deref(), Some("2g.20gb"));
    }
}

#[test]
fn a_gpu_without_a_name_gives_no_values_and_does_not_stand_for_dcgm() {
    let fake = Fake::new(1);
    fake.world.borrow_mut().gpus.get_mut(&0).unwrap().1 = Default::default();
    let mut named = Vec::new();
    let (told, _) = play(&fake, &mut Memory::default(), &[150], 12, &mut |second, session| {
        if second == 6 {
            fake.world.borrow_mut().gpus = std::mem::take(&mut Fake::new(1).world.borrow_mut().gpus);
        }
        named.push(session.has_named_gpu());
        Ok(())
    });
    assert_eq!((named[5], named[11]), (false, true), "{named:?}");
    assert_eq!(rows(&told, "GPU-0", 150).last().unwrap(), "11:11");
    assert!(inventories(&told).len() < 6, "listed less and less often");
}

#[test]
fn a_gpu_that_was_lost_before_the_engine_came_up_has_its_name_of_before() {
    let mut memory = Memory::default();
    play(&Fake::new(2), &mut memory, &[150], 1, &mut |_, _| Ok(())).1.unwrap();
    let second = Fake::new(2);
    {
        let mut world = second.world.borrow_mut();
        let gpu = world.gpus.get_mut(&1).unwrap();
        (gpu.0, gpu.1.uuid) = (GpuState::Lost, None);
    }
    let (told, _) = play(&second, &mut memory, &[150], 1, &mut |_, _| Ok(()));
    let (_, devices) = inventories(&told).remove(0);
    let named: Vec<_> = devices.iter().map(|d| (d.hw_id.as_str(), d.key, d.state)).collect();
    assert_eq!(named, [("GPU-0", 1, 0), ("GPU-1", 2, 1)]);
}
