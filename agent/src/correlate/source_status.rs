//! Findings about what is watched: a source of measurements that is slow or gone, a device that is lost.
//!
//! In: [`Signal::Source`] of the vendor's libraries, and [`Signal::GpuState`]. Out: one [`FindingKind::Status`] when an
//! episode begins and one when it ends, under one id; none while nothing changes. A pure core.
//! What can go wrong: more devices than [`SourceStatus::DEVICES_MAX`]; their losses are counted, not told.

use std::collections::BTreeMap;

use crate::model::finding::{Status, StatusState};
use crate::model::signal::{DeviceState, REPLACEMENT, SourceState};
use crate::model::{Fact, Finding, FindingKind, MonoNs, Origin, Severity, Signal};
use crate::telemetry::{Counter, Telemetry};

/// The reason while a worker hangs in the kernel: no new one may touch the driver.
const ABANDONED: &str = "abandoned";

/// What is slow, gone or lost now.
#[derive(Debug)]
pub struct SourceStatus {
    sources: BTreeMap<&'static str, Source>,
    devices: BTreeMap<String, Episode>,
    refused: Counter,
}

#[derive(Debug, Default)]
struct Source {
    /// It has been up: that it is not any more is an error, not a lack.
    was_up: bool,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    id: String,
    status: Status,
}

impl SourceStatus {
    /// Devices that may be lost at a time.
    pub const DEVICES_MAX: usize = 512;

    /// Nothing is slow, gone or lost; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "lost_devices")]);
        Self { sources: BTreeMap::new(), devices: BTreeMap::new(), refused }
    }

    /// Takes any signal; appends what it concludes.
    pub fn push(&mut self, signal: &Signal, out: &mut Vec<Fact>) {
        match signal {
            Signal::Source { at, source } => {
                let vendors = [Origin::Dcgm.name(), Origin::Nvml.name()];
                if let Some(name) = vendors.into_iter().find(|name| *name == source.name) {
                    self.source(*at, name, source, out);
                }
            }
            Signal::GpuState { at, hw_id, state } => self.device(*at, hw_id, *state, out),
            _ => {} // nothing else says whether somebody answers
        }
    }

    fn source(&mut self, at: MonoNs, name: &'static str, told: &SourceState, out: &mut Vec<Fact>) {
        // Values pause for a moment, as planned: no news of what is watched. What comes after it is.
        if told.reason.as_deref() == Some(REPLACEMENT) {
            return;
        }
        let known = self.sources.entry(name).or_default();
        let state = match (told.up, told.reason.as_deref()) {
            (true, _) => StatusState::Up,
            (false, Some("slow")) => StatusState::Slow,
            (false, Some("released")) => StatusState::Released,
            (false, _) => StatusState::Down,
        };
        let late = told.late.as_ref();
        // That a worker hangs in the kernel is worse than whatever it was down for before.
        let is_abandoned = |reason: Option<&str>| reason == Some(ABANDONED);
        let abandoned = is_abandoned(told.reason.as_deref());
        if known.episode.as_ref().is_some_and(|open| {
            open.status.state == state && is_abandoned(open.status.reason.as_deref()) == abandoned
        }) {
            return;
        }
        if let Some(open) = known.episode.take() {
            out.push(end(open, at, state));
        }
        if state == StatusState::Up {
            known.was_up = true;
            return;
        }
        let severity = match state {
            StatusState::Slow => Severity::Warn,
            StatusState::Down if known.was_up || abandoned => Severity::Error,
            _ => Severity::Info,
        };
        let status = Status {
            state,
            source: Some(name),
            hw_id: late.and_then(|late| late.hw_id.clone()),
            reason: told.reason.clone(),
            call: late.map(|late| late.call.clone()),
            since: late.map_or(at, |late| late.began),
            end: None,
        };
        let (episode, fact) = begin(format!("status-{name}-{}", at.0), status, at, severity);
        known.episode = Some(episode);
        out.push(fact);
    }

    fn device(&mut self, at: MonoNs, hw_id: &str, state: DeviceState, out: &mut Vec<Fact>) {
        let (state, severity) = match state {
            DeviceState::Ok => (StatusState::Up, Severity::Info),
            DeviceState::Gone => (StatusState::Gone, Severity::Info),
            DeviceState::Lost => (StatusState::Lost, Severity::Error),
            DeviceState::Resetting => (StatusState::Resetting, Severity::Warn),
        };
        let over = matches!(state, StatusState::Up | StatusState::Gone);
        if self.devices.get(hw_id).is_some_and(|open| open.status.state == state) {
            return;
        }
        if let Some(open) = self.devices.remove(hw_id) {
            out.push(end(open, at, state));
        }
        if over {
            return;
        }
        if self.devices.len() >= Self::DEVICES_MAX {
            return self.refused.add(1);
        }
        let hw = Some(hw_id.to_owned());
        let status =
            Status { state, source: None, hw_id: hw, reason: None, call: None, since: at, end: None };
        let (episode, fact) = begin(format!("status-{hw_id}-{}", at.0), status, at, severity);
        self.devices.insert(hw_id.to_owned(), episode);
        out.push(fact);
    }
}

fn begin(id: String, status: Status, at: MonoNs, severity: Severity) -> (Episode, Fact) {
    let kind = FindingKind::Status(Box::new(status.clone()));
    let finding = Finding { id: id.clone(), at, severity, kind };
    (Episode { id, status }, Fact::Finding(Box::new(finding)))
}

