//! Tests of the snapshot: facts in, points out, with every time given.
//!
//! In: hand-made facts. Out: assertions on the batches. What can go wrong is what is tested.
mod accounts;
mod driver;
mod ends;
mod names;

use super::*;
use crate::export::point::{Point, Value};
use crate::model::units::SLOTS;
use crate::model::{
    CallKind, Cause, CgroupId, Confidence, DeviceNode, DriverLine, Known, LatencyDelta, LineKind, LogOrigin,
    Pid, Process, Severity, StallState, Tid, Victim, Workload,
};

const INTERVAL: Duration = Duration::from_secs(10);

fn wall(seconds: u64) -> WallNs {
    WallNs((1_000 + seconds) * 1_000_000_000)
}

/// So many seconds after boot and after the agent's start, which are one here.
fn anchor(seconds: u64) -> WallAnchor {
    WallAnchor { mono: mono(seconds), wall: wall(seconds) }
}

fn mono(seconds: u64) -> MonoNs {
    MonoNs(seconds * 1_000_000_000)
}

/// The fact as of another time.
fn at(seconds: u64, mut fact: Attributed<Fact>) -> Attributed<Fact> {
    match &mut fact.item {
        Fact::Finding(finding) => finding.at = mono(seconds),
        Fact::Reading(Signal::CallStats { at, .. }) => *at = mono(seconds),
        Fact::Reading(other) => panic!("{other:?}"),
    }
    fact
}

fn snapshot(limits: Limits) -> Snapshot {
    Snapshot::new(wall(0), Majors::new(None), limits, Telemetry::default())
}

fn process(pod: &str) -> Process {
    let workload =
        Workload { pod_uid: Some(pod.into()), container_id: Some("c".into()), ..Workload::default() };
    Process { workload, cgroup: Some(format!("/{pod}")), ..Process::default() }
}

fn of(item: Fact, pid: u32, pod: &str) -> Attributed<Fact> {
    Attributed { item, processes: vec![(Pid(pid), Known::Is(process(pod)))] }
}

fn calls(pid: u32, slot: usize, n: u32, last: bool) -> Fact {
    let mut slots = [0; SLOTS];
    slots[slot] = n;
    let latency = LatencyDelta { slots, sum_ns: u64::from(n) * 1_500, errors: 0 };
    let device = Some(DeviceNode { major: 195, minor: 255 });
    let (kind, op, cgroup) = (CallKind::Ioctl, 0xc020_462a, CgroupId(u64::from(pid)));
    let stats = CallStats { pid: Pid(pid), cgroup, device, kind, function: None, op, latency, last };
    Fact::Reading(Signal::CallStats { at: MonoNs(0), stats: Box::new(stats) })
}

fn xid(code: u32, class: &str, hw_id: Option<&str>) -> Attributed<Fact> {
    let line = DriverLine {
        kind: LineKind::Xid(Default::default()),
        raw: String::new(),
        origin: LogOrigin::default(),
    };
    let word = || "w".to_owned();
    let kind = FindingKind::Xid(Xid {
        code,
        pci: PciAddress::parse("3b:00"),
        hw_id: hw_id.map(str::to_owned),
        name: word(),
        class: class.into(),
        severity: word(),
        action: word(),
        source: crate::model::XidSource::KernelLog,
        pid: None,
        line: Box::new(line),
    });
    let finding = Finding { id: "x".into(), at: MonoNs(0), severity: Severity::Error, kind };
    Attributed { item: Fact::Finding(Box::new(finding)), processes: vec![] }
}

fn stall(id: &str, state: StallState, seconds: u64) -> Attributed<Fact> {
    let stall = Stall {
        state,
        begin: MonoNs(0),
        duration: Duration::from_secs(seconds),
        cause: Cause::DriverCall,
        confidence: Confidence::High,
        hw_id: None,
        device_by: None,
        call: None,
        victims: vec![Victim { pid: Pid(1), tid: Tid(1), caller: None }],
        lock: None,
        holder: None,
        evidence: vec![],
    };
    let (severity, kind) = (Severity::Warn, FindingKind::Stall(stall));
    of(Fact::Finding(Box::new(Finding { id: id.into(), at: MonoNs(0), severity, kind })), 1, "p")
}

fn tick(seconds: u64) -> Attributed<Fact> {
    let at = MonoNs(seconds * 1_000_000_000);
    Attributed { item: Fact::Reading(Signal::Tick { at }), processes: vec![] }
}

fn of_metric<'a>(points: &'a [Point], name: &str) -> Vec<&'a Point> {
    points.iter().filter(|point| point.metric.name == name).collect()
}

