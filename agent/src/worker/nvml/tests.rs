//! Behaviour of the NVML core on a scripted driver.
//!
//! In: a [`Fake`]. Out: reports. What can go wrong: nothing waits; time is a number here.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::collector::{Collector, Memory};
use super::driver::{Fault, Mig, Place, Used};
use super::fake::Fake;
use crate::model::{Absence, MonoNs};
use crate::wire::report::{Content, Device, Kind, Process};
use crate::worker::link::Link;
use crate::worker::numa::NumaNode;

#[derive(Debug)]
struct Node;

impl NumaNode for Node {
    fn of(&self, pci: &str) -> Option<u32> {
        (pci == "0000:31:00.0").then_some(1)
    }
}

struct Bench<'a> {
    collector: Collector<'a, Fake>,
    fake: &'a Fake,
    out: Receiver<Kind>,
}

fn bench<'a>(fake: &'a Fake, memory: &'a mut Memory, test: impl FnOnce(&mut Bench<'a>)) {
    let (link, out) = Link::for_tests();
    // A test's link lives as long as the test.
    let link: &'a Link = Box::leak(Box::new(link));
    let every = Duration::from_secs(1);
    let collector = Collector::open(fake, link, memory, &Node, every, fake.now.get().mono).unwrap();
    test(&mut Bench { collector, fake, out });
}

impl Bench<'_> {
    /// Steps through some seconds and collects what was said.
    fn play(&mut self, seconds: u64, basic: bool) -> Vec<Kind> {
        let end = self.fake.now.get().mono.after(Duration::from_secs(seconds));
        loop {
            let now = self.fake.now.get().mono;
            let due: MonoNs = self.collector.step(basic, &|| self.fake.now.get()).unwrap();
            if due >= end {
                self.fake.pass(end.since(self.fake.now.get().mono).unwrap_or_default());
                return self.out.try_iter().collect();
            }
            self.fake.pass(due.since(now).unwrap_or_default().max(Duration::from_millis(1)));
        }
    }
}

fn inventories(told: &[Kind]) -> Vec<Vec<Device>> {
    let of = |kind: &Kind| match kind {
        Kind::Inventory(inventory) => Some(inventory.devices.clone()),
        _ => None,
    };
    told.iter().filter_map(of).collect()
}

fn processes(told: &[Kind], key: u32) -> Vec<Vec<Process>> {
    let of = |kind: &Kind| match kind {
        Kind::Processes(processes) if processes.key == key => Some(processes.processes.clone()),
        _ => None,
    };
    told.iter().filter_map(of).collect()
}

/// The last value of a field of a device.
fn last(told: &[Kind], key: u32, field: u16) -> Option<Content> {
    let of = |kind: &Kind| match kind {
        Kind::Samples(samples) if samples.key == key => {
            samples.values.iter().find(|v| v.field == u32::from(field)).and_then(|v| v.content.clone())
        }
        _ => None,
    };
    told.iter().filter_map(of).next_back()
}

fn absent(why: Absence) -> Option<Content> {
    let place = Absence::ALL.iter().position(|a| *a == why).unwrap();
    Some(Content::Absent(u32::try_from(place).unwrap()))
}

fn mig(uuid: &str, index: u32, profile: &str) -> Mig {
    let ids = (Some(index + 7), Some(0));
    Mig { uuid: uuid.into(), index, profile: Some(profile.into()), ids, start: Some(index) }
}

