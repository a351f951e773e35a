//! How series of the table end with their workload or device, and what is kept of boards.
//!
//! In: hand-made facts. Out: assertions on the batches. What can go wrong is what is tested.
use super::*;

fn state(hw_id: &str, state: DeviceState) -> Attributed<Fact> {
    let item = Fact::Reading(Signal::GpuState { at: mono(1), hw_id: hw_id.to_owned(), state });
    Attributed { item, processes: vec![] }
}

#[test]
fn series_of_a_device_that_went_leave_once_more_and_end() {
    let mut snapshot = snapshot(Limits::default());
    let latency = LatencyDelta { sum_ns: 1, ..LatencyDelta::default() };
    let calls = |hw_id: &str| {
        let (origin, call) = (crate::model::Origin::Dcgm, "dcgmHealthCheck".to_owned());
        let calls = VendorCalls { origin, call, hw_id: Some(hw_id.to_owned()), latency: latency.clone() };
        let item = Fact::Reading(Signal::VendorCalls { at: mono(1), calls: Box::new(calls) });
        Attributed { item, processes: vec![] }
    };
    for hw_id in ["GPU-1", "GPU-2"] {
        snapshot.push(&calls(hw_id));
        snapshot.push(&xid(79, "bus", Some(hw_id)));
    }
    snapshot.push(&state("GPU-1", DeviceState::Gone));
    let of = |batch: &Batch, hw_id: &str| {
        let has = |point: &&Point| point.attributes.iter().any(|(_, value)| value == hw_id);
        batch.points.iter().filter(has).count()
    };
    let last = snapshot.collect(anchor(10), INTERVAL, None);
    assert_eq!((of(&last, "GPU-1"), of(&last, "GPU-2")), (3, 3), "what happened last is told");
    let after = snapshot.collect(anchor(20), INTERVAL, None);
    assert_eq!((of(&after, "GPU-1"), of(&after, "GPU-2")), (3, 3));
    let ends = after.points.iter().filter(|point| point.value == Value::End);
    assert!(ends.clone().count() == 3 && ends.clone().all(|point| attributes(point).contains("GPU-1")));
    let later = snapshot.collect(anchor(30), INTERVAL, None);
    assert_eq!((of(&later, "GPU-1"), of(&later, "GPU-2")), (0, 3));
    (0..=GONE_MAX).for_each(|n| snapshot.push(&state(&format!("MIG-{n}"), DeviceState::Gone)));
    assert!(snapshot.gone.is_empty(), "bounded where nobody collects");
}

const CALLS: &str = "gpu.driver.call.duration";
const ACTIVE: &str = "gpu.stall.active";

/// The points that must arrive before the others, of calls.
fn lasts(batch: &Batch) -> Vec<(Option<u64>, u64, String)> {
    let points = batch.zeros.iter().map(|(_, point)| point.clone()).collect();
    shown(&Batch { points, ..Batch::default() }, CALLS)
}

/// Start, time and value (a histogram's count) of the points of a metric; times in seconds.
fn shown(batch: &Batch, name: &str) -> Vec<(Option<u64>, u64, String)> {
    let second = |at: WallNs| (at.0 - wall(0).0) / 1_000_000_000;
    let show = |point: &&Point| {
        let value = match &point.value {
            Value::Latency(latency) => latency.count().to_string(),
            other => format!("{other:?}"),
        };
        (point.start.map(second), second(point.at), value)
    };
    of_metric(&batch.points, name).iter().map(show).collect()
}

fn row(start: u64, at: u64, value: &str) -> (Option<u64>, u64, String) {
    (Some(start), at, value.to_owned())
}