fn attributes(point: &Point) -> String {
    let pairs: Vec<_> = point.attributes.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(" ")
}

#[test]
fn calls_of_all_processes_of_a_workload_add_up_in_one_series() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&at(8, of(calls(1, 3, 2, false), 1, "p")));
    snapshot.push(&at(7, of(calls(2, 5, 1, true), 2, "p")));
    snapshot.push(&at(9, of(calls(3, 5, 1, false), 3, "q")));
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    let durations = of_metric(&batch.points, "gpu.driver.call.duration");
    assert_eq!(durations.len(), 2, "one per workload");
    let want = "gpu.driver.device=195:255 gpu.driver.call=ioctl gpu.driver.operation=NV_ESC_RM_CONTROL \
                k8s.pod.uid=p container.id=c";
    assert_eq!(attributes(durations[0]), want);
    assert_eq!((durations[0].start, durations[0].at), (Some(wall(0)), wall(8)), "of the latest sample");
    let Value::Latency(latency) = &durations[0].value else { panic!("a histogram") };
    assert_eq!((latency.slots[3], latency.slots[5], latency.count(), latency.sum_ns), (2, 1, 3, 4_500));

    snapshot.push(&at(18, of(calls(1, 3, 1, false), 1, "p")));
    let batch = snapshot.collect(anchor(20), INTERVAL, None);
    let durations = of_metric(&batch.points, "gpu.driver.call.duration");
    let Value::Latency(latency) = &durations[0].value else { panic!("a histogram") };
    assert_eq!(latency.count(), 4, "cumulative");
    assert_eq!((durations[0].start, durations[0].at), (Some(wall(0)), wall(18)), "its start does not move");
    assert_eq!(durations[1].at, wall(20), "nothing has changed until then");
}

#[test]
fn series_beyond_the_limit_are_refused_and_counted() {
    let mut snapshot = snapshot(Limits { per_metric: 1, total: 10 });
    for pod in ["p", "q", "q"] {
        snapshot.push(&of(calls(1, 3, 1, false), 1, pod));
    }
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    assert_eq!(of_metric(&batch.points, "gpu.driver.call.duration").len(), 1);
    let refused = of_metric(&batch.points, "warpgauge.series.refused");
    let seen: Vec<_> = refused.iter().map(|p| (attributes(p), p.value.clone())).collect();
    let refused_of = |name: &str| (format!("metric={name} reason=limit"), Value::Count(2));
    let refused =
        ["gpu.driver.call.duration", "gpu.driver.call.errors", "gpu.workload.driver.time"].map(refused_of);
    assert_eq!(seen, refused);
}

#[test]
fn a_known_gpu_has_a_zero_for_every_class_and_an_error_is_one_more() {
    let mut snapshot = snapshot(Limits::default());
    let (hw_id, pci) = ("GPU-1".to_owned(), PciAddress::parse("3b:00"));
    let gpu =
        Gpu { hw_id, index: None, minor: None, pci, model: None, parent: None, details: Box::default() };
    let signal = Signal::Gpu { at: MonoNs(0), gpu };
    snapshot.push(&Attributed { item: Fact::Reading(signal), processes: vec![] });
    snapshot.push(&xid(79, "bus", None));
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    let errors = of_metric(&batch.points, "gpu.xid.errors");
    let total = |p: &&Point| if let Value::Count(n) = p.value { n } else { panic!("a count") };
    assert_eq!(errors.len(), XID_CLASSES.len());
    assert_eq!(errors.iter().map(total).sum::<u64>(), 1);
    let bus = errors.iter().find(|p| attributes(p) == "hw.id=GPU-1 gpu.xid.class=bus");
    assert_eq!(bus.map(total), Some(1), "the address led to the id");
}

#[test]
fn a_new_code_is_preceded_by_a_zero_that_stays_until_it_is_settled() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.collect(anchor(10), INTERVAL, None);
    snapshot.push(&at(17, xid(79, "bus", None)));
    let first = snapshot.collect(anchor(20), INTERVAL, None);
    let first_zeros: Vec<_> = first.zeros.iter().map(|(_, point)| point.clone()).collect();
    let zeros = of_metric(&first_zeros, "gpu.xid.errors.by_code");
    assert_eq!(attributes(zeros[0]), "gpu.pci.address=0000:3b:00.0 gpu.xid.class=bus gpu.xid.code=79");
    assert_eq!((zeros[0].at, zeros[0].start, &zeros[0].value), (wall(7), Some(wall(7)), &Value::Count(0)));
    let one = of_metric(&first.points, "gpu.xid.errors.by_code")[0];
    assert_eq!((one.at, one.start, &one.value), (wall(17), Some(wall(7)), &Value::Count(1)));

    let second = snapshot.collect(anchor(30), INTERVAL, None);
    assert_eq!(second.zeros, first.zeros, "the first export failed: the same zero again");
    snapshot.settle_zeros(first.generation);
    assert_eq!(snapshot.collect(anchor(40), INTERVAL, None).zeros, vec![]);
}

