//! Reports that can be, and reports that cannot.

use prost::Message;

use super::intake::{Aside, Intake};
use super::refused::Refused;
use super::values::SUBJECTS_MAX;
use crate::model::signal::DeviceState;
use crate::model::{Absence, MonoNs, Origin, Part, Pid, SampleValue, Signal};
use crate::telemetry::Telemetry;
use crate::wire::Report;
use crate::wire::report::{
    Bind, Content, Device, Finished, Health, Heartbeat, InFlight, Inventory, Kind, Process, Processes,
    Samples, State, Value,
};

const NOW: MonoNs = MonoNs(100_000_000_000);

struct Fed {
    intake: Intake,
    telemetry: Telemetry,
}

impl Fed {
    /// With GPU-1 under key 1 of both libraries.
    fn new() -> Self {
        let telemetry = Telemetry::default();
        let mut intake = Intake::new(Pid(10), Refused::new(&telemetry));
        intake.begin(Pid(11), Some("open".to_owned()));
        let mut fed = Self { intake, telemetry };
        for origin in [1, 2] {
            fed.push(inventory(origin, &[("GPU-1", 1)]));
        }
        fed
    }

    fn push(&mut self, kind: Kind) -> (Vec<Signal>, Option<Aside>) {
        let mut out = Vec::new();
        let aside = self.intake.push(NOW, kind, &mut out);
        (out, aside)
    }

    fn refused(&self, reason: &str) -> u64 {
        self.telemetry.counter("warpgauge.worker.frames.dropped", &[("reason", reason)]).get()
    }
}

fn inventory(origin: u32, devices: &[(&str, u32)]) -> Kind {
    let device = |(hw_id, key): &(&str, u32)| Device {
        hw_id: (*hw_id).to_owned(),
        key: *key,
        kind: 1,
        ..Device::default()
    };
    let driver_version = "580.142".to_owned();
    let devices = devices.iter().map(device).collect();
    Kind::Inventory(Inventory { origin, devices, driver_version, library_version: String::new() })
}

fn value(field: u32, age_ns: i64, content: Content) -> Value {
    Value { field, age_ns, content: Some(content), stamp_us: 0 }
}

fn samples(key: u32, part_number: u32, values: Vec<Value>) -> Samples {
    Samples { origin: 1, key, part: 1, part_number, read_ns: NOW.0 - 5, values }
}

#[test]
fn the_driver_and_a_device_are_told_once() {
    let mut fed = Fed::new();
    let (signals, _) = fed.push(inventory(1, &[("GPU-1", 1), ("GPU-2", 2)]));
    assert_eq!(signals.len(), 1, "{signals:?}");
    assert!(matches!(&signals[0], Signal::Gpu { gpu, .. } if gpu.hw_id == "GPU-2"));
    let (signals, _) =
        Fed { intake: Intake::new(Pid(1), Refused::new(&fed.telemetry)), ..fed }.push(inventory(2, &[]));
    assert!(matches!(&signals[..], [Signal::Driver { driver, .. }]
        if driver.version.as_deref() == Some("580.142") && driver.flavour.is_none()));
}

#[test]
fn a_device_is_gone_when_no_library_has_it_any_more() {
    let mut fed = Fed::new();
    let mut states = |origin: u32, devices: &[(&str, u32)]| -> Vec<(String, DeviceState)> {
        let (out, _) = fed.push(inventory(origin, devices));
        let state = |signal| match signal {
            Signal::GpuState { hw_id, state, .. } => Some((hw_id, state)),
            _ => None,
        };
        out.into_iter().filter_map(state).collect()
    };
    assert_eq!(states(1, &[("GPU-1", 1), ("GPU-2", 2)]), []);
    assert_eq!(states(2, &[("GPU-1", 1), ("GPU-2", 2)]), []);
    assert_eq!(states(2, &[("GPU-1", 1)]), [], "DCGM still has it");
    assert_eq!(states(1, &[("GPU-1", 1)]), [("GPU-2".to_owned(), DeviceState::Gone)]);
}