#[test]
fn a_workload_that_is_over_says_its_last_value_once_more_and_ends() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&of(calls(1, 3, 2, true), 1, "p"));
    for at in [10, 290] {
        snapshot.push(&tick(at));
        assert_eq!(shown(&snapshot.collect(anchor(at), INTERVAL, None), CALLS).len(), 1, "{at}");
    }
    snapshot.push(&tick(300));
    let last = [row(0, 300, "2")];
    for at in [300, 310] {
        let batch = snapshot.collect(anchor(at), INTERVAL, None);
        assert_eq!(
            (shown(&batch, CALLS), lasts(&batch)),
            (vec![], last.to_vec()),
            "until it is known to be there"
        );
    }
    snapshot.settle_zeros(4);
    let batch = snapshot.collect(anchor(320), INTERVAL, None);
    assert_eq!((shown(&batch, CALLS), lasts(&batch)), (vec![row(0, 320, "End")], vec![]));
    assert_eq!(shown(&snapshot.collect(anchor(330), INTERVAL, None), CALLS), []);
    let Snapshot { table, workloads, .. } = &snapshot;
    assert!(format!("{table:?} {workloads:?}").find("pod_uid: Some").is_none(), "{table:?} {workloads:?}");
}

#[test]
fn a_workload_that_comes_back_goes_on_with_a_later_start_and_without_an_end() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&of(calls(1, 3, 2, true), 1, "p"));
    snapshot.collect(anchor(10), INTERVAL, None);
    snapshot.push(&tick(300));
    snapshot.collect(anchor(300), INTERVAL, None);
    snapshot.push(&of(calls(2, 3, 1, false), 2, "p"));
    for at in [310, 320] {
        let batch = snapshot.collect(anchor(at), INTERVAL, None);
        assert_eq!((shown(&batch, CALLS), lasts(&batch)), (vec![row(300, at, "1")], vec![row(0, 300, "2")]));
    }
    snapshot.settle_zeros(4);
    let batch = snapshot.collect(anchor(330), INTERVAL, None);
    assert_eq!((shown(&batch, CALLS), lasts(&batch)), (vec![row(300, 330, "1")], vec![]));
}

#[test]
fn what_an_interval_was_too_long_for_is_still_told() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&at(2, of(calls(1, 3, 2, true), 1, "p")));
    snapshot.push(&tick(600));
    let batch = snapshot.collect(anchor(600), Duration::from_secs(600), None);
    assert_eq!(lasts(&batch), [row(0, 2, "2")], "it came and went between two collections");
    snapshot.settle_zeros(batch.generation);
    let batch = snapshot.collect(anchor(1_200), Duration::from_secs(600), None);
    assert_eq!(shown(&batch, CALLS), [row(0, 1_200, "End")]);
}

#[test]
fn a_level_ends_with_the_last_process_of_its_workload() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&of(calls(1, 3, 1, false), 1, "p"));
    snapshot.push(&at(3, stall("s", StallState::Begin, 1)));
    let level = |batch: &Batch| -> Vec<_> { shown(batch, ACTIVE).into_iter().map(|(.., v)| v).collect() };
    assert_eq!(level(&snapshot.collect(anchor(10), INTERVAL, None)), ["Count(1)"]);
    let exit = Fact::Reading(Signal::Exit { at: mono(11), pid: Pid(1) });
    snapshot.push(&Attributed { item: exit, processes: vec![] });
    assert_eq!(level(&snapshot.collect(anchor(20), INTERVAL, None)), ["Count(1)"], "it still hangs");
    snapshot.push(&at(21, stall("s", StallState::End, 18)));
    let batch = snapshot.collect(anchor(30), INTERVAL, None);
    assert_eq!(level(&batch), ["End"]);
    assert_eq!(shown(&batch, "gpu.stall.time").len(), 1, "sums go on for a while");
    assert_eq!(level(&snapshot.collect(anchor(40), INTERVAL, None)), [] as [&str; 0]);
}

#[test]
fn while_a_collector_is_away_the_ended_keep_their_places_and_lose_nothing() {
    let telemetry = Telemetry::default();
    let limits = Limits { per_metric: 4, total: 100 };
    let mut snapshot = Snapshot::new(wall(0), Majors::new(None), limits, telemetry.clone());
    (1..=4).for_each(|n| snapshot.push(&of(calls(n, 3, n, true), n, &format!("p{n}"))));
    snapshot.push(&tick(300));
    let batch = snapshot.collect(anchor(300), INTERVAL, None);
    assert_eq!(lasts(&batch).len(), 4);
    let hour = snapshot.collect(anchor(3_600), INTERVAL, None);
    assert_eq!(lasts(&hour), lasts(&batch));
    let refused = telemetry.counter("warpgauge.series.refused", &[("metric", CALLS), ("reason", "limit")]);
    snapshot.push(&of(calls(5, 3, 1, false), 5, "p5"));
    assert_eq!(refused.get(), 1, "bounded");
    snapshot.settle_zeros(hour.generation);
    assert_eq!(shown(&snapshot.collect(anchor(3_610), INTERVAL, None), CALLS).len(), 4, "their ends");
    snapshot.push(&of(calls(5, 3, 1, false), 5, "p5"));
    assert_eq!(shown(&snapshot.collect(anchor(3_620), INTERVAL, None), CALLS).len(), 1);
}

