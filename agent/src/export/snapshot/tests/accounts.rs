//! What is counted for each workload, from facts to points.
//!
//! In: hand-made facts. Out: assertions on the batches. What can go wrong is what is tested.
use super::*;
use crate::export::devices::accounts::COUNTER;
use crate::model::signal::{GpuContext, GpuProcess, GpuProcesses};
use crate::model::{Origin, Part, Reading, SampleValue, Samples, Subject};

/// A process on a device: its pid, its pod (none: it is gone, and nobody knows whose it was), MiB, use.
type Row<'a> = (u32, Option<&'a str>, u64, Option<f64>);

fn list(second: u64, hw_id: &str, rows: &[Row<'_>]) -> Attributed<Fact> {
    let processes = rows.iter().map(|&(pid, _, mib, sm_utilization)| GpuProcess {
        pid: Pid(pid),
        memory: Some(mib << 20),
        sm_utilization,
        context: GpuContext::Compute,
    });
    let processes = Box::new(GpuProcesses { hw_id: hw_id.into(), processes: processes.collect() });
    let whose =
        |&(pid, pod, ..): &Row<'_>| (Pid(pid), pod.map_or(Known::Gone, |pod| Known::Is(process(pod))));
    let item = Fact::Reading(Signal::Processes { at: mono(second), processes });
    Attributed { item, processes: rows.iter().map(whose).collect() }
}

/// The energy counter of a device. Unit: J.
fn energy(second: u64, hw_id: &str, joules: i64) -> Attributed<Fact> {
    let value = SampleValue::Int(joules * 1_000);
    let readings = vec![Reading { at: mono(second), field: COUNTER, value }];
    let subject = Subject { hw_id: hw_id.into(), part: Part::Whole };
    let samples = Box::new(Samples { subject, origin: Origin::Dcgm, readings });
    Attributed { item: Fact::Reading(Signal::Samples { at: mono(second), samples }), processes: vec![] }
}

fn instance(hw_id: &str, parent: &str) -> Attributed<Fact> {
    let details = Box::default();
    let (hw_id, parent) = (hw_id.to_owned(), Some(parent.to_owned()));
    let gpu = Gpu { hw_id, index: None, minor: None, pci: None, model: None, parent, details };
    Attributed { item: Fact::Reading(Signal::Gpu { at: mono(0), gpu }), processes: vec![] }
}

/// Attributes and value of the points of `gpu.workload.…`, in order.
fn workload(batch: &Batch, name: &str) -> Vec<(String, Value)> {
    let name = format!("gpu.workload.{name}");
    let mut all: Vec<_> =
        of_metric(&batch.points, &name).into_iter().map(|p| (attributes(p), p.value.clone())).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

fn row(attributes: &str, value: Value) -> (String, Value) {
    (attributes.to_owned(), value)
}

#[test]
fn two_pods_on_one_gpu_have_a_series_each_and_the_sum_is_the_devices() {
    let mut snapshot = snapshot(Limits::default());
    let rows = |second| {
        let all: &[Row<'_>] = &[
            (1, Some("p"), 100, Some(0.25)),
            (2, Some("p"), 50, Some(0.25)),
            (3, Some("q"), 10, Some(0.5)),
            (4, None, 1, None),
        ];
        list(second, "GPU-1", all)
    };
    for second in 0..3 {
        snapshot.push(&rows(second));
        snapshot.push(&energy(second, "GPU-1", 7_000 + 400 * second as i64));
    }
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    let of = |whose: &str| format!("hw.id=GPU-1{whose}");
    let (p, q) = (of(" k8s.pod.uid=p container.id=c"), of(" k8s.pod.uid=q container.id=c"));
    let mib = |n: u64| Value::Count(n << 20);
    let want = [(of(""), mib(1)), (p.clone(), mib(150)), (q.clone(), mib(10))];
    assert_eq!(workload(&batch, "memory.usage"), want);
    let half = Value::Double(0.5);
    assert_eq!(workload(&batch, "sm.utilization"), [(p.clone(), half.clone()), (q.clone(), half)]);
    let joules = Value::Double(400.0);
    assert_eq!(workload(&batch, "energy"), [(p.clone(), joules.clone()), (q.clone(), joules)]);
    for point in batch.points.iter().filter(|point| point.metric.name.starts_with("gpu.workload.")) {
        assert!(point.attributes.iter().all(|(name, _)| point.metric.attributes.contains(name)), "{point:?}");
    }
    let point = of_metric(&batch.points, "gpu.workload.energy")[0];
    assert_eq!((point.start, point.at), (Some(wall(0)), wall(2)), "of the counter's reading");

    // One ends: its levels at once, its sum stays as it is until it is dropped.
    for second in 11..13 {
        snapshot.push(&list(second, "GPU-1", &[(3, Some("q"), 10, Some(0.5))]));
        snapshot.push(&energy(second, "GPU-1", 7_800 + 100 * (second as i64 - 10)));
    }
    let batch = snapshot.collect(anchor(20), INTERVAL, None);
    let ends: Vec<_> =
        workload(&batch, "memory.usage").into_iter().filter(|(_, v)| *v == Value::End).collect();
    assert_eq!(ends, [row(&of(""), Value::End), row(&p, Value::End)]);
    let energies = workload(&batch, "energy");
    assert_eq!(energies[0], row(&p, Value::Double(400.0)));
    let Value::Double(joules) = energies[1].1 else { panic!("{energies:?}") };
    assert!((450.0..=500.0).contains(&joules), "half of the latest seconds, none of the gap: {joules}");

    let mut last = Vec::new();
    for second in [302, 310, 320] {
        snapshot.push(&list(second, "GPU-1", &[(3, Some("q"), 10, None)]));
        let mut batch = snapshot.collect(anchor(second), INTERVAL, None);
        snapshot.settle_zeros(batch.generation);
        batch.points.extend(batch.zeros.drain(..).map(|(_, last)| last));
        last.push(workload(&batch, "energy").into_iter().find(|(of, _)| *of == p).map(|(_, value)| value));
        assert!(workload(&batch, "energy").iter().any(|(of, _)| *of == q), "it is idle, and alive");
    }
    assert_eq!(last, [Some(Value::Double(400.0)), Some(Value::End), None]);
    let held = format!("{snapshot:?}");
    assert!(held.contains("\"q\"") && !held.contains("\"p\""), "nothing of the ended pod is held: {held}");
}

#[test]
fn one_pod_on_eight_gpus_has_a_series_of_each() {
    let mut snapshot = snapshot(Limits::default());
    for second in 0..2 {
        for gpu in 0..8 {
            let hw_id = format!("GPU-{gpu}");
            snapshot.push(&list(second, &hw_id, &[(1, Some("p"), 1 + gpu, Some(1.0))]));
            snapshot.push(&energy(second, &hw_id, (second * (gpu + 1)) as i64));
        }
    }
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    let of = |gpu: u64| format!("hw.id=GPU-{gpu} k8s.pod.uid=p container.id=c");
    let energies: Vec<_> = (0..8).map(|gpu| (of(gpu), Value::Double((gpu + 1) as f64))).collect();
    assert_eq!(workload(&batch, "energy"), energies);
    let memories: Vec<_> = (0..8).map(|gpu| (of(gpu), Value::Count((1 + gpu) << 20))).collect();
    assert_eq!(workload(&batch, "memory.usage"), memories);
}

#[test]
fn a_process_in_no_container_is_of_its_cgroup_unit_or_job() {
    let mut snapshot = snapshot(Limits::default());
    let mut fact = list(1, "GPU-1", &[(1, Some("p"), 1, None), (2, Some("p"), 2, None)]);
    let wholly =
        |cgroup: &str, workload| Process { cgroup: Some(cgroup.into()), workload, ..Process::default() };
    let unit = Workload { systemd_unit: Some("train.service".into()), ..Workload::default() };
    let job = Workload { slurm_job: Some("4711".into()), ..Workload::default() };
    fact.processes[0].1 = Known::Is(wholly("/system.slice/train.service", unit));
    fact.processes[1].1 = Known::Is(wholly("/slurm/job_4711/step_0", job));
    snapshot.push(&fact);
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    let of = |whose: &str| format!("hw.id=GPU-1 process.linux.cgroup={whose}");
    let want = [
        (of("/slurm/job_4711/step_0 slurm.job.id=4711"), Value::Count(2 << 20)),
        (of("/system.slice/train.service systemd.unit=train.service"), Value::Count(1 << 20)),
    ];
    assert_eq!(workload(&batch, "memory.usage"), want);
}

#[test]
fn clients_of_mps_have_their_own_and_the_server_its_memory() {
    let mut snapshot = snapshot(Limits::default());
    for second in 0..2 {
        let mut fact = list(
            second,
            "GPU-1",
            &[(1, Some("p"), 10, Some(1.0)), (2, Some("q"), 20, Some(1.0)), (3, Some("mps"), 1, None)],
        );
        let Fact::Reading(Signal::Processes { processes, .. }) = &mut fact.item else { panic!("a list") };
        processes.processes.iter_mut().take(2).for_each(|client| client.context = GpuContext::Mps);
        snapshot.push(&fact);
        snapshot.push(&energy(second, "GPU-1", 100 * second as i64));
    }
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    let of = |pod: &str| format!("hw.id=GPU-1 k8s.pod.uid={pod} container.id=c");
    let joules = [row(&of("p"), Value::Double(50.0)), row(&of("q"), Value::Double(50.0))];
    assert_eq!(workload(&batch, "energy"), joules, "they ran at the same time, 200 % of it");
    let memory: Vec<_> = workload(&batch, "memory.usage").into_iter().map(|(of, _)| of).collect();
    assert_eq!(memory, [of("mps"), of("p"), of("q")]);
}

#[test]
fn an_instance_has_memory_and_says_why_it_has_no_more() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&instance("MIG-1", "GPU-1"));
    snapshot.push(&instance("MIG-2", "GPU-1"));
    snapshot.push(&list(1, "MIG-1", &[(1, Some("p"), 5, None)]));
    snapshot.push(&list(1, "MIG-2", &[]));
    snapshot.push(&energy(1, "GPU-1", 5));
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    assert_eq!(workload(&batch, "memory.usage").len(), 1);
    assert_eq!(workload(&batch, "energy"), []);
    let absent: Vec<_> = of_metric(&batch.points, "gpu.field.absent").into_iter().map(attributes).collect();
    let lack = |field: &str| {
        format!("hw.id=MIG-1 hw.type=gpu gpu.field=gpu.workload.{field} gpu.absence.reason=not_supported")
    };
    assert_eq!(absent, [lack("energy"), lack("sm.utilization")], "of the one that somebody is on");
    snapshot.push(&list(11, "MIG-1", &[]));
    let batch = snapshot.collect(anchor(20), INTERVAL, None);
    let absent = of_metric(&batch.points, "gpu.field.absent");
    assert!(absent.len() == 2 && absent.iter().all(|point| point.value == Value::End), "nothing is lacking");
}

