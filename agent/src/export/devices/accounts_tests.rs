//! Tests of the accounts of energy.
//!
//! In: readings and lists with every time given. Out: assertions on the shares. What can go wrong is what is tested.
use proptest::prelude::*;

use super::*;

const GPU: &str = "GPU-1";

/// What happens to the device at a time. Unit: s.
enum Event {
    /// The counter is read. Unit: mJ.
    Read(u64, i64),
    /// The counter cannot be read.
    Lack(u64, Absence),
    /// The list: pods with their use.
    List(u64, &'static [(&'static str, Option<f64>)]),
    /// The source of the counter goes down.
    Down,
}
use Event::{Down, Lack, List, Read};

fn mono(second: u64) -> MonoNs {
    MonoNs(second * 1_000_000_000)
}

fn pod(name: &str) -> Whose {
    Whose { pod_uid: Some(name.to_owned()), ..Whose::default() }
}

fn feed(accounts: &mut Accounts, events: &[Event]) {
    let gpu: Arc<str> = GPU.into();
    let reading = |second, value| Reading { at: mono(second), field: COUNTER, value };
    for event in events {
        match event {
            Read(second, mj) => {
                accounts.read(&gpu, &reading(*second, SampleValue::Int(*mj)), Origin::Dcgm);
            }
            Lack(second, why) => {
                accounts.read(&gpu, &reading(*second, SampleValue::Absent(*why)), Origin::Dcgm);
            }
            List(second, pods) => {
                let uses: Vec<_> = pods.iter().map(|(name, sm)| (pod(name), *sm)).collect();
                accounts.list(&gpu, uses.iter().map(|(whose, sm)| (whose, *sm)), mono(*second));
            }
            Down => accounts.lose_source(Origin::Dcgm),
        }
    }
}

/// Joules by pod after the events.
fn shared(events: &[Event]) -> Vec<(String, f64)> {
    let mut accounts = Accounts::new(&Telemetry::default());
    feed(&mut accounts, events);
    let mut totals: BTreeMap<String, f64> = BTreeMap::new();
    for share in accounts.shares() {
        assert_eq!(&*share.hw_id, GPU);
        *totals.entry(share.whose.pod_uid.unwrap()).or_default() += share.joules;
    }
    // Sums of parts are exact to the microjoule.
    totals.into_iter().map(|(pod, joules)| (pod, (joules * 1e6).round() / 1e6)).collect()
}

fn check(what: &str, events: &[Event], want: &[(&str, f64)]) {
    let want: Vec<_> = want.iter().map(|(pod, joules)| ((*pod).to_owned(), *joules)).collect();
    assert_eq!(shared(events), want, "{what}");
}

const HALF: &[(&str, Option<f64>)] = &[("a", Some(0.5))];
const TWO: &[(&str, Option<f64>)] = &[("a", Some(0.3)), ("b", Some(0.2))];
const FULL: &[(&str, Option<f64>)] = &[("a", Some(0.9)), ("b", Some(0.6))];

#[test]
fn energy_is_shared_by_use_and_what_nobody_used_is_nobodys() {
    check(
        "two pods",
        &[List(0, TWO), Read(0, 0), List(1, TWO), Read(1, 100_000)],
        &[("a", 30.0), ("b", 20.0)],
    );
    check(
        "more than one: each divided by the sum",
        &[List(0, FULL), Read(0, 0), List(1, FULL), Read(1, 100_000)],
        &[("a", 60.0), ("b", 40.0)],
    );
    let idle: &[_] = &[("a", Some(0.0)), ("b", None)];
    check("no kernel ran", &[List(0, idle), Read(0, 0), List(1, idle), Read(1, 100_000)], &[]);
    check("nobody is there", &[List(0, &[]), Read(0, 0), List(1, &[]), Read(1, 100_000)], &[]);
}

#[test]
fn nothing_from_before_somebody_looked_is_shared() {
    check("the first reading is no increase", &[List(0, HALF), List(1, HALF), Read(1, 900_000)], &[]);
    check("nor does the first list tell of a time", &[Read(0, 0), List(1, HALF), Read(1, 100_000)], &[]);
}