#[test]
fn values_arrive_with_their_own_times_and_what_cannot_be_is_invalid() {
    let mut fed = Fed::new();
    let values = vec![
        value(150, 1_000, Content::Int(i64::MAX)),
        value(1002, -7, Content::Number(0.5)),
        value(1003, i64::MIN, Content::Number(f64::NAN)),
        value(50, i64::MAX, Content::Text("H100\n".to_owned())),
        value(51, 0, Content::Text("\u{1b}".to_owned())),
        value(
            155,
            0,
            Content::Absent(Absence::ALL.iter().position(|a| *a == Absence::Stale).unwrap() as u32),
        ),
        value(156, 0, Content::Absent(99)),
        Value { field: 157, ..Value::default() },
        value(70_000, 0, Content::Int(1)),
    ];
    let (mut signals, _) = fed.push(Kind::Samples(samples(1, 3, values)));
    let Some(Signal::Samples { at, samples }) = signals.pop() else { panic!("{signals:?}") };
    assert_eq!(
        (at, &*samples.subject.hw_id, samples.subject.part),
        (MonoNs(NOW.0 - 5), "GPU-1", Part::Link(3))
    );
    assert_eq!(samples.origin, Origin::Dcgm);
    let got: Vec<_> = samples.readings.iter().map(|r| (r.at.0, r.value.clone())).collect();
    let latest = NOW.0 + 1_000_000_000;
    let want = [
        (NOW.0 - 1_005, SampleValue::Int(i64::MAX)),
        (NOW.0 + 2, SampleValue::Number(0.5)),
        (latest, SampleValue::Absent(Absence::Invalid)),
        (0, SampleValue::Text("H100".into())),
        (NOW.0 - 5, SampleValue::Absent(Absence::Blank)),
        (NOW.0 - 5, SampleValue::Absent(Absence::Stale)),
        (NOW.0 - 5, SampleValue::Absent(Absence::Invalid)),
        (NOW.0 - 5, SampleValue::Absent(Absence::Invalid)),
    ];
    assert_eq!(got, want);
    assert_eq!(fed.refused("invalid"), 1, "the field number that cannot be");
}

#[test]
fn unknown_devices_and_too_many_parts_are_refused_and_counted() {
    let mut fed = Fed::new();
    let one = || vec![value(150, 0, Content::Int(1))];
    assert_eq!(fed.push(Kind::Samples(samples(9, 0, one()))), (vec![], None));
    assert_eq!(fed.push(Kind::Processes(Processes { key: 9, ..Processes::default() })).0, []);
    assert_eq!(fed.push(Kind::Health(Health { key: 9, ..Health::default() })).0, []);
    assert_eq!(fed.refused("unknown_device"), 3);
    let many = u32::try_from(SUBJECTS_MAX).unwrap() + 5;
    let taken = (0..many).filter(|n| fed.push(Kind::Samples(samples(1, *n, one()))).0.len() == 1).count();
    assert_eq!((taken, fed.refused("too_many")), (SUBJECTS_MAX, 5));
    fed.push(inventory(1, &[("GPU-2", 2)]));
    assert_eq!(fed.push(Kind::Samples(samples(2, 0, one()))).0.len(), 1, "parts end with their device");
    fed.push(inventory(1, &[("GPU-1", 1), ("GPU-2", 2)]));
    fed.intake.begin(Pid(12), None);
    assert_eq!(fed.push(Kind::Samples(samples(1, 0, one()))).0, [], "keys end with their worker");
    for odd in [
        Samples { origin: 7, ..samples(1, 0, one()) },
        Samples { part: 9, ..samples(1, 0, one()) },
        samples(1, u32::MAX, one()),
        samples(1, 0, vec![]),
    ] {
        let mut fed = Fed::new();
        assert_eq!((fed.push(Kind::Samples(odd)).0, fed.refused("invalid")), (vec![], 1));
    }
}