#[test]
fn nobody_is_told_of_ends_where_nobody_collects() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&of(calls(1, 3, 2, true), 1, "p"));
    snapshot.push(&tick(300));
    snapshot.expire();
    assert_eq!(shown(&snapshot.collect(anchor(310), INTERVAL, None), CALLS), []);
}

#[test]
fn a_greedy_workload_leaves_room_and_the_places_of_the_ended_are_used_again() {
    let telemetry = Telemetry::default();
    let limits = Limits { per_metric: 100, total: 1_000 };
    let mut snapshot = Snapshot::new(wall(0), Majors::new(None), limits, telemetry.clone());
    let call = |pid: u32, op: u32, pod: &str, last| {
        let mut fact = of(calls(pid, 3, 1, last), pid, pod);
        let Fact::Reading(Signal::CallStats { stats, .. }) = &mut fact.item else { panic!("calls") };
        stats.op = op;
        fact
    };
    for op in 0..200 {
        snapshot.push(&call(1, op, "greedy", false));
    }
    let held = |snapshot: &mut Snapshot, seconds| {
        snapshot.push(&tick(seconds));
        let batch = snapshot.collect(anchor(seconds), INTERVAL, None);
        let alive = of_metric(&batch.points, CALLS);
        alive.into_iter().filter(|point| point.value != Value::End).count()
    };
    assert_eq!(held(&mut snapshot, 10), 25, "a quarter");
    let refused = |reason| {
        let attributes = [("metric", CALLS), ("reason", reason)];
        telemetry.counter("warpgauge.series.refused", &attributes).get()
    };
    assert_eq!((refused("owner_limit"), refused("limit")), (175, 0));
    (2..=70).for_each(|n| snapshot.push(&call(n, 1, &format!("p{n}"), true)));
    assert_eq!((held(&mut snapshot, 20), refused("limit")), (94, 0), "69 others have one each");
    snapshot.push(&call(77, 1, "late", false));
    assert_eq!(refused("limit"), 1);
    snapshot.push(&at(21, call(1, 1, "greedy", false)));
    snapshot.push(&tick(32));
    assert_eq!(held(&mut snapshot, 32), 25, "the last values of the others are on their way");
    snapshot.settle_zeros(3);
    assert_eq!(held(&mut snapshot, 42), 25);
    snapshot.push(&call(77, 1, "late", false));
    assert_eq!((held(&mut snapshot, 52), refused("limit")), (26, 1), "the ended made room early");
}

#[test]
fn addresses_of_boards_are_bounded_and_end_with_the_board() {
    let telemetry = Telemetry::default();
    let mut snapshot = Snapshot::new(wall(0), Majors::new(None), Limits::default(), telemetry.clone());
    for domain in 0..=BOARDS_MAX {
        let gpu = Gpu {
            hw_id: format!("GPU-{domain}"),
            index: None,
            minor: None,
            pci: PciAddress::parse(&format!("{domain:04x}:3b:00.0")),
            model: None,
            parent: None,
            details: Box::default(),
        };
        let item = Fact::Reading(Signal::Gpu { at: mono(1), gpu });
        snapshot.push(&Attributed { item, processes: vec![] });
    }
    let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "boards")]);
    assert_eq!((snapshot.boards.len(), refused.get()), (BOARDS_MAX, 1));
    snapshot.push(&state("GPU-7", DeviceState::Gone));
    assert_eq!(snapshot.boards.len(), BOARDS_MAX - 1);
}