#[test]
fn readings_and_lists_may_come_at_different_intervals() {
    let slow_readings: Vec<Event> = [Read(0, 0), List(0, &[])]
        .into_iter()
        .chain((1..=10).map(|second| List(second, if second <= 4 { HALF } else { &[] })))
        .chain([Read(10, 1_000_000)])
        .collect();
    check("half of 4 s of 10", &slow_readings, &[("a", 200.0)]);
    let slow_lists: Vec<Event> = [List(0, HALF), Read(0, 0)]
        .into_iter()
        .chain((1..=4).map(|second| Read(second, second as i64 * 100_000)))
        .chain([List(5, HALF), Read(5, 500_000), Read(6, 600_000)])
        .collect();
    check("one list of 5 s", &slow_lists, &[("a", 250.0)]);
    check(
        "of the list's 10 s only the last is one of which the energy is known",
        &[List(0, HALF), Read(9, 0), List(10, HALF), Read(10, 100_000)],
        &[("a", 50.0)],
    );
    // The second list tells of 3 s, and only 1 s is between the readings: all of their energy, and no more.
    check(
        "a list that tells of more time than there was",
        &[List(0, FULL), Read(0, 0), List(3, FULL), Read(5, 500_000), List(6, FULL), Read(6, 600_000)],
        &[("a", 240.0), ("b", 160.0)],
    );
}

#[test]
fn no_gap_is_bridged() {
    check(
        "a list after a gap counts for one step",
        &[List(0, HALF), Read(0, 0), List(1, HALF), List(100, HALF), Read(100, 100_000)],
        &[("a", 1.0)],
    );
    check(
        "what was used while the counter was away is nobody's",
        &[
            List(0, HALF),
            Read(0, 0),
            Lack(1, Absence::Stale),
            List(2, HALF),
            Read(3, 300_000),
            List(4, HALF),
            Read(4, 400_000),
        ],
        &[("a", 50.0)], // the last list tells of 2 s, of which 1 s lies after the reading
    );
    check("its source was down", &[List(0, HALF), Read(0, 0), Down, List(1, HALF), Read(1, 100_000)], &[]);
    check(
        "the counter began anew",
        &[List(0, HALF), Read(0, 500_000), List(1, HALF), Read(1, 7), List(2, HALF), Read(2, 100_007)],
        &[("a", 50.0)],
    );
    check(
        "a reading told twice, or late, is none",
        &[
            List(0, HALF),
            Read(1, 0),
            List(1, HALF),
            Read(1, 0),
            Read(0, 900),
            List(2, HALF),
            Read(2, 100_000),
        ],
        &[("a", 50.0)],
    );
}

#[test]
fn a_workload_that_ends_has_its_share_up_to_its_end() {
    check(
        "it used half of the first of two seconds",
        &[
            List(0, HALF),
            Read(0, 0),
            List(1, HALF),
            List(2, &[]),
            Read(2, 200_000),
            List(3, &[]),
            Read(3, 900_000),
        ],
        &[("a", 50.0)],
    );
}

#[test]
fn a_lack_has_a_reason_and_an_instance_has_no_counter() {
    let absence = |events: &[Event], is_instance, second| {
        let mut accounts = Accounts::new(&Telemetry::default());
        feed(&mut accounts, events);
        accounts.absence(GPU, is_instance, mono(second))
    };
    assert_eq!(absence(&[], false, 0), None, "nobody is there");
    assert_eq!(absence(&[List(0, HALF)], false, 59), None, "it may still come");
    assert_eq!(absence(&[List(0, HALF)], false, 60), Some(Absence::Blank));
    assert_eq!(absence(&[List(0, HALF)], true, 1), Some(Absence::NotSupported));
    assert_eq!(absence(&[List(0, HALF), Read(1, 5)], true, 1), None, "one that has a counter");
    let refused = Lack(1, Absence::NotPermitted);
    assert_eq!(absence(&[List(0, HALF), refused], false, 1), Some(Absence::NotPermitted));
    assert_eq!(absence(&[Read(0, 5), Down], false, 1), Some(Absence::SourceDown));
    let mut accounts = Accounts::new(&Telemetry::default());
    feed(&mut accounts, &[Read(0, 5)]);
    let lack = Reading { at: mono(1), field: COUNTER, value: SampleValue::Absent(Absence::NotFound) };
    accounts.read(&GPU.into(), &lack, Origin::Nvml);
    assert_eq!(accounts.absence(GPU, false, mono(1)), None, "another source's lack");
    accounts.lose(GPU, Absence::DeviceLost);
    assert_eq!(accounts.absence(GPU, false, mono(1)), Some(Absence::DeviceLost));
}

