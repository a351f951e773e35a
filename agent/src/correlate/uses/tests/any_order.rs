//! Any evidence in any order; more of it than there is room for.

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

fn evidence() -> impl Strategy<Value = Signal> {
    let hw_id = proptest::sample::select(vec!["GPU-0", "GPU-1", "GPU-2", "MIG-1", "MIG-2", "GPU-unknown"]);
    // what is known by nodes comes with the whole of them
    let told = vec![UseEvidence::UvmChannel, UseEvidence::Nvml, UseEvidence::Allocation];
    let kind = proptest::sample::select(told);
    let of_device = proptest::sample::select(devices().to_vec()).prop_map(exists);
    prop_oneof![
        4 => (kind, hw_id).prop_map(|(evidence, hw_id)| uses(evidence, hw_id, false)),
        2 => of_device,
        1 => Just(sighting(Some(START), "python3")),
    ]
}

fn in_nodes() -> impl Strategy<Value = Signal> {
    let node = prop_oneof![
        (0..4_u32).prop_map(minor),
        (0..2_u32, proptest::sample::select(vec![3, 7]), proptest::option::of(0..2_u32))
            .prop_map(|(gpu, instance, compute)| part(gpu, instance, compute)),
    ];
    proptest::collection::vec(node, 0..5).prop_map(|list| nodes(&list))
}

fn after(signals: impl IntoIterator<Item = Signal>) -> UseTable {
    let mut table = UseTable::new(&Telemetry::default());
    signals.into_iter().for_each(|signal| table.push(&signal));
    table.push(&Signal::Tick { at: at(9) });
    table
}

/// As many rows as the processes have, and as many listed as have NVML's evidence.
fn is_consistent(table: &UseTable) -> bool {
    let rows: usize = table.processes.values().map(|process| process.rows.len()).sum();
    let nvml = |process: &Process| process.rows.keys().filter(|row| row.0 == UseEvidence::Nvml).count();
    let listed: usize = table.listed.values().map(BTreeSet::len).sum();
    table.rows == rows && listed == table.processes.values().map(nvml).sum::<usize>()
}

proptest! {
    /// What is in force at the end decides, not the way there.
    #[test]
    fn the_order_of_evidence_changes_nothing(
        evidence in proptest::collection::vec(evidence(), 0..12),
        open in in_nodes(),
        place in 0..12_usize,
        turn in 0..12_usize,
    ) {
        let mut signals = evidence;
        signals.insert(place.min(signals.len()), open);
        let one = after(signals.clone());
        let turn = turn % signals.len();
        signals.rotate_left(turn);
        let other = after(signals.clone());
        signals.reverse();
        let third = after(signals);
        prop_assert_eq!(of(&one, PID), of(&other, PID));
        prop_assert_eq!(of(&one, PID), of(&third, PID));
        prop_assert!(is_consistent(&one) && is_consistent(&other) && is_consistent(&third));
    }

    /// Whatever begins and ends, what is counted is what is there.
    #[test]
    fn what_is_counted_is_there(
        steps in proptest::collection::vec((evidence(), 0..6_u8, proptest::collection::vec(6..9_u32, 0..3)), 0..40),
    ) {
        let mut table = node();
        for (signal, step, pids) in steps {
            table.push(&match (step, signal) {
                (0, Signal::Uses { at, uses }) => Signal::Uses { at, uses: Uses { end: true, ..uses } },
                (1, _) => Signal::Exec { at: at(1), pid: PID },
                (2, _) => list("GPU-0", &pids, GpuContext::Compute),
                (3, _) => Signal::Exit { at: at(1), pid: PID },
                (4, _) => Signal::Tick { at: at(1_000) },
                (_, signal) => signal,
            });
            prop_assert!(is_consistent(&table), "{:?}", table);
        }
    }
}

#[test]
fn the_table_is_bounded_in_processes_in_devices_and_in_all() {
    let telemetry = Telemetry::default();
    let mut table = UseTable::new(&telemetry);
    let refused = || telemetry.counter("warpgauge.correlate.refused", &[("reason", "uses")]).get();
    let use_of = |table: &mut UseTable, pid: u32, device: usize| {
        let (hw_id, evidence, role) = (format!("GPU-{device}"), UseEvidence::Nvml, "workload".to_owned());
        let uses = Uses { pid: Pid(pid), hw_id, evidence, role, end: false };
        table.push(&Signal::Uses { at: at(1), uses });
    };
    for device in 0..Process::ROWS_MAX + 3 {
        use_of(&mut table, 1, device);
    }
    assert_eq!((table.rows, refused()), (Process::ROWS_MAX, 3));
    for pid in 2..UseTable::PROCESSES_MAX as u32 + 3 {
        use_of(&mut table, pid, 0);
    }
    assert_eq!((table.processes.len(), refused()), (UseTable::PROCESSES_MAX, 5));
    let before = table.rows;
    for pid in 2..200 {
        for device in 1..Process::ROWS_MAX {
            use_of(&mut table, pid, device);
        }
    }
    assert_eq!(table.rows, UseTable::ROWS_MAX);
    assert_eq!(refused() - 5, (198 * (Process::ROWS_MAX - 1) - (UseTable::ROWS_MAX - before)) as u64);
    assert!(is_consistent(&table));
}
