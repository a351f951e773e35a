//! How series of devices and processes begin and end, and how many there may be.
//!
//! In: hand-made signals. Out: assertions on the points. What can go wrong is what is tested.
use super::*;

#[test]
fn a_device_is_in_one_state_and_its_series_end_when_it_goes() {
    let (mut devices, _) = devices();
    push(&mut devices, gpu("GPU-1", GpuDetails::default()));
    let of = |points: Vec<(String, Option<u64>, u64, Value)>, metric: &str| -> Vec<(String, Value)> {
        let of = points.into_iter().filter_map(|(name, _, _, value)| {
            Some((name.strip_prefix(metric)?.trim().replace("hw.state=", ""), value))
        });
        of.filter(|(_, value)| *value != Value::Count(0)).collect()
    };
    let one = |state: &str| vec![(state.to_owned(), Value::Count(1))];
    assert_eq!(of(shown(&mut devices, 1), "hw.status"), one("ok"));
    let health =
        |level| Signal::Health { at: mono(1), hw_id: "GPU-1".into(), subsystem: Subsystem::Pcie, level };
    push(&mut devices, health(HealthLevel::Warn));
    let points = shown(&mut devices, 2);
    assert_eq!(of(points.clone(), "hw.status"), one("degraded"));
    assert_eq!(of(points, "gpu.health.status"), [("gpu.health.subsystem=pcie".to_owned(), Value::Count(1))]);
    push(&mut devices, state(DeviceState::Lost));
    assert_eq!(of(shown(&mut devices, 3), "hw.status"), one("failed"));
    push(&mut devices, state(DeviceState::Ok));
    push(&mut devices, source("nvml", true));
    push(&mut devices, source("dcgm", false));
    let points = shown(&mut devices, 4);
    assert_eq!(of(points.clone(), "hw.status"), one("degraded"), "nobody said that it recovered");
    assert_eq!(of(points, "gpu.health.status"), [("gpu.health.subsystem=pcie".to_owned(), Value::End)]);

    push(&mut devices, source("nvml", false));
    let ends = ["degraded", "failed", "ok"].map(|state| (state.to_owned(), Value::End));
    assert_eq!(of(shown(&mut devices, 4), "hw.status"), ends, "nobody answers, so nobody knows");
    assert_eq!(of(shown(&mut devices, 4), "hw.status"), []);

    push(&mut devices, source("dcgm", true));
    assert_eq!(of(shown(&mut devices, 4), "hw.status"), one("degraded"), "the last result counts again");
    push(&mut devices, health(HealthLevel::Pass));
    assert_eq!(of(shown(&mut devices, 4), "hw.status"), one("ok"));
    push(&mut devices, source("nvml", true));
    push(&mut devices, source("dcgm", false));
    assert_eq!(of(shown(&mut devices, 4), "hw.status"), one("ok"), "NVML sees it, and nothing was wrong");

    sample(&mut devices, 5, 150, int(60));
    assert_eq!(of(shown(&mut devices, 5), "hw.temperature").len(), 1);
    push(&mut devices, state(DeviceState::Gone));
    let points = shown(&mut devices, 6);
    assert!(points.iter().all(|(.., value)| *value == Value::End), "{points:?}");
    assert_eq!(points.len(), 1 + 3 + 1, "info, three states, the temperature");
    assert_eq!(shown(&mut devices, 7), []);
    assert!(devices.subjects.is_empty());
}

#[test]
fn a_lost_device_has_no_values() {
    let (mut devices, _) = devices();
    sample(&mut devices, 1, 150, int(60));
    push(&mut devices, state(DeviceState::Lost));
    let absent = "gpu.field.absent gpu.field=DCGM_FI_DEV_GPU_TEMP_CELSIUS gpu.absence.reason=device_lost";
    assert_eq!(shown(&mut devices, 10), [(absent.to_owned(), None, 10, Value::Count(1))]);
}

#[test]
fn processes_of_a_workload_are_added_up_and_end_with_the_last() {
    let (mut devices, _) = devices();
    let list = |memories: &[(u32, u64)]| {
        let process = |&(pid, memory): &(u32, u64)| GpuProcess {
            pid: Pid(pid),
            memory: Some(memory),
            sm_utilization: None,
            context: GpuContext::Compute,
        };
        let processes = memories.iter().map(process).collect();
        let list = GpuProcesses { hw_id: "GPU-1".into(), processes };
        let item = Fact::Reading(Signal::Processes { at: mono(1), processes: Box::new(list) });
        let workload =
            Workload { pod_uid: Some("p".into()), container_id: Some("c".into()), ..Workload::default() };
        let known = Known::Is(Process { workload, ..Process::default() });
        Attributed { item, processes: vec![(Pid(1), known.clone()), (Pid(2), known), (Pid(3), Known::Gone)] }
    };
    devices.push(&list(&[(1, 10), (2, 20), (3, 5)]));
    let of_pod = "gpu.process.memory.usage k8s.pod.uid=p container.id=c".to_owned();
    let of_none = "gpu.process.memory.usage".to_owned();
    let values = |points: Vec<(String, Option<u64>, u64, Value)>| -> Vec<_> {
        let of = points.into_iter().filter(|(name, ..)| name.starts_with("gpu.process."));
        of.map(|(name, _, _, value)| (name, value)).collect()
    };
    let want = [(of_none.clone(), Value::Count(5)), (of_pod.clone(), Value::Count(30))];
    assert_eq!(values(shown(&mut devices, 10)), want);
    devices.push(&list(&[(2, 20)]));
    assert_eq!(values(shown(&mut devices, 20)), [(of_none, Value::End), (of_pod.clone(), Value::Count(20))]);
    push(&mut devices, source("nvml", false));
    assert_eq!(values(shown(&mut devices, 30)), [(of_pod, Value::End)]);
}