#[test]
fn devices_and_workloads_are_bounded() {
    let telemetry = Telemetry::default();
    let mut accounts = Accounts::new(&telemetry);
    feed(&mut accounts, &[List(0, &[]), Read(0, 0)]);
    let many: Vec<_> = (0..=Accounts::MOST).map(|n| pod(&n.to_string())).collect();
    accounts.list(&GPU.into(), many.iter().map(|whose| (whose, Some(0.1))), mono(1));
    feed(&mut accounts, &[Read(1, 1_000)]);
    let refused = [("metric", ENERGY.name), ("reason", "limit")];
    let refused = telemetry.counter("warpgauge.series.refused", &refused).get();
    assert_eq!((accounts.shares().len(), refused), (Accounts::MOST, 1));
    for n in 0..=Accounts::DEVICES_MAX {
        accounts.list(&format!("MIG-{n}").into(), std::iter::empty(), mono(1));
    }
    assert_eq!(accounts.devices.len(), Accounts::DEVICES_MAX);
    accounts.forget(GPU);
    assert_eq!(accounts.devices.len(), Accounts::DEVICES_MAX - 1);
}

/// One thing that happens so many milliseconds after the one before.
#[derive(Clone, Debug)]
enum Step {
    List(Vec<(u8, Option<f64>)>),
    /// By so many mJ the counter grew.
    Grow(u32),
    /// The counter began anew.
    Anew,
    Lack,
    Down(Origin),
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let used = (0..4u8, proptest::option::weighted(0.8, 0.0..=1.0));
    let what = prop_oneof![
        4 => proptest::collection::vec(used, 0..4).prop_map(Step::List),
        4 => any::<u32>().prop_map(Step::Grow),
        1 => Just(Step::Anew),
        1 => Just(Step::Lack),
        1 => prop_oneof![Just(Origin::Dcgm), Just(Origin::Nvml)].prop_map(Step::Down),
    ];
    (0..20_000u64, what)
}

proptest! {
    /// Whatever comes in whatever order: nobody pays less than nothing, and all together no more than the device used.
    #[test]
    fn the_shares_are_never_more_than_the_device_used(steps in proptest::collection::vec(step(), 1..64)) {
        let mut accounts = Accounts::new(&Telemetry::default());
        let gpu: Arc<str> = GPU.into();
        let (mut at, mut counter, mut used) = (MonoNs(0), 0i64, 0.0);
        for (later, step) in steps {
            at = at.after(Duration::from_millis(later));
            let mut read = |value| {
                accounts.read(&gpu, &Reading { at, field: COUNTER, value }, Origin::Dcgm);
            };
            match step {
                Step::List(rows) => {
                    let uses: Vec<_> = rows.iter().map(|(n, sm)| (pod(&n.to_string()), *sm)).collect();
                    accounts.list(&gpu, uses.iter().map(|(whose, sm)| (whose, *sm)), at);
                }
                Step::Grow(by) => {
                    counter += i64::from(by);
                    used += f64::from(by) / 1_000.0;
                    read(SampleValue::Int(counter));
                }
                Step::Anew => {
                    counter = 0;
                    read(SampleValue::Int(counter));
                }
                Step::Lack => read(SampleValue::Absent(Absence::Stale)),
                Step::Down(origin) => accounts.lose_source(origin),
            }
            for share in accounts.shares() {
                prop_assert!(share.joules >= 0.0, "{share:?}");
                used -= share.joules;
            }
            prop_assert!(used > -1e-6, "{used} J more than there was");
        }
    }
}