#[test]
fn a_gpu_and_its_mig_devices_are_told_with_exact_names() {
    let fake = Fake::new(2);
    fake.migs.borrow_mut().push((1, mig("MIG-a", 0, "1g.12gb+me")));
    bench(&fake, &mut Memory::default(), |bench| {
        let told = bench.play(1, false);
        let devices = inventories(&told).remove(0);
        let names: Vec<&str> = devices.iter().map(|d| d.hw_id.as_str()).collect();
        assert_eq!(names, ["GPU-0", "GPU-1", "MIG-a"]);
        assert_eq!((devices[1].index, devices[1].minor, devices[1].numa_node), (Some(1), Some(1), Some(1)));
        assert_eq!(devices[1].pci.as_deref(), Some("0000:31:00.0"));
        assert_eq!(devices[2].mig_profile.as_deref(), Some("1g.12gb+me"));
        assert_eq!(devices[2].parent.as_deref(), Some("GPU-1"));
        let place = |d: &Device| (d.mig_index, d.gpu_instance, d.compute_instance, d.mig_start);
        assert_eq!(place(&devices[2]), (Some(0), Some(7), Some(0), Some(0)));
        assert_eq!(place(&devices[1]), (None, None, None, None), "a whole GPU");
        bench.play(9, false);
        assert_eq!(fake.identities.get(), 2, "once each");
    });
}

#[test]
fn processes_have_memory_use_and_kind() {
    let fake = Fake::new(1);
    let gpu = Place::Gpu(0);
    fake.processes.borrow_mut().insert((gpu, 0), vec![(10, 1_000), (11, 2_000)]);
    fake.processes.borrow_mut().insert((gpu, 2), vec![(11, 2_000)]);
    fake.processes.borrow_mut().insert((gpu, 1), vec![(12, 5)]);
    *fake.used.borrow_mut() = vec![
        Used { pid: 10, at_us: 100, sm: 30 },
        Used { pid: 10, at_us: 200, sm: 50 },
        Used { pid: 11, at_us: 150, sm: 4_294_967_295 },
        Used { pid: 99, at_us: 150, sm: 7 },
    ];
    bench(&fake, &mut Memory::default(), |bench| {
        let told = bench.play(2, false);
        let lists = processes(&told, 1);
        let process =
            |pid, memory, sm, context| Process { pid, memory: Some(memory), sm_utilization: sm, context };
        let first =
            vec![process(10, 1_000, Some(0.5), 0), process(11, 2_000, None, 2), process(12, 5, None, 1)];
        assert_eq!(lists[0], first);
        assert_eq!(lists[1][0].sm_utilization, None, "the same samples are not counted again");
    });
    assert_eq!(*fake.asked_since.borrow(), [0, 200]);
}

#[test]
fn a_parted_gpu_has_its_processes_and_memory_told_by_its_parts() {
    let fake = Fake::new(1);
    fake.migs.borrow_mut().push((0, mig("MIG-a", 3, "1g.12gb")));
    fake.processes.borrow_mut().insert((Place::Gpu(0), 0), vec![(10, 1)]);
    fake.processes.borrow_mut().insert((Place::Mig(0, 3), 0), vec![(10, 1)]);
    bench(&fake, &mut Memory::default(), |bench| {
        let told = bench.play(1, true);
        assert_eq!(processes(&told, 1), [vec![]]);
        assert_eq!(processes(&told, 2)[0].len(), 1);
        assert_eq!(last(&told, 1, 252), None);
        assert_eq!(last(&told, 2, 252), Some(Content::Int(252)));
        assert_eq!(last(&told, 1, 150), Some(Content::Int(150)));
        assert_eq!(last(&told, 2, 150), None);
    });
}

#[test]
fn basic_fields_are_read_only_without_dcgm() {
    let fake = Fake::new(1);
    fake.refused.borrow_mut().insert(240, Fault::NotSupported);
    bench(&fake, &mut Memory::default(), |bench| {
        let with_dcgm = bench.play(3, false);
        assert_eq!(last(&with_dcgm, 1, 150), None);
        assert_eq!(last(&with_dcgm, 1, 1523), Some(Content::Int(1523)), "the recovery action always");
        let without = bench.play(1, true);
        assert_eq!(last(&without, 1, 150), Some(Content::Int(150)));
        assert_eq!(last(&without, 1, 240), absent(Absence::NotSupported));
    });
}

