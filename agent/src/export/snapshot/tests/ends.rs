//! How series of the table end with their device, and what is kept of boards.
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
    assert_eq!((of(&after, "GPU-1"), of(&after, "GPU-2")), (0, 3));
    (0..=GONE_MAX).for_each(|n| snapshot.push(&state(&format!("MIG-{n}"), DeviceState::Gone)));
    assert!(snapshot.gone.is_empty(), "bounded where nobody collects");
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
