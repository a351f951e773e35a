//! Tests of the device series: readings in, points out, with every time given.
//!
//! In: hand-made signals. Out: assertions on the points. What can go wrong is what is tested.
mod allocations;
mod lives;

use super::*;
use crate::export::point::Value;
use crate::model::signal::{GpuContext, GpuDetails, GpuProcess, GpuProcesses, HealthLevel, Subsystem};
use crate::model::{Field, Gpu, HostField, Known, Pid, Process, Reading, SampleValue, Workload};

fn mono(seconds: u64) -> MonoNs {
    MonoNs(seconds * 1_000_000_000)
}

fn wall(seconds: u64) -> WallNs {
    WallNs((1_000 + seconds) * 1_000_000_000)
}

fn devices() -> (Devices, Telemetry) {
    let telemetry = Telemetry::default();
    (Devices::new(wall(0), LIMITS, telemetry.clone()), telemetry)
}

fn push(devices: &mut Devices, signal: Signal) {
    devices.push(&Attributed { item: Fact::Reading(signal), processes: vec![] });
}

fn sample(devices: &mut Devices, second: u64, id: u16, value: SampleValue) {
    part(devices, second, Part::Whole, (id, Origin::Dcgm), value);
}

fn part(devices: &mut Devices, second: u64, part: Part, (id, origin): (u16, Origin), value: SampleValue) {
    let at = mono(second);
    let readings = vec![Reading { at, field: Field::Dcgm(id), value }];
    let samples = Box::new(Samples { subject: Subject { hw_id: "GPU-1".into(), part }, origin, readings });
    push(devices, Signal::Samples { at, samples });
}

fn int(n: i64) -> SampleValue {
    SampleValue::Int(n)
}

fn collect(devices: &mut Devices, second: u64) -> Vec<Point> {
    devices.collect(WallAnchor { mono: mono(second), wall: wall(second) }, wall(second))
}

/// `name attributes=…` without `hw.type`, start and time in seconds, value.
fn show(point: &Point) -> (String, Option<u64>, u64, Value) {
    let seconds = |t: WallNs| (t.0 / 1_000_000_000).saturating_sub(1_000);
    let attributes = point.attributes.iter().filter(|(name, _)| !["hw.id", "hw.type"].contains(name));
    let mut text = point.metric.name.to_owned();
    attributes.for_each(|(name, value)| text.push_str(&format!(" {name}={value}")));
    (text, point.start.map(seconds), seconds(point.at), point.value.clone())
}

fn shown(devices: &mut Devices, second: u64) -> Vec<(String, Option<u64>, u64, Value)> {
    collect(devices, second).iter().map(show).collect()
}

fn gpu(hw_id: &str, details: GpuDetails) -> Signal {
    let pci = crate::model::PciAddress::parse("3b:00");
    let model = Some("NVIDIA H100".to_owned());
    let gpu = Gpu {
        hw_id: hw_id.into(),
        index: Some(0),
        minor: Some(3),
        pci,
        model,
        parent: None,
        details: Box::new(details),
    };
    Signal::Gpu { at: mono(0), gpu }
}

fn source(name: &str, up: bool) -> Signal {
    let source = SourceState { name: name.into(), up, reason: None, late: None };
    Signal::Source { at: mono(0), source }
}

fn state(state: DeviceState) -> Signal {
    Signal::GpuState { at: mono(0), hw_id: "GPU-1".into(), state }
}

#[test]
fn a_gauge_leaves_once_per_sample_with_the_time_of_the_sample() {
    let (mut devices, _) = devices();
    sample(&mut devices, 3, 150, int(60));
    sample(&mut devices, 4, 150, int(61));
    let name = "hw.temperature hw.sensor_location=gpu".to_owned();
    assert_eq!(shown(&mut devices, 10), [(name.clone(), None, 4, Value::Whole(61))]);
    assert_eq!(shown(&mut devices, 20), [], "no new sample, no point");
    sample(&mut devices, 21, 150, int(62));
    let points = collect(&mut devices, 30);
    assert_eq!(show(&points[0]), (name, None, 21, Value::Whole(62)));
    let all = [("hw.id", "GPU-1"), ("hw.type", "gpu"), ("hw.sensor_location", "gpu")];
    assert_eq!(*points[0].attributes, all.map(|(name, value)| (name, value.to_owned())));
}