#[test]
fn a_slow_field_is_found_and_left_out() {
    let fake = Fake::new(1);
    fake.slow.borrow_mut().insert(245, Duration::from_millis(1_500));
    bench(&fake, &mut Memory::default(), |bench| {
        let told = bench.play(30, true);
        let slow: Vec<String> = told
            .iter()
            .filter_map(|kind| match kind {
                Kind::Note(note) => Some(format!("{} {}", note.reason, note.what)),
                _ => None,
            })
            .collect();
        let want =
            "slow_query nvmlDeviceGetFieldValues took more than a second for field 245; it is left out";
        assert_eq!(slow, [want]);
        assert_eq!(last(&told, 1, 245), absent(Absence::SourceDown), "not silently missing");
        assert_eq!(last(&bench.play(1, true), 1, 244), Some(Content::Int(244)), "the others go on");
        assert_eq!(last(&bench.play(1, true), 1, 245), None);
    });
}

#[test]
fn a_lost_gpu_keeps_its_name_and_key() {
    let fake = Fake::new(2);
    let mut memory = Memory::default();
    bench(&fake, &mut memory, |bench| {
        bench.play(1, true);
        fake.gpus.borrow_mut().insert(1, Err(Fault::Lost));
        let told = bench.play(4, true);
        let devices = inventories(&told).remove(0);
        assert_eq!(
            devices.iter().map(|d| (d.hw_id.as_str(), d.state)).collect::<Vec<_>>(),
            [("GPU-0", 0), ("GPU-1", 1)]
        );
        assert!(bench.collector.has_lost());
        assert_eq!(last(&told, 2, 150), absent(Absence::DeviceLost));
        assert_eq!(last(&told, 1, 150), Some(Content::Int(150)));
        assert_eq!(processes(&bench.play(1, true), 2), Vec::<Vec<Process>>::new(), "who ran there may still");
    });
}

#[test]
fn a_gpu_that_is_slow_costs_no_other_a_field_and_once_is_not_slow() {
    let fake = Fake::new(2);
    *fake.slow_gpu.borrow_mut() = Some(1);
    fake.slow.borrow_mut().insert(150, Duration::from_millis(1_500));
    bench(&fake, &mut Memory::default(), |bench| {
        let told = bench.play(2, true);
        assert_eq!(last(&told, 2, 150), Some(Content::Int(150)), "once is not slow");
        let told = bench.play(10, true);
        assert_eq!(last(&told, 2, 150), absent(Absence::SourceDown));
        let told = bench.play(2, true);
        assert_eq!((last(&told, 1, 150), last(&told, 2, 150)), (Some(Content::Int(150)), None));
        fake.slow.borrow_mut().clear();
        bench.play(598, true);
        assert_eq!(last(&bench.play(4, true), 2, 150), Some(Content::Int(150)), "tried again");
    });
}