#[test]
fn memory_of_a_pod_whose_name_is_learned_goes_on_under_it() {
    let (mut devices, _) = devices();
    let list = |pod: Option<&str>| {
        let one =
            GpuProcess { pid: Pid(1), memory: Some(10), sm_utilization: None, context: GpuContext::Compute };
        let list = GpuProcesses { hw_id: "GPU-1".into(), processes: vec![one] };
        let item = Fact::Reading(Signal::Processes { at: mono(1), processes: Box::new(list) });
        let pod = pod.map(str::to_owned);
        let workload = Workload { pod_uid: Some("p".into()), pod, ..Workload::default() };
        Attributed { item, processes: vec![(Pid(1), Known::Is(Process { workload, ..Process::default() }))] }
    };
    devices.push(&list(None));
    let (nameless, named) = ("k8s.pod.uid=p", "k8s.pod.uid=p k8s.pod.name=train-0");
    let [nameless, named] = [nameless, named].map(|whose| format!("gpu.process.memory.usage {whose}"));
    let start = Some(0);
    let of_processes = |devices: &mut Devices, second| -> Vec<_> {
        shown(devices, second).into_iter().filter(|(name, ..)| name.starts_with("gpu.process.")).collect()
    };
    assert_eq!(of_processes(&mut devices, 10), [(nameless.clone(), start, 10, Value::Count(10))]);
    devices.push(&list(Some("train-0")));
    let want = [(nameless, None, 20, Value::End), (named, start, 20, Value::Count(10))];
    assert_eq!(of_processes(&mut devices, 20), want);
}

#[test]
fn beyond_the_limits_series_are_refused_and_counted() {
    let telemetry = Telemetry::default();
    let mut devices = Devices::new(wall(0), Limits { per_metric: 1, total: 10 }, telemetry.clone());
    sample(&mut devices, 1, 150, int(60));
    sample(&mut devices, 1, 140, int(70));
    sample(&mut devices, 2, 140, int(70));
    assert_eq!(collect(&mut devices, 10).len(), 1);
    let refused =
        telemetry.counter("warpgauge.series.refused", &[("metric", "hw.temperature"), ("reason", "limit")]);
    assert_eq!(refused.get(), 1, "once per series");
}

#[test]
fn mig_instances_and_boards_fit_the_limits() {
    let (mut devices, telemetry) = devices();
    let fields: Vec<u16> = crate::model::field_table::rows()
        .iter()
        .filter_map(|row| if let Field::Dcgm(id) = row.field { Some(id) } else { None })
        .filter(|id| (100..240).contains(id) || (1001..1030).contains(id))
        .take(60)
        .collect();
    assert_eq!(fields.len(), 60);
    for instance in 0..64 {
        let readings =
            fields.iter().map(|id| Reading { at: mono(1), field: Field::Dcgm(*id), value: int(1) });
        let subject = Subject { hw_id: Arc::from(format!("MIG-{instance}")), part: Part::Whole };
        let samples = Samples { subject, origin: Origin::Dcgm, readings: readings.collect() };
        push(&mut devices, Signal::Samples { at: mono(1), samples: Box::new(samples) });
    }
    assert!(collect(&mut devices, 10).len() > 64 * 50);
    assert!(telemetry.read().iter().all(|(name, ..)| *name != "warpgauge.series.refused"));
}

/// A host's value of `hw_id`.
fn of_host(devices: &mut Devices, second: u64, hw_id: &str, part: Part, value: SampleValue) {
    let reading = Reading { at: mono(second), field: Field::Host(HostField::PcieLinkWidth), value };
    let subject = Subject { hw_id: hw_id.into(), part };
    let samples = Box::new(Samples { subject, origin: Origin::Host, readings: vec![reading] });
    push(devices, Signal::Samples { at: mono(second), samples });
}

/// `hw.id`, `hw.type`, value of the points of the PCIe width.
fn widths(points: &[Point]) -> Vec<(String, String, Value)> {
    let of = points.iter().filter(|point| point.metric.name == "gpu.pcie.link.width");
    of.map(|p| (p.attributes[0].1.clone(), p.attributes[1].1.clone(), p.value.clone())).collect()
}