#[test]
fn memory_is_in_bytes_and_what_is_not_reserved_has_no_series() {
    let (mut devices, _) = devices();
    for (id, mib) in [(250, 81_559), (253, 593), (252, 1_024), (251, 79_942)] {
        sample(&mut devices, 1, id, int(mib));
    }
    let mib = |n: i64| Value::Whole(n * 1_048_576);
    let want = [
        ("hw.gpu.memory.utilization", None, Value::Double(1_024.0 / 81_559.0)),
        ("hw.gpu.memory.limit", Some(1), mib(81_559)),
        ("hw.gpu.memory.usage", Some(1), mib(1_024)),
        ("gpu.dcgm.memory.bytes_used gpu.memory.state=free", Some(1), mib(79_942)),
        ("gpu.dcgm.memory.bytes_used gpu.memory.state=reserved", Some(1), mib(593)),
    ];
    let got = shown(&mut devices, 10);
    assert_eq!(got, want.map(|(name, start, value)| (name.to_owned(), start, 1, value)));
    assert_eq!(1_024 + 79_942 + 593, 81_559, "used, free and reserved are all there is");

    sample(&mut devices, 11, 250, int(81_559));
    sample(&mut devices, 11, 253, SampleValue::Absent(Absence::Blank));
    let names: Vec<String> = shown(&mut devices, 20).into_iter().map(|(name, ..)| name).collect();
    let reason = "gpu.field.absent gpu.field=DCGM_FI_DEV_FB_RESERVED gpu.absence.reason=blank";
    let ended = "gpu.dcgm.memory.bytes_used gpu.memory.state=reserved";
    assert_eq!(names, [reason, "hw.gpu.memory.limit", ended]);
}

#[test]
fn an_engine_that_was_away_changes_neither_start_nor_count() {
    let (mut devices, _) = devices();
    sample(&mut devices, 1, 310, int(7));
    sample(&mut devices, 2, 310, int(9));
    let name = "hw.errors error.type=corrected".to_owned();
    assert_eq!(shown(&mut devices, 10), [(name.clone(), Some(1), 2, Value::Whole(2))]);

    push(&mut devices, source("dcgm", false));
    let down = "gpu.field.absent gpu.field=DCGM_FI_DEV_ECC_SBE_VOL_TOTAL gpu.absence.reason=source_down";
    let away = [(down.to_owned(), None, 20, Value::Count(1)), (name.clone(), None, 20, Value::End)];
    assert_eq!(shown(&mut devices, 20), away);
    assert_eq!(shown(&mut devices, 25), [(down.to_owned(), None, 25, Value::Count(1))], "ended once");

    push(&mut devices, source("dcgm", true));
    sample(&mut devices, 26, 310, int(12));
    let back = [(down.to_owned(), None, 30, Value::End), (name.clone(), Some(1), 26, Value::Whole(5))];
    assert_eq!(shown(&mut devices, 30), back);
    push(&mut devices, source("dcgm", false));
    push(&mut devices, source("dcgm", true));
    sample(&mut devices, 33, 310, int(13));
    assert_eq!(shown(&mut devices, 40), [(name, Some(1), 33, Value::Whole(6))], "back in time: nothing ends");
}

#[test]
fn a_counter_that_fell_starts_at_the_sample_before() {
    let (mut devices, _) = devices();
    for (second, count) in [(1, 100), (2, 130), (3, 4), (4, 9)] {
        sample(&mut devices, second, 202, int(count));
    }
    let name = "gpu.dcgm.pcie_replay_total".to_owned();
    assert_eq!(shown(&mut devices, 10), [(name.clone(), Some(2), 4, Value::Whole(9))]);
    sample(&mut devices, 11, 202, int(1));
    assert_eq!(shown(&mut devices, 20), [(name.clone(), Some(4), 11, Value::Whole(1))]);
    sample(&mut devices, 21, 202, int(1));
    assert_eq!(shown(&mut devices, 30), [(name, Some(4), 21, Value::Whole(1))]);
}