#[test]
fn processes_begin_and_end_uses_and_our_own_are_no_workload() {
    let mut fed = Fed::new();
    let on = |pids: &[u32]| {
        let process =
            |pid: &u32| Process { pid: *pid, memory: Some(1), sm_utilization: Some(f64::NAN), context: 0 };
        Kind::Processes(Processes { key: 1, read_ns: NOW.0, processes: pids.iter().map(process).collect() })
    };
    let uses = |signals: Vec<Signal>| -> Vec<(u32, String, bool)> {
        let uses = signals.into_iter().filter_map(|signal| match signal {
            Signal::Uses { uses, .. } => Some((uses.pid.0, uses.role, uses.end)),
            _ => None,
        });
        uses.collect()
    };
    let workload = |pid, end| (pid, "workload".to_owned(), end);
    let listed = |fed: &Fed| {
        let listed = fed.intake.listed().into_iter().map(|device| (device.hw_id, device.processes));
        listed.collect::<Vec<_>>()
    };
    assert_eq!(listed(&fed), [("GPU-1".to_owned(), None)], "nobody has told");
    let (first, _) = fed.push(on(&[11, 77, 0]));
    assert_eq!(listed(&fed), [("GPU-1".to_owned(), Some(vec![77]))]);
    assert!(matches!(first.last(), Some(Signal::Processes { processes, .. })
        if processes.processes.len() == 2 && processes.processes[1].sm_utilization.is_none()));
    assert_eq!(uses(first), [(11, "agent".to_owned(), false), workload(77, false)]);
    assert_eq!(uses(fed.push(on(&[11, 77])).0), []);
    assert_eq!(
        uses(fed.push(on(&[78])).0),
        [(11, "agent".to_owned(), true), workload(77, true), workload(78, false)]
    );
    fed.push(on(&[]));
    assert_eq!(listed(&fed), [("GPU-1".to_owned(), Some(vec![]))]);
    fed.push(on(&[78]));
    fed.push(inventory(1, &[]));
    assert_eq!(uses(fed.push(inventory(2, &[])).0), [workload(78, true)], "the device is gone");
    assert_eq!(listed(&fed), []);
}