#[test]
fn a_sum_goes_on_from_nothing_under_a_name_that_comes_late() {
    let mut snapshot = snapshot(Limits::default());
    let named = |second, name: Option<&str>| {
        let mut fact = list(second, "GPU-1", &[(1, Some("p"), 1, Some(1.0))]);
        let Known::Is(process) = &mut fact.processes[0].1 else { panic!("a process") };
        process.workload.pod = name.map(str::to_owned);
        fact
    };
    let mut seen = Vec::new();
    for (second, name) in [(0, None), (1, None), (2, Some("train-0")), (3, Some("train-0")), (4, None)] {
        snapshot.push(&named(second, name));
        snapshot.push(&energy(second, "GPU-1", 100 * second as i64));
        let batch = snapshot.collect(anchor(second + 1), INTERVAL, None);
        snapshot.settle_zeros(batch.generation);
        let of = workload(&batch, "energy").into_iter();
        seen.push(of.map(|(of, value)| (of.contains("train-0"), value)).collect::<Vec<_>>());
    }
    let (old, new) = (|n| (false, Value::Double(n)), |n| (true, Value::Double(n)));
    let want = [
        vec![],
        vec![old(100.0)],
        vec![old(200.0)], // under the old name it says all it was
        vec![(false, Value::End), new(100.0)],
        vec![new(200.0)],
    ];
    assert_eq!(seen, want, "200 and 200 are the 400 J of the device");
}

