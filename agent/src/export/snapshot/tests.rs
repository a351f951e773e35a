//! Tests of the snapshot: facts in, points out, with every time given.
//!
//! In: hand-made facts. Out: assertions on the batches. What can go wrong is what is tested.
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
    let stats = CallStats { pid: Pid(pid), cgroup, device, kind, op, latency, last };
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
        call: None,
        victims: vec![Victim { pid: Pid(1), tid: Tid(1), caller: None }],
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
    snapshot.push(&of(calls(1, 3, 2, false), 1, "p"));
    snapshot.push(&of(calls(2, 5, 1, true), 2, "p"));
    snapshot.push(&of(calls(3, 5, 1, false), 3, "q"));
    let batch = snapshot.collect(wall(10), INTERVAL, None);
    let durations = of_metric(&batch.points, "gpu.driver.call.duration");
    assert_eq!(durations.len(), 2, "one per workload");
    let want = "gpu.driver.device=195:255 gpu.driver.call=ioctl gpu.driver.operation=NV_ESC_RM_CONTROL \
                k8s.pod.uid=p container.id=c";
    assert_eq!(attributes(durations[0]), want);
    assert_eq!((durations[0].start, durations[0].at), (Some(wall(0)), wall(10)));
    let Value::Latency(latency) = &durations[0].value else { panic!("a histogram") };
    assert_eq!((latency.slots[3], latency.slots[5], latency.count(), latency.sum_ns), (2, 1, 3, 4_500));

    snapshot.push(&of(calls(1, 3, 1, false), 1, "p"));
    let batch = snapshot.collect(wall(20), INTERVAL, None);
    let point = of_metric(&batch.points, "gpu.driver.call.duration")[0];
    let Value::Latency(latency) = &point.value else { panic!("a histogram") };
    assert_eq!((latency.count(), point.start), (4, Some(wall(0))), "cumulative, and its start does not move");
}

#[test]
fn the_series_of_a_workload_that_ended_end_and_begin_anew_with_a_later_start() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&of(calls(1, 3, 2, true), 1, "p"));
    for at in [10, 290] {
        snapshot.push(&tick(at));
        let batch = snapshot.collect(wall(at), INTERVAL, None);
        assert_eq!(of_metric(&batch.points, "gpu.driver.call.duration").len(), 1, "{at}");
    }
    snapshot.push(&tick(300));
    let batch = snapshot.collect(wall(300), INTERVAL, None);
    assert!(of_metric(&batch.points, "gpu.driver.call.duration").is_empty());
    snapshot.push(&of(calls(2, 3, 1, false), 2, "p"));
    let batch = snapshot.collect(wall(310), INTERVAL, None);
    let point = of_metric(&batch.points, "gpu.driver.call.duration")[0];
    assert_eq!(point.start, Some(wall(300)));
}

#[test]
fn series_beyond_the_limit_are_refused_and_counted() {
    let mut snapshot = snapshot(Limits { per_metric: 1, total: 10 });
    for pod in ["p", "q", "q"] {
        snapshot.push(&of(calls(1, 3, 1, false), 1, pod));
    }
    let batch = snapshot.collect(wall(10), INTERVAL, None);
    assert_eq!(of_metric(&batch.points, "gpu.driver.call.duration").len(), 1);
    let refused = of_metric(&batch.points, "warpgauge.series.refused");
    let seen: Vec<_> = refused.iter().map(|p| (attributes(p), p.value.clone())).collect();
    let refused_of = |name: &str| (format!("metric={name}"), Value::Count(2));
    assert_eq!(seen, vec![refused_of("gpu.driver.call.duration"), refused_of("gpu.driver.call.errors")]);
}

#[test]
fn a_known_gpu_has_a_zero_for_every_class_and_an_error_is_one_more() {
    let mut snapshot = snapshot(Limits::default());
    let (hw_id, pci) = ("GPU-1".to_owned(), PciAddress::parse("3b:00"));
    let gpu = Gpu { hw_id, index: None, minor: None, pci, model: None, parent: None };
    let signal = Signal::Gpu { at: MonoNs(0), gpu };
    snapshot.push(&Attributed { item: Fact::Reading(signal), processes: vec![] });
    snapshot.push(&xid(79, "bus", None));
    let batch = snapshot.collect(wall(10), INTERVAL, None);
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
    snapshot.collect(wall(10), INTERVAL, None);
    snapshot.push(&xid(79, "bus", None));
    let first = snapshot.collect(wall(20), INTERVAL, None);
    let first_zeros: Vec<_> = first.zeros.iter().map(|(_, point)| point.clone()).collect();
    let zeros = of_metric(&first_zeros, "gpu.xid.errors.by_code");
    assert_eq!(attributes(zeros[0]), "gpu.pci.address=0000:3b:00.0 gpu.xid.class=bus gpu.xid.code=79");
    assert_eq!((zeros[0].at, zeros[0].start, &zeros[0].value), (wall(10), Some(wall(10)), &Value::Count(0)));
    let one = of_metric(&first.points, "gpu.xid.errors.by_code")[0];
    assert_eq!((one.at, one.start, &one.value), (wall(20), Some(wall(10)), &Value::Count(1)));

    let second = snapshot.collect(wall(30), INTERVAL, None);
    assert_eq!(second.zeros, first.zeros, "the first export failed: the same zero again");
    snapshot.settle_zeros(first.generation);
    assert_eq!(snapshot.collect(wall(40), INTERVAL, None).zeros, vec![]);
}

#[test]
fn a_stall_is_active_while_it_lasts_and_its_time_is_booked() {
    let mut snapshot = snapshot(Limits::default());
    let mut seen = Vec::new();
    for (state, seconds) in [(StallState::Begin, 1), (StallState::Update, 61), (StallState::End, 75)] {
        snapshot.push(&stall("s", state, seconds));
        let batch = snapshot.collect(wall(seconds), INTERVAL, None);
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
fn a_wall_clock_set_back_does_not_take_points_back() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&of(calls(1, 3, 2, false), 1, "p"));
    let at = |batch: &Batch| batch.points[0].at;
    let before = at(&snapshot.collect(wall(100), INTERVAL, None));
    assert_eq!(at(&snapshot.collect(wall(50), INTERVAL, None)), WallNs(before.0 + 1));
}

#[test]
fn every_attribute_that_leaves_is_in_the_catalogue() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&of(calls(1, 3, 2, false), 1, "p"));
    snapshot.push(&xid(79, "bus", Some("GPU-1")));
    snapshot.push(&stall("s", StallState::Begin, 1));
    let batch = snapshot.collect(wall(10), INTERVAL, own_points::usage(&crate::host::HostRoot::default()));
    assert!(batch.points.len() > 8);
    for point in batch.points.iter().chain(batch.zeros.iter().map(|(_, point)| point)) {
        for (name, _) in point.attributes.iter() {
            assert!(point.metric.attributes.contains(name), "{}: {name}", point.metric.name);
        }
    }
}
