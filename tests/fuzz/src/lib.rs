//! What each fuzz target does with its input.
//!
//! In: any bytes. Out: nothing; a panic is a finding. What must hold beyond "no panic" is asserted.
//! `cargo xtask fuzz` runs them under libFuzzer; without it each binary takes files, which replays what was found.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use warpgauge::model::{LogOrigin, Signal};
use warpgauge::sources::kmsg::{record, xid};
use warpgauge::sources::replay;
use warpgauge::wire::{Decoder, Order, Report, encode};

/// Frames of a worker and of an agent, in pieces as the first byte says; what was understood is written and read again.
pub fn frames(data: &[u8]) {
    let Some((&piece, data)) = data.split_first() else { return };
    let (mut reports, mut orders) = (Decoder::default(), Decoder::default());
    for chunk in data.chunks(usize::from(piece).max(1)) {
        reports.push(chunk);
        orders.push(chunk);
        while let Ok(Some(report)) = reports.take::<Report>() {
            let mut bytes = Vec::new();
            assert!(encode(&report, &mut bytes).is_ok(), "what came in a frame fits into a frame");
            let mut again = Decoder::default();
            again.push(&bytes);
            let read = again.take::<Report>();
            // Not equal where a number is NaN, so the bytes are compared.
            let mut second = Vec::new();
            if let Ok(Some(read)) = read {
                assert!(encode(&read, &mut second).is_ok());
            }
            assert_eq!(bytes, second);
        }
        while let Ok(Some(_)) = orders.take::<Order>() {}
    }
}

/// A record of /dev/kmsg.
pub fn kernel_log(data: &[u8]) {
    if let Some(record) = record::parse(data) {
        let message = record.message();
        let _ = xid::driver_line(&message, LogOrigin { seq: Some(record.seq), level: None, backlog: false });
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = xid::parse(text);
    }
}

/// A replay file: every line is a signal or a complaint that names it.
pub fn replay(data: &[u8]) {
    let (mut signals, lines) = (0, data.split(|byte| *byte == b'\n').count());
    let bad = replay::replay(data, |signal: Signal| {
        signals += 1;
        let _ = signal.at();
    });
    let bad = bad.map_or(0, |bad| bad.len());
    assert!(signals + bad <= lines + 1, "{signals} signals and {bad} complaints from {lines} lines");
}

/// Runs a target over files: what libFuzzer left as `crash-…` is looked at that way.
#[expect(clippy::print_stderr, reason = "it talks to people")]
pub fn over_files(target: fn(&[u8])) -> ExitCode {
    for path in std::env::args_os().skip(1) {
        match std::fs::read(&path) {
            Ok(data) => target(&data),
            Err(e) => {
                eprintln!("{}: {e}", path.to_string_lossy());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