#[test]
fn time_in_the_driver_is_of_system_calls_and_survives_a_pid() {
    let mut snapshot = snapshot(Limits::default());
    let calls = |pid, kind, last| {
        let mut fact = of(calls(pid, 3, 2, last), pid, "p");
        let Fact::Reading(Signal::CallStats { stats, .. }) = &mut fact.item else { panic!("calls") };
        (stats.kind, stats.latency.sum_ns) = (kind, 1_500_000_000);
        fact
    };
    for (pid, kind, last) in [
        (1, CallKind::Open, false),
        (1, CallKind::Driver, false), // inside the open
        (1, CallKind::Lock, false),
        (2, CallKind::Ioctl, true),
        (1, CallKind::Close, true),
        (1, CallKind::Ioctl, false), // another process of the same number
    ] {
        snapshot.push(&calls(pid, kind, last));
    }
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    let want = row("k8s.pod.uid=p container.id=c", Value::Nanos(6_000_000_000));
    assert_eq!(workload(&batch, "driver.time"), [want]);
}

#[test]
fn energy_of_a_device_that_went_ends_with_it() {
    let mut snapshot = snapshot(Limits::default());
    for second in 0..2 {
        snapshot.push(&list(second, "GPU-1", &[(1, Some("p"), 1, Some(1.0))]));
        snapshot.push(&energy(second, "GPU-1", 100 * second as i64));
    }
    let (hw_id, state) = ("GPU-1".to_owned(), DeviceState::Gone);
    let gone = Fact::Reading(Signal::GpuState { at: mono(2), hw_id, state });
    snapshot.push(&Attributed { item: gone, processes: vec![] });
    let mut energies = |second| -> Vec<_> {
        workload(&snapshot.collect(anchor(second), INTERVAL, None), "energy")
            .into_iter()
            .map(|(_, v)| v)
            .collect()
    };
    assert_eq!(energies(10), [Value::Double(100.0)]);
    assert_eq!(energies(20), [Value::End]);
    assert_eq!(energies(30), []);
}