#[test]
fn a_stall_is_active_while_it_lasts_and_its_time_is_booked() {
    let mut snapshot = snapshot(Limits::default());
    let mut seen = Vec::new();
    for (state, seconds) in [(StallState::Begin, 1), (StallState::Update, 61), (StallState::End, 75)] {
        snapshot.push(&stall("s", state, seconds));
        let batch = snapshot.collect(anchor(seconds), INTERVAL, None);
        let value = |name| of_metric(&batch.points, name)[0].value.clone();
        seen.push((value("gpu.stall.active"), value("gpu.stall.count"), value("gpu.stall.time")));
        let active = of_metric(&batch.points, "gpu.stall.active")[0];
        assert_eq!(attributes(active), "gpu.stall.cause=driver_call k8s.pod.uid=p container.id=c");
    }
    let row =
        |active, seconds: u64| (Value::Count(active), Value::Count(1), Value::Nanos(seconds * 1_000_000_000));
    assert_eq!(seen, vec![row(1, 0), row(1, 61), row(0, 75)]);
}

#[test]
fn the_points_of_a_series_stay_in_order_whatever_the_times_of_its_samples() {
    let mut snapshot = snapshot(Limits::default());
    let mut times = Vec::new();
    // Early, late, from before the previous point, from the future, none.
    for (collected, sample) in [(10, Some(4)), (20, Some(19)), (30, Some(2)), (40, Some(99)), (50, None)] {
        if let Some(sample) = sample {
            snapshot.push(&at(sample, of(calls(1, 3, 1, false), 1, "p")));
        }
        let batch = snapshot.collect(anchor(collected), INTERVAL, None);
        times.push(of_metric(&batch.points, "gpu.driver.call.duration")[0].at);
    }
    assert_eq!(
        times,
        [wall(4), wall(19), wall(30), wall(40), wall(50)],
        "a late sample has the collection's time"
    );
}

#[test]
fn errors_from_before_the_first_run_are_counted_apart_and_do_not_look_new() {
    let mut snapshot = snapshot(Limits::default());
    let mut old = xid(79, "bus", Some("GPU-1"));
    let Fact::Finding(finding) = &mut old.item else { panic!("a finding") };
    let FindingKind::Xid(found) = &mut finding.kind else { panic!("an XID") };
    found.line.origin.backlog = true;
    snapshot.push(&old);
    snapshot.push(&at(5, xid(79, "bus", Some("GPU-1"))));
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    for name in ["gpu.xid.errors", "gpu.xid.errors.by_code"] {
        let seen: Vec<_> =
            of_metric(&batch.points, name).iter().map(|p| (attributes(p), p.value.clone())).collect();
        let code = if name.ends_with("code") { " gpu.xid.code=79" } else { "" };
        let live = format!("hw.id=GPU-1 gpu.xid.class=bus{code}");
        let backlog = format!("{live} gpu.xid.backlog=true");
        assert_eq!(seen, [(backlog, Value::Count(1)), (live.clone(), Value::Count(1))]);
        let zeros: Vec<_> = batch.zeros.iter().filter(|(_, zero)| zero.metric.name == name).collect();
        assert_eq!(zeros.iter().map(|(_, zero)| attributes(zero)).collect::<Vec<_>>(), [live]);
    }
}

/// The wall clock says something else than the monotonic one.
fn stepped(seconds: u64, wall_seconds: u64) -> WallAnchor {
    WallAnchor { mono: mono(seconds), wall: wall(wall_seconds) }
}

#[test]
fn a_wall_clock_set_back_does_not_take_points_back() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&of(calls(1, 3, 2, false), 1, "p"));
    snapshot.collect(anchor(390), INTERVAL, None);
    snapshot.collect(anchor(400), INTERVAL, None);
    snapshot.push(&at(405, of(calls(1, 3, 2, false), 1, "p")));
    for (seconds, wall_seconds) in [(410, 100), (420, 101)] {
        let batch = snapshot.collect(stepped(seconds, wall_seconds), INTERVAL, None);
        let point = of_metric(&batch.points, "gpu.driver.call.duration")[0];
        let want = (Some(wall(0)), WallNs(wall(400).0 + (seconds - 400) / 10));
        assert_eq!((point.start, point.at), want, "5 min at most: it goes on from the latest point");
    }
}