/// The end says what it is now.
fn end(episode: Episode, at: MonoNs, state: StatusState) -> Fact {
    let Episode { id, mut status } = episode;
    (status.state, status.end) = (state, Some(at));
    let kind = FindingKind::Status(Box::new(status));
    Fact::Finding(Box::new(Finding { id, at, severity: Severity::Info, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::signal::LateCall;

    fn mono(seconds: u64) -> MonoNs {
        MonoNs(seconds * 1_000_000_000)
    }

    fn source(second: u64, name: &str, up: bool, reason: Option<&str>) -> Signal {
        let late = (reason == Some("slow")).then(|| LateCall {
            call: "dcgmUpdateAllFields".into(),
            hw_id: Some("GPU-1".into()),
            began: mono(second - 3),
        });
        let source = SourceState { name: name.into(), up, reason: reason.map(str::to_owned), late };
        Signal::Source { at: mono(second), source }
    }

    fn device(second: u64, state: DeviceState) -> Signal {
        Signal::GpuState { at: mono(second), hw_id: "GPU-1".into(), state }
    }

    /// Id, state, severity, since, end.
    fn told(signals: &[Signal]) -> Vec<(String, &'static str, Severity, u64, Option<u64>)> {
        let (mut core, mut out) = (SourceStatus::new(&Telemetry::default()), Vec::new());
        signals.iter().for_each(|signal| core.push(signal, &mut out));
        let seconds = |at: MonoNs| at.0 / 1_000_000_000;
        let show = |fact| {
            let Fact::Finding(finding) = fact else { panic!("{fact:?}") };
            let FindingKind::Status(status) = finding.kind else { panic!("{finding:?}") };
            let (since, end) = (seconds(status.since), status.end.map(seconds));
            (finding.id, status.state.name(), finding.severity, since, end)
        };
        out.into_iter().map(show).collect()
    }

    #[test]
    fn slow_is_told_apart_from_down_and_each_once() {
        let slow = source(10, "dcgm", false, Some("slow"));
        let down = source(70, "dcgm", false, Some("down"));
        let up = |second| source(second, "dcgm", true, None);
        let found = told(&[up(1), slow.clone(), slow, down.clone(), down, up(80), up(81)]);
        let (a, b) = ("status-dcgm-10000000000".to_owned(), "status-dcgm-70000000000".to_owned());
        let want = [
            (a.clone(), "slow", Severity::Warn, 7, None),
            (a, "down", Severity::Info, 7, Some(70)),
            (b.clone(), "down", Severity::Error, 70, None),
            (b, "up", Severity::Info, 70, Some(80)),
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn what_was_never_there_is_no_error_and_other_sources_are_not_ours() {
        let found = told(&[source(1, "nvml", false, Some("no_library")), source(2, "kmsg", false, None)]);
        assert_eq!(found, [("status-nvml-1000000000".to_owned(), "down", Severity::Info, 1, None)]);
        let replaced = source(5, "dcgm", false, Some(REPLACEMENT));
        let up = |second| source(second, "dcgm", true, None);
        assert_eq!(told(&[up(1), replaced.clone(), up(6)]), [], "an exchange as planned");
        let down = source(7, "dcgm", false, Some("down"));
        assert_eq!(told(&[up(1), replaced, down])[0].2, Severity::Error, "that did not go well");
        let released = told(&[source(1, "dcgm", true, None), source(5, "dcgm", false, Some("released"))]);
        assert_eq!((released[0].1, released[0].2), ("released", Severity::Info));
    }

    #[test]
    fn a_worker_that_hangs_in_the_kernel_alarms_though_its_sources_were_never_up() {
        let down = |second, reason| source(second, "nvml", false, Some(reason));
        let found = told(&[
            down(1, "held"),
            down(6, "abandoned"),
            down(7, "abandoned"),
            down(90, "no_driver"),
            source(95, "nvml", true, None),
        ]);
        let id = |second: u64| format!("status-nvml-{second}000000000");
        let want = [
            (id(1), "down", Severity::Info, 1, None),
            (id(1), "down", Severity::Info, 1, Some(6)),
            (id(6), "down", Severity::Error, 6, None),
            (id(6), "down", Severity::Info, 6, Some(90)),
            (id(90), "down", Severity::Info, 90, None),
            (id(90), "up", Severity::Info, 90, Some(95)),
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn losses_beyond_the_limit_are_counted() {
        let telemetry = Telemetry::default();
        let (mut core, mut out) = (SourceStatus::new(&telemetry), Vec::new());
        for number in 0..=SourceStatus::DEVICES_MAX {
            let (hw_id, state) = (format!("GPU-{number}"), DeviceState::Lost);
            core.push(&Signal::GpuState { at: mono(1), hw_id, state }, &mut out);
        }
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "lost_devices")]);
        assert_eq!((out.len(), refused.get()), (SourceStatus::DEVICES_MAX, 1));
    }

    #[test]
    fn a_lost_device_is_an_error_until_it_is_back() {
        let id = "status-GPU-1-5000000000".to_owned();
        let (lost, back) = (device(5, DeviceState::Lost), device(9, DeviceState::Ok));
        let found =
            told(&[device(1, DeviceState::Ok), lost.clone(), lost, back, device(12, DeviceState::Gone)]);
        let want = [(id.clone(), "lost", Severity::Error, 5, None), (id, "up", Severity::Info, 5, Some(9))];
        assert_eq!(found, want);
    }
}