#[test]
fn no_point_is_earlier_than_the_one_before_it_nor_later_than_the_collection() {
    let (mut devices, _) = devices();
    sample(&mut devices, 9, 150, int(60));
    assert_eq!(collect(&mut devices, 10)[0].at, wall(9));
    sample(&mut devices, 11, 150, int(60));
    let early = WallAnchor { mono: mono(20), wall: wall(17) }; // the wall clock was set back by 3 s
    assert_eq!(devices.collect(early, wall(20))[0].at, WallNs(wall(9).0 + 1));
    sample(&mut devices, 99, 150, int(60));
    assert_eq!(collect(&mut devices, 30)[0].at, wall(30), "a sample of the future");
}

#[test]
fn another_source_takes_over_a_field_and_its_lack_of_it_is_nothing() {
    let (mut devices, _) = devices();
    sample(&mut devices, 1, 150, int(60));
    part(&mut devices, 2, Part::Whole, (150, Origin::Nvml), SampleValue::Absent(Absence::NotSupported));
    let value = |at, n| ("hw.temperature hw.sensor_location=gpu".to_owned(), None, at, Value::Whole(n));
    assert_eq!(shown(&mut devices, 10), [value(1, 60)]);
    push(&mut devices, source("dcgm", false));
    part(&mut devices, 11, Part::Whole, (150, Origin::Nvml), int(61));
    assert_eq!(shown(&mut devices, 20), [value(11, 61)]);
    push(&mut devices, source("dcgm", false));
    part(&mut devices, 21, Part::Whole, (150, Origin::Nvml), int(62));
    assert_eq!(shown(&mut devices, 30), [value(21, 62)], "DCGM has nothing to lose any more");
}

#[test]
fn the_reason_of_an_absence_is_its_own_series() {
    let (mut devices, _) = devices();
    let absent = |reason| SampleValue::Absent(reason);
    let point = |reason: &str, at, value| {
        let name =
            format!("gpu.field.absent gpu.field=DCGM_FI_PROF_SM_UTIL_RATIO gpu.absence.reason={reason}");
        (name, None, at, value)
    };
    sample(&mut devices, 1, 1002, absent(Absence::Blank));
    assert_eq!(shown(&mut devices, 10), [point("blank", 10, Value::Count(1))]);
    sample(&mut devices, 11, 1002, absent(Absence::Paused));
    let both = [point("blank", 20, Value::End), point("paused", 20, Value::Count(1))];
    assert_eq!(shown(&mut devices, 20), both);
    sample(&mut devices, 21, 60, absent(Absence::Unexportable));
    let names: Vec<_> = shown(&mut devices, 30).into_iter().map(|(name, ..)| name).collect();
    let binary = "gpu.field.absent gpu.field=DCGM_FI_SYSTEM_PCI_TOPOLOGY gpu.absence.reason=unexportable";
    assert_eq!(names, [point("paused", 0, Value::End).0.as_str(), binary], "a refused field says so");
}