#[test]
fn a_wall_clock_set_back_by_hours_closes_all_series_and_begins_them_anew_at_zero() {
    let telemetry = Telemetry::default();
    let mut snapshot = Snapshot::new(wall(0), Majors::new(None), Limits::default(), telemetry.clone());
    let errors = telemetry.counter("warpgauge.state.errors", &[]);
    errors.add(5);
    snapshot.push(&at(1, xid(79, "bus", None)));
    snapshot.push(&at(1, stall("s", StallState::Begin, 1)));
    snapshot.collect(anchor(7_190), INTERVAL, None);
    let first = snapshot.collect(anchor(7_200), INTERVAL, None);
    snapshot.settle_zeros(first.generation);
    snapshot.push(&at(7_205, xid(79, "bus", None)));
    let point = |batch: &Batch, name: &str| {
        let point = of_metric(&batch.points, name)[0].clone();
        (point.start, point.at, point.value)
    };
    let closing = snapshot.collect(stepped(7_210, 10), INTERVAL, None);
    let (start, end, value) = point(&closing, "gpu.xid.errors");
    assert_eq!((end, value), (WallNs(wall(7_200).0 + 1), Value::Count(2)), "nothing is lost");
    assert!(start < Some(wall(7_200)));

    errors.add(1);
    snapshot.push(&at(7_215, xid(79, "bus", None)));
    let anew = snapshot.collect(stepped(7_220, 20), INTERVAL, None);
    let begin = Some(WallNs(wall(10).0 + 1));
    assert_eq!(point(&anew, "gpu.xid.errors"), (begin, wall(15), Value::Count(1)));
    assert_eq!(point(&anew, "gpu.stall.count"), (begin, wall(20), Value::Count(0)));
    assert_eq!(point(&anew, "gpu.stall.active"), (None, wall(20), Value::Count(1)), "it goes on");
    assert_eq!(point(&anew, "warpgauge.state.errors"), (Some(wall(10)), wall(20), Value::Count(1)));
    let zero = anew.zeros.iter().find(|(_, zero)| zero.metric.name == "gpu.xid.errors");
    assert_eq!(zero.map(|(since, zero)| (*since, zero.at)), Some((anew.generation, WallNs(wall(10).0 + 1))));
}

#[test]
fn every_attribute_that_leaves_is_in_the_catalogue() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&of(calls(1, 3, 2, false), 1, "p"));
    snapshot.push(&xid(79, "bus", Some("GPU-1")));
    snapshot.push(&stall("s", StallState::Begin, 1));
    let batch = snapshot.collect(anchor(10), INTERVAL, own_points::usage(&crate::host::HostRoot::default()));
    assert!(batch.points.len() > 8);
    for point in batch.points.iter().chain(batch.zeros.iter().map(|(_, point)| point)) {
        for (name, _) in point.attributes.iter() {
            assert!(point.metric.attributes.contains(name), "{}: {name}", point.metric.name);
        }
    }
}

#[test]
fn calls_of_the_vendors_libraries_are_told_apart_by_function_and_device() {
    let mut snapshot = snapshot(Limits::default());
    let mut feed = |call: &str, hw_id: Option<&str>, slot: usize| {
        let mut latency = LatencyDelta { sum_ns: 45_000_000_000, ..LatencyDelta::default() };
        latency.slots[slot] = 1;
        let origin = crate::model::Origin::Dcgm;
        let calls = VendorCalls { origin, call: call.into(), hw_id: hw_id.map(str::to_owned), latency };
        let item = Fact::Reading(Signal::VendorCalls { at: mono(1), calls: Box::new(calls) });
        snapshot.push(&Attributed { item, processes: vec![] });
    };
    feed("dcgmHealthCheck", Some("GPU-1"), 35);
    feed("dcgmHealthCheck", Some("GPU-1"), 35);
    feed("dcgmUpdateAllFields", None, 20);
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    let of = of_metric(&batch.points, "gpu.vendor.call.duration");
    let got: Vec<_> = of
        .iter()
        .map(|point| {
            let Value::Latency(latency) = &point.value else { panic!("{point:?}") };
            (attributes(point), latency.count(), latency.slots[35])
        })
        .collect();
    let slow = "gpu.vendor.library=dcgm gpu.vendor.call=dcgmHealthCheck hw.id=GPU-1".to_owned();
    let all = "gpu.vendor.library=dcgm gpu.vendor.call=dcgmUpdateAllFields".to_owned();
    assert_eq!(got, [(slow, 2, 2), (all, 1, 0)]);
}
