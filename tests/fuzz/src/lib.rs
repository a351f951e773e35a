//! What each fuzz target does with its input.
//!
//! In: any bytes. Out: nothing; a panic is a finding. What must hold beyond "no panic" is asserted.
//! `cargo xtask fuzz` runs them under libFuzzer; without it each binary takes files, which replays what was found.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

use prost::Message;
use warpgauge::config::{Config, file};
use warpgauge::correlate::allocations::{Allocations, device_ids};
use warpgauge::model::signal::GpuDetails;
use warpgauge::model::{Fact, Gpu, Grant, LogOrigin, MonoNs, Pid, PodDevices, Signal};
use warpgauge::sources::kmsg::{record, xid};
use warpgauge::sources::kubelet::answer;
use warpgauge::sources::kubelet::ours::Ours;
use warpgauge::sources::replay;
use warpgauge::sources::worker::intake::Intake;
use warpgauge::sources::worker::refused::Refused;
use warpgauge::sources::worker::states::States;
use warpgauge::telemetry::Telemetry;
use warpgauge::wire::{Decoder, Order, Report, encode, report};

#[cfg(test)]
mod frames_tests;
#[cfg(test)]
mod pod_resources_tests;

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

/// Signals that one report may become: a batch of calls has at most this many, a node a few thousand processes.
const SIGNALS_MAX: usize = 20_000;

/// Reports of a worker that lies, one after the other: a length in two bytes, then the message.
pub fn worker_reports(mut data: &[u8]) {
    let telemetry = Telemetry::default();
    let mut intake = Intake::new(Pid(1), Refused::new(&telemetry));
    let mut states = States::new(true, true);
    let mut signals = Vec::new();
    intake.begin(Pid(2), None);
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (message, rest) = rest.split_at(length);
        data = rest;
        let Ok(Report { kind: Some(kind) }) = Report::decode(message) else { continue };
        if let report::Kind::State(state) = &kind {
            states.report(state.clone());
        }
        intake.push(MonoNs(1_000_000_000_000), kind, &mut signals);
        assert!(signals.len() <= SIGNALS_MAX, "{} signals of one report", signals.len());
        for signal in signals.drain(..) {
            let _ = signal.at();
        }
        for change in states.changes() {
            let texts = [&change.what, &change.remedy, &change.library];
            assert!(texts.iter().all(|text| !text.contains(char::is_control)), "{change:?}");
        }
    }
}

/// A scenario file of the simulators, and the file beside it.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = gpu_scenario::load::scenario_from("s.yaml", text) {
        assert!(error.to_string().starts_with("s.yaml:"), "{error}");
    }
    if let Err(error) = gpu_scenario::load::overlay_from("s.yaml.now", text) {
        assert!(error.to_string().starts_with("s.yaml.now:"), "{error}");
    }
}

/// A configuration file: every problem names its line, and what is accepted is within its bounds.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (mut config, mut problems) = (Config::default(), Vec::new());
    file::apply_text("w.yaml", text, &mut config, &mut problems);
    for problem in &problems {
        let line = problem.strip_prefix("w.yaml:").and_then(|rest| rest.split(':').next());
        assert!(line.is_some_and(|line| line.parse::<u64>().is_ok()), "{problem}");
    }
    let groups = &config.worker.groups;
    assert!(groups.len() <= 32 && groups.iter().all(|group| group.fields.len() <= 1_024));
}

/// Ids of device plugins, one a line: each alone, and all of them in an answer of the kubelet's. What is given out is a
/// device that is there, and ends with the answer.
pub fn device_ids(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for id in text.lines() {
        if let Ok(read) = device_ids::parse(id) {
            let again = device_ids::parse(id);
            assert_eq!(again, Ok(read), "{id}");
            let whole = id.rsplit_once("::").filter(|_| read.share.is_some() && !id.contains('='));
            if let Some((device, _)) = whole {
                let device = device_ids::parse(device).map(|whole| (whole.named, whole.share));
                assert_eq!(device, Ok((read.named, None)), "{id}");
            }
        }
    }
    let (mut stage, mut out) = (Allocations::new(&Telemetry::default()), Vec::new());
    for (index, hw_id) in (0..).zip(["GPU-0", "GPU-1"]) {
        let hw_id = hw_id.to_owned();
        let (index, details) = (Some(index), Box::<GpuDetails>::default());
        let gpu = Gpu { hw_id, index, minor: index, pci: None, model: None, parent: None, details };
        stage.push(&Signal::Gpu { at: MonoNs(1), gpu }, &mut out);
    }
    let grants = text.lines().map(|line| {
        let mut words = line.split(' ').map(str::to_owned);
        let pod = words.next().unwrap_or_default();
        let resource = "nvidia.com/gpu".to_owned();
        Grant { pod, resource, device_ids: words.collect(), ..Grant::default() }
    });
    let mut given = std::collections::BTreeSet::new();
    for grants in [grants.collect(), Vec::new()] {
        let devices = Arc::new(PodDevices { grants });
        stage.push(&Signal::PodDevices { at: MonoNs(1), devices }, &mut out);
        for fact in out.drain(..) {
            let Fact::Reading(Signal::Allocation { allocation, .. }) = fact else { continue };
            assert!(["GPU-0", "GPU-1"].contains(&allocation.hw_id.as_str()), "{allocation:?}");
            let key = (allocation.hw_id, allocation.pod);
            let changed = if allocation.end { given.remove(&key) } else { given.insert(key) };
            assert!(changed, "begins once, ends once");
        }
    }
    assert!(given.is_empty(), "{given:?}");
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

/// Ids and bytes that one answer of a kubelet may leave in memory, whatever it says.
const IDS_MAX: u64 = 16_384;
const TEXT_MAX: usize = 4 << 20;

/// An answer of a kubelet that lies: what is kept of it is bounded, plain text, sorted, and has an owner.
pub fn pod_resources(data: &[u8]) {
    let (bytes, ours) = (bytes::Bytes::copy_from_slice(data), Ours::new(vec!["corp/*".to_owned()]));
    let _ = answer::allocatable(bytes.clone(), &ours);
    let Ok(answer) = answer::list(bytes, &ours) else { return };
    let grants = &answer.devices.grants;
    assert!(answer.ids() <= IDS_MAX && answer.others.len() <= 16, "{} ids", answer.ids());
    assert!(grants.is_sorted() && grants.len() as u64 <= answer.ids(), "{} grants", grants.len());
    let mut bytes = 0;
    for grant in grants {
        let names = [&grant.namespace, &grant.pod, &grant.container, &grant.resource];
        let texts = names.into_iter().chain(&grant.claim).chain(&grant.device_ids);
        for text in texts {
            assert!(!text.is_empty() && !text.contains(char::is_control), "{grant:?}");
            bytes += text.len();
        }
        assert!(grant.device_ids.is_sorted_by(|a, b| a < b), "{grant:?}");
        assert!(grant.claim.is_some() || ours.is_resource(&grant.resource, &grant.device_ids), "{grant:?}");
        assert!(grant.claim.is_none() || ours.is_driver(&grant.resource), "{grant:?}");
    }
    assert!(bytes <= TEXT_MAX, "{bytes} bytes of text");
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