#[test]
fn health_is_told_by_subsystem() {
    let mut fed = Fed::new();
    let levels = vec![0, 2, 7];
    let (signals, _) = fed.push(Kind::Health(Health { key: 1, read_ns: 1, levels }));
    let told: Vec<_> = signals
        .iter()
        .map(|signal| match signal {
            Signal::Health { subsystem, level, .. } => format!("{} {level:?}", subsystem.name()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((told, fed.refused("invalid")), (vec!["pcie Pass".to_owned(), "nvlink Fail".to_owned()], 1));
}

#[test]
fn heartbeats_give_late_calls_and_latencies() {
    let mut fed = Fed::new();
    let in_flight = |call: &str, origin| InFlight {
        call: call.to_owned(),
        origin,
        hw_id: "GPU-1".to_owned(),
        began_ns: 5,
    };
    let finished = |slots: Vec<u32>| Finished {
        call: "dcgmUpdateAllFields".to_owned(),
        origin: 1,
        slots,
        sum_ns: 9,
        errors: 1,
        hw_id: String::new(),
    };
    let beat = Heartbeat {
        in_flight: vec![in_flight("f", 2), in_flight("", 2), in_flight("g", 3)],
        finished: vec![finished(vec![3, 3, 39]), finished(vec![40])],
        dropped_values: 4,
        dropped_others: 5,
    };
    let (signals, aside) = fed.push(Kind::Heartbeat(beat));
    let Some(Aside::Heartbeat(flights, (4, 5))) = aside else { panic!("{aside:?}") };
    assert_eq!(flights.len(), 1, "a call without a name, or of nobody, is no call");
    assert_eq!((flights[0].origin, flights[0].call.began), (Origin::Nvml, MonoNs(5)));
    let [Signal::VendorCalls { calls, .. }] = &signals[..] else { panic!("{signals:?}") };
    assert_eq!((&*calls.call, &calls.hw_id, calls.latency.errors), ("dcgmUpdateAllFields", &None, 1));
    assert_eq!((calls.latency.slots[3], calls.latency.slots[39], calls.latency.count()), (2, 1, 3));
    assert_eq!(fed.refused("invalid"), 1, "a slot that is none");
}

#[test]
fn what_is_not_for_the_stages_comes_aside() {
    let mut fed = Fed::new();
    let state = State { name: "dcgm".to_owned(), ..State::default() };
    assert_eq!(fed.push(Kind::State(state.clone())).1, Some(Aside::State(state)));
    for (event, want) in [(1, Some(Aside::Bind(true))), (2, Some(Aside::Bind(false))), (3, None)] {
        assert_eq!(fed.push(Kind::Bind(Bind { event })).1, want);
    }
}

/// Numbers that look random and are the same each time (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }
}

#[test]
fn damaged_reports_neither_panic_nor_pile_up() {
    let mut fed = Fed::new();
    let values = vec![value(150, 1_000, Content::Int(1)), value(50, -5, Content::Text("H100".to_owned()))];
    let process = Process { pid: 77, memory: Some(1), sm_utilization: Some(0.5), context: 0 };
    let whole = [
        inventory(1, &[("GPU-1", 1), ("GPU-2", 2)]),
        inventory(2, &[("GPU-1", 1)]),
        Kind::Samples(samples(1, 3, values)),
        Kind::Processes(Processes { key: 1, read_ns: NOW.0, processes: vec![process] }),
        Kind::Health(Health { key: 1, read_ns: 1, levels: vec![0, 1, 2] }),
        Kind::State(State { name: "dcgm".to_owned(), ..State::default() }),
    ];
    let whole = whole.map(|kind| Report { kind: Some(kind) }.encode_to_vec());
    let (mut chance, mut taken, mut signals) = (Chance(0x9e37_79b9_7f4a_7c15), 0, 0);
    for _ in 0..50_000 {
        let mut bytes = whole[chance.below(whole.len())].clone();
        for _ in 0..=chance.below(4) {
            let at = chance.below(bytes.len());
            bytes[at] = u8::try_from(chance.below(256)).unwrap();
        }
        if let Ok(Report { kind: Some(kind) }) = Report::decode(&*bytes) {
            let (out, _) = fed.push(kind);
            assert!(out.len() < 100, "{out:?}");
            (taken, signals) = (taken + 1, signals + out.len());
        }
    }
    assert!(taken > 5_000 && signals > 1_000, "{taken} could be read, {signals} signals");
    let refused: u64 = ["invalid", "unknown_device"].iter().map(|reason| fed.refused(reason)).sum();
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn events_that_an_earlier_worker_told_are_no_news() {
    let mut fed = Fed::new();
    let told = |fed: &mut Fed, values: &[(i64, i64)]| -> Vec<i64> {
        let event =
            |&(number, stamp_us): &(i64, i64)| Value { stamp_us, ..value(230, 5, Content::Int(number)) };
        let values = values.iter().map(event).collect();
        let (signals, _) = fed.push(Kind::Samples(Samples { part: 0, ..samples(1, 0, values) }));
        let number = |value: &SampleValue| if let SampleValue::Int(n) = value { *n } else { -1 };
        let numbers = |signal: &Signal| match signal {
            Signal::Samples { samples, .. } => samples.readings.iter().map(|r| number(&r.value)).collect(),
            _ => Vec::new(),
        };
        signals.iter().flat_map(numbers).collect()
    };
    assert_eq!(told(&mut fed, &[(31, 10), (43, 11)]), [31, 43]);
    fed.intake.begin(Pid(12), None);
    fed.push(inventory(1, &[("GPU-1", 7)]));
    fed.push(inventory(1, &[("GPU-1", 1)])); // the new worker has keys of its own
    assert_eq!(told(&mut fed, &[(31, 10), (43, 11), (43, 12)]), [43]);
    assert_eq!(told(&mut fed, &[(31, 10)]), [] as [i64; 0]);
    assert_eq!(fed.refused("invalid"), 0);
}
