//! Frames of arbitrary messages and of arbitrary bytes, in CI; libFuzzer goes deeper.
//!
//! In: what proptest makes up. Out: failures, made small. What can go wrong: nothing.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use warpgauge::wire::report::{Answer, Content, Device, Heartbeat, Inventory, Kind, Samples, State, Value};
use warpgauge::wire::{Decoder, FRAME_MAX, Report, encode};

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        any::<i64>().prop_map(Content::Int),
        any::<f64>().prop_filter("a NaN equals nothing", |x| !x.is_nan()).prop_map(Content::Number),
        any::<String>().prop_map(Content::Text),
        any::<u32>().prop_map(Content::Absent),
    ]
}

fn samples() -> impl Strategy<Value = Samples> {
    let value = (any::<u32>(), any::<i64>(), option::of(content()), any::<i64>());
    let value =
        value.prop_map(|(field, age_ns, content, stamp_us)| Value { field, age_ns, content, stamp_us });
    let head = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>());
    (head, vec(value, 0..20)).prop_map(|((origin, key, part, part_number, read_ns), values)| Samples {
        origin,
        key,
        part,
        part_number,
        read_ns,
        values,
    })
}

fn device() -> impl Strategy<Value = Device> {
    (any::<String>(), any::<u32>(), any::<u32>(), option::of(any::<String>()), vec(any::<String>(), 0..4))
        .prop_map(|(hw_id, key, kind, pci, nvlink_peers)| Device {
            hw_id,
            key,
            kind,
            pci,
            nvlink_peers,
            ..Device::default()
        })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        samples().prop_map(Kind::Samples),
        (any::<u32>(), vec(device(), 0..8)).prop_map(|(origin, devices)| Kind::Inventory(Inventory {
            origin,
            devices,
            ..Inventory::default()
        })),
        (any::<String>(), any::<bool>(), any::<String>(), any::<String>()).prop_map(
            |(name, up, what, library)| {
                Kind::State(State { name, up, what, library, ..State::default() })
            }
        ),
        (any::<u64>(), any::<bool>(), any::<String>(), any::<bool>())
            .prop_map(|(id, done, text, more)| Kind::Answer(Answer { id, done, text, more })),
        (any::<u64>(), any::<u64>()).prop_map(|(dropped_values, dropped_others)| Kind::Heartbeat(
            Heartbeat { dropped_values, dropped_others, ..Heartbeat::default() }
        )),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_come_out_as_they_went_in(kinds in vec(option::of(kind()), 0..6), piece in 1..200_usize) {
        let reports: Vec<Report> = kinds.into_iter().map(|kind| Report { kind }).collect();
        let mut bytes = Vec::new();
        for report in &reports {
            prop_assert!(encode(report, &mut bytes).is_ok());
        }
        let (mut decoder, mut got) = (Decoder::default(), Vec::new());
        for chunk in bytes.chunks(piece) {
            decoder.push(chunk);
            while let Some(report) = decoder.take::<Report>().unwrap() {
                got.push(report);
            }
        }
        prop_assert_eq!(got, reports);
    }

    #[test]
    fn any_bytes_are_messages_an_error_or_wanting(bytes in vec(any::<u8>(), 0..400), piece in 1..50_usize) {
        let mut decoder = Decoder::default();
        let mut taken = 0;
        'all: for chunk in bytes.chunks(piece) {
            decoder.push(chunk);
            loop {
                match decoder.take::<Report>() {
                    Ok(Some(_)) => taken += 1,
                    Ok(None) => break,
                    Err(_) => break 'all,
                }
            }
        }
        prop_assert!(taken * 4 <= bytes.len(), "each has its header");
    }

    #[test]
    fn a_length_beyond_the_limit_is_an_error_before_its_bytes_come(length in FRAME_MAX as u32 + 1..) {
        let mut decoder = Decoder::default();
        decoder.push(&length.to_le_bytes());
        prop_assert!(decoder.take::<Report>().is_err());
    }

    #[test]
    fn a_worker_that_lies_is_taken_in_without_harm(kinds in vec(kind(), 0..12)) {
        let mut bytes = Vec::new();
        for kind in kinds {
            let message = prost::Message::encode_to_vec(&Report { kind: Some(kind) });
            bytes.extend(u16::try_from(message.len()).unwrap_or(u16::MAX).to_le_bytes());
            bytes.extend(message);
        }
        super::worker_reports(&bytes);
    }
}