#[test]
fn a_refused_list_removes_nothing() {
    let fake = Fake::new(2);
    bench(&fake, &mut Memory::default(), |bench| {
        bench.play(1, true);
        fake.listless.set(true);
        let told = bench.play(6, true);
        assert_eq!(inventories(&told), Vec::<Vec<Device>>::new());
        assert_eq!(last(&told, 2, 150), Some(Content::Int(150)));
        let notes: Vec<&str> = told
            .iter()
            .filter_map(|kind| match kind {
                Kind::Note(note) => Some(note.what.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(notes, ["nvmlDeviceGetCount_v2: unknown error"], "once");
    });
}

#[test]
fn a_lost_gpu_is_listed_by_a_library_that_does_not_know_it_any_more() {
    let fake = Fake::new(2);
    let mut memory = Memory::default();
    bench(&fake, &mut memory, |bench| {
        fake.gpus.borrow_mut().insert(0, Err(Fault::Lost));
        bench.play(4, true);
        assert!(bench.collector.has_lost());
        bench.collector.remember_lost();
    });
    let other = Fake::new(2);
    let second = other.gpus.borrow_mut().remove(&1).unwrap();
    other.gpus.borrow_mut().insert(0, second);
    let states = |told: &[Kind]| -> Vec<(String, u32)> {
        inventories(told).pop().unwrap().into_iter().map(|device| (device.hw_id, device.state)).collect()
    };
    bench(&other, &mut memory, |bench| {
        let told = bench.play(1, true);
        assert_eq!(states(&told), [("GPU-1".to_owned(), 0), ("GPU-0".to_owned(), 1)]);
        assert_eq!(last(&told, 1, 150), absent(Absence::DeviceLost), "not the other one's value");
        assert_eq!(last(&told, 2, 150), Some(Content::Int(150)));
        let back = Fake::new(1).gpus.borrow_mut().remove(&0).unwrap();
        other.gpus.borrow_mut().insert(1, back);
        assert_eq!(states(&bench.play(4, true)), [("GPU-1".to_owned(), 0), ("GPU-0".to_owned(), 0)]);
    });
}

#[test]
fn use_is_told_again_after_the_clock_was_set_back() {
    let fake = Fake::new(1);
    fake.processes.borrow_mut().insert((Place::Gpu(0), 0), vec![(10, 1_000)]);
    let now_us = |fake: &Fake| u64::try_from(fake.now.get().wall_us).unwrap();
    *fake.used.borrow_mut() = vec![Used { pid: 10, at_us: now_us(&fake), sm: 30 }];
    bench(&fake, &mut Memory::default(), |bench| {
        assert_eq!(processes(&bench.play(1, false), 1)[0][0].sm_utilization, Some(0.3));
        let mut now = fake.now.get();
        now.wall_us -= 3_600_000_000;
        fake.now.set(now);
        // The driver still has the sample that is now to come.
        fake.used.borrow_mut().push(Used { pid: 10, at_us: now_us(&fake) - 1_000, sm: 40 });
        let lists = processes(&bench.play(2, false), 1);
        assert_eq!(lists[0][0].sm_utilization, Some(0.4));
        assert_eq!(lists[1][0].sm_utilization, None, "once");
    });
}

#[test]
fn a_driver_that_goes_away_ends_it() {
    let fake = Fake::new(1);
    bench(&fake, &mut Memory::default(), |bench| {
        bench.play(1, false);
        fake.gone.set(true);
        fake.pass(Duration::from_secs(3));
        let ended = bench.collector.step(false, &|| fake.now.get());
        assert_eq!(ended, Err(Fault::NoDriver("driver not loaded".into())));
    });
}

#[test]
fn fields_are_told_with_their_last_value() {
    let fake = Fake::new(1);
    bench(&fake, &mut Memory::default(), |bench| {
        bench.play(1, true);
        bench.collector.tell_fields(7);
        let text = bench.out.try_iter().find_map(|kind| match kind {
            Kind::Answer(answer) if answer.id == 7 && answer.done => Some(answer.text),
            _ => None,
        });
        let text = text.unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let temperature = lines.iter().find(|line| line["id"] == 150).unwrap();
        assert_eq!(temperature["status"]["GPU-0"]["value"], 150);
        assert_eq!(lines.last().unwrap()["device"], "GPU-0");
    });
}

#[test]
fn a_missing_library_is_told_once_and_does_not_end_the_thread() {
    use crate::wire::order::Configure;
    use crate::worker::asks::{Ask, asks};
    let (link, out) = Link::for_tests();
    let (asks, asked) = asks();
    assert!(asks.ask(Ask::Fields(3), None));
    assert!(asks.ask(Ask::End, None));
    let missing = "/nowhere/libnvidia-ml.so.1".to_owned();
    let configure = Configure { nvml: true, nvml_library: missing.clone(), ..Configure::default() };
    let loading = link.begin(crate::model::Origin::Nvml, "dlopen", "");
    super::run(&configure, &link, &asked, loading);
    let told: Vec<Kind> = out.try_iter().collect();
    let (Kind::State(state), Kind::Answer(answer)) = (&told[0], &told[1]) else { panic!("{told:?}") };
    assert_eq!((state.name.as_str(), state.up, state.reason.as_str()), ("nvml", false, "no_library"));
    assert!(state.what.contains(&missing) && !state.remedy.is_empty(), "{state:?}");
    assert_eq!((answer.id, answer.done, told.len()), (3, false, 2));
}