#[test]
fn parts_have_their_number_and_unknown_fields_theirs() {
    let (mut devices, _) = devices();
    part(&mut devices, 1, Part::Link(3), (1525, Origin::Dcgm), int(1));
    part(&mut devices, 1, Part::Core(8), (1120, Origin::Dcgm), int(3_100_000));
    sample(&mut devices, 1, 60_000, int(5));
    let names: Vec<_> =
        shown(&mut devices, 10).into_iter().map(|(name, _, _, value)| (name, value)).collect();
    let want = [
        ("gpu.dcgm.field gpu.field=60000", Value::Whole(5)),
        ("hw.cpu.speed cpu.logical_number=8", Value::Whole(3_100_000_000)),
        ("gpu.dcgm.nvlink_crc_flit_error_per_link_total gpu.nvlink.link=3", Value::Whole(0)),
    ];
    assert_eq!(names, want.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn words_are_one_series_that_ends_when_one_of_them_changes() {
    let (mut devices, _) = devices();
    let details = GpuDetails {
        mig_profile: Some("1g.12gb+me".into()),
        mig_profile_source: Some("nvml"),
        ..GpuDetails::default()
    };
    push(&mut devices, gpu("GPU-1", details));
    sample(&mut devices, 1, 57, SampleValue::Text("00000000:3B:00.0".into()));
    sample(&mut devices, 1, 85, SampleValue::Text("96.00".into()));
    sample(&mut devices, 1, 63, int(9 << 16));
    let info = |vbios: &str| {
        format!(
            "gpu.info hw.name=NVIDIA H100 gpu.index=0 gpu.minor=3 gpu.pci.address=0000:3b:00.0 \
             gpu.mig.profile=1g.12gb+me gpu.mig.profile.source=nvml gpu.compute.capability=9.0 gpu.vbios.version={vbios}"
        )
    };
    let infos = |devices: &mut Devices, second| -> Vec<_> {
        let points = shown(devices, second).into_iter().filter(|(name, ..)| name.starts_with("gpu.info"));
        points.map(|(name, _, _, value)| (name, value)).collect()
    };
    assert_eq!(infos(&mut devices, 10), [(info("96.00"), Value::Count(1))]);
    assert_eq!(infos(&mut devices, 20), [(info("96.00"), Value::Count(1))], "as long as it stands");
    sample(&mut devices, 21, 85, SampleValue::Text("97.00".into()));
    assert_eq!(infos(&mut devices, 30), [(info("96.00"), Value::End), (info("97.00"), Value::Count(1))]);
}

#[test]
fn a_text_where_a_number_belongs_is_no_number() {
    let (mut devices, _) = devices();
    sample(&mut devices, 1, 150, SampleValue::Text("MIG-GPU-0/3".into()));
    let absent = "gpu.field.absent gpu.field=DCGM_FI_DEV_GPU_TEMP_CELSIUS gpu.absence.reason=unexportable";
    assert_eq!(shown(&mut devices, 10), [(absent.to_owned(), None, 10, Value::Count(1))]);
}

#[test]
fn a_wall_clock_set_back_far_begins_all_counters_anew() {
    let (mut devices, _) = devices();
    sample(&mut devices, 1, 202, int(5));
    sample(&mut devices, 2, 202, int(8));
    assert_eq!(shown(&mut devices, 10)[0].3, Value::Whole(3));
    devices.restart(WallNs(7_000_000_000));
    sample(&mut devices, 11, 202, int(9));
    let now = WallAnchor { mono: mono(12), wall: WallNs(9_000_000_000) };
    let points = devices.collect(now, now.wall);
    let (start, at) = (Some(WallNs(7_000_000_000)), WallNs(8_000_000_000));
    assert_eq!((points[0].start, points[0].at, &points[0].value), (start, at, &Value::Whole(1)));
}

#[test]
fn events_are_counted_from_when_somebody_looked_and_silence_is_no_lack() {
    let (mut devices, _) = devices();
    let blank = || SampleValue::Absent(Absence::Blank);
    sample(&mut devices, 1, 230, blank());
    assert_eq!(shown(&mut devices, 10), [], "no event yet");
    sample(&mut devices, 12, 230, int(31));
    let name = "gpu.dcgm.xid_errors gpu.error.xid=31".to_owned();
    assert_eq!(shown(&mut devices, 20), [(name.clone(), Some(1), 12, Value::Count(1))]);
    sample(&mut devices, 22, 230, blank());
    assert_eq!(shown(&mut devices, 30), [(name, Some(1), 30, Value::Count(1))], "still one");
    sample(&mut devices, 29, 230, int(31));
    let late = collect(&mut devices, 40);
    assert_eq!((late[0].at, &late[0].value), (WallNs(wall(30).0 + 1), &Value::Count(2)), "told late");
    push(&mut devices, source("dcgm", false));
    assert_eq!(shown(&mut devices, 45).len(), 2, "nobody would hear of one");
    push(&mut devices, source("dcgm", true));
    let again = shown(&mut devices, 46);
    assert_eq!(
        (again.len(), again[1].1, &again[1].3),
        (2, Some(1), &Value::Count(2)),
        "heard again: no news"
    );
    sample(&mut devices, 47, 230, SampleValue::Absent(Absence::NotSupported));
    assert_eq!(shown(&mut devices, 50).len(), 2, "a lack, and the end of the count");
}