#[test]
fn values_of_the_host_change_their_name_with_their_gpu() {
    let (mut devices, _) = devices();
    let (address, name) = ("0000:3b:00.0", "GPU-1");
    let point = |name: &str, value| (name.to_owned(), "gpu".to_owned(), value);
    of_host(&mut devices, 1, address, Part::Whole, int(16));
    assert_eq!(widths(&collect(&mut devices, 10)), [point(address, Value::Whole(16))]);
    push(&mut devices, gpu(name, GpuDetails::default()));
    of_host(&mut devices, 11, name, Part::Whole, int(16));
    let both = [point(address, Value::End), point(name, Value::Whole(16))];
    assert_eq!(widths(&collect(&mut devices, 20)), both, "never two series of one link");
    push(&mut devices, gpu(name, GpuDetails::default()));
    push(&mut devices, state(DeviceState::Gone));
    of_host(&mut devices, 21, address, Part::Whole, int(8));
    let back = [point(address, Value::Whole(8)), point(name, Value::End)];
    assert_eq!(widths(&collect(&mut devices, 30)), back, "the driver went, the board is there");
    assert_eq!(devices.subjects.len(), 1);
}

#[test]
fn a_port_is_of_a_network_adapter() {
    let (mut devices, _) = devices();
    of_host(&mut devices, 1, "mlx5_0", Part::Port(1), int(4));
    let points = collect(&mut devices, 10);
    let kinds: Vec<_> = points.iter().map(|point| point.attributes[1].clone()).collect();
    assert_eq!(kinds, [("hw.type", "network".to_owned())]);
}

#[test]
fn a_device_that_comes_back_has_no_point_before_its_end() {
    let (mut devices, _) = devices();
    sample(&mut devices, 8, 150, int(60));
    collect(&mut devices, 10);
    push(&mut devices, state(DeviceState::Gone));
    assert_eq!(collect(&mut devices, 20)[0].value, Value::End);
    sample(&mut devices, 15, 150, int(61)); // the engine's latest sample is older than the end
    let points = collect(&mut devices, 30);
    assert_eq!((points[0].at, &points[0].value), (WallNs(wall(20).0 + 1), &Value::Whole(61)));
}

#[test]
fn a_refused_field_gets_the_room_that_another_leaves() {
    let telemetry = Telemetry::default();
    let mut devices = Devices::new(wall(0), Limits { per_metric: 2, total: 2 }, telemetry.clone());
    sample(&mut devices, 1, 230, int(31));
    sample(&mut devices, 2, 230, int(79));
    sample(&mut devices, 3, 230, int(48));
    part(&mut devices, 3, Part::Link(1), (150, Origin::Dcgm), int(60));
    let names: Vec<_> = shown(&mut devices, 10).into_iter().map(|(name, ..)| name).collect();
    let xid = |code: &str| format!("gpu.dcgm.xid_errors gpu.error.xid={code}");
    assert_eq!(names, ["31", "79", "other"].map(xid), "each number is a series");
    push(&mut devices, state(DeviceState::Gone));
    part(&mut devices, 11, Part::Link(1), (150, Origin::Dcgm), int(60));
    collect(&mut devices, 20);
    sample(&mut devices, 21, 140, int(70));
    sample(&mut devices, 21, 150, int(60));
    let got: Vec<_> = shown(&mut devices, 30).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(got, ["hw.temperature hw.sensor_location=memory"], "one link, one memory, and no more");
    let link = Subject { hw_id: "GPU-1".into(), part: Part::Link(1) };
    devices.subjects.remove(&link).unwrap().free(&mut devices.budget);
    sample(&mut devices, 32, 150, int(65));
    let got: Vec<_> = shown(&mut devices, 40).into_iter().map(|(.., value)| value).collect();
    assert_eq!(got, [Value::Whole(65)], "refused before, and looked at again");
}

#[test]
fn readings_of_too_many_devices_are_counted() {
    let (mut devices, telemetry) = devices();
    for number in 0..=SUBJECTS_MAX {
        let number = u32::try_from(number).unwrap();
        part(&mut devices, 1, Part::Link(number), (150, Origin::Dcgm), int(1));
    }
    let dropped = telemetry.counter("warpgauge.samples.dropped", &[("reason", "too_many_devices")]);
    assert_eq!((devices.subjects.len(), dropped.get()), (SUBJECTS_MAX, 1));
}

#[test]
fn a_device_that_went_without_a_word_is_forgotten_after_a_day() {
    let (mut devices, _) = devices();
    sample(&mut devices, 1, 150, int(60));
    assert_eq!(collect(&mut devices, 10).len(), 1);
    assert_eq!(collect(&mut devices, 86_401), []);
    let points = collect(&mut devices, 86_402);
    assert_eq!((points.len(), &points[0].value), (1, &Value::End));
    assert!(devices.subjects.is_empty());
}
