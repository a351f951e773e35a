//! Driver stalls: a thread that stays inside the driver longer than its threshold.
//!
//! In: entries and returns of calls, and the answers of the check of the calling thread. Out: findings that open while
//! the call hangs, are repeated once a minute, and close with the real length.
//! Evidence, all of it required: an open call past its threshold, and a check that did not find the thread outside.
//! What can go wrong: a return is lost; then the episode closes as `unobserved`, with a bound instead of a length.

use std::collections::BTreeMap;
use std::time::Duration;

use super::uses::UseTable;
use crate::config::CorrelateConfig;
use crate::model::finding::StalledCall;
use crate::model::operation::{self, Family};
use crate::model::{
    Call, CallKind, Cause, Confidence, Edge, Fact, Finding, FindingKind, Inside, Layer, MonoNs, Severity,
    Signal, Stall, StallState, ThreadState, Tid, Victim,
};
use crate::telemetry::{Counter, Telemetry};

/// The calls that are open, and which of them are stalls.
#[derive(Debug)]
pub struct DriverStalls {
    config: CorrelateConfig,
    open: BTreeMap<(Tid, Layer), OpenCall>,
    uses: UseTable,
    /// The latest time any signal has told; signals of different sources overtake each other a little.
    now: MonoNs,
    refused: Counter,
}

#[derive(Debug)]
struct OpenCall {
    call: Box<Call>,
    enter: MonoNs,
    threshold: Duration,
    /// The last answer of the check, the thread's state and the time then; `None` until it was checked.
    checked: Option<(Inside, Option<char>, MonoNs)>,
    /// When the episode was last told; `None` while it is not one.
    told: Option<MonoNs>,
}

impl OpenCall {
    /// Looked at since its entry, and not found outside.
    fn was_checked(&self) -> bool {
        matches!(self.checked, Some((Inside::Inside | Inside::Unknown, ..)))
    }

    /// The last time there was a sign of the call.
    fn last_seen(&self) -> MonoNs {
        self.checked.map_or(self.enter, |(_, _, at)| at)
    }
}

impl DriverStalls {
    /// Most open calls kept, twice what the kernel's in-flight map holds.
    const OPEN_MAX: usize = 16_384;
    /// Without a sign of the call for this long, its return was lost on the way. The longest scan interval is 10 s.
    const SILENT: Duration = Duration::from_secs(30);
    /// How often a stall that goes on is told again.
    const UPDATE_EVERY: Duration = Duration::from_secs(60);
    /// From this length on a stall is an error.
    const ERROR_FROM: Duration = Duration::from_secs(60);

    /// No open calls.
    pub fn new(config: CorrelateConfig, telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "open_calls")]);
        Self { config, open: BTreeMap::new(), uses: UseTable::new(telemetry), now: MonoNs(0), refused }
    }

    /// What the signal opens, repeats or closes.
    pub fn push(&mut self, signal: &Signal, out: &mut Vec<Fact>) {
        self.uses.push(signal);
        // Only the clock that calls are timed by: another one (the kernel log's) may run ahead of it.
        if let Signal::Call { at, .. } | Signal::Thread { at, .. } | Signal::Tick { at } = signal {
            self.now = self.now.max(*at);
        }
        match signal {
            Signal::Call { at, call } => match call.edge {
                Edge::Enter => self.enter(*at, call, out),
                Edge::Exit { ret, lost, .. } => self.exit(*at, (call.tid, call.kind.layer()), ret, lost, out),
                Edge::Release => {}
            },
            Signal::Thread { at, tid, state, .. } => self.check(*at, *tid, state, out),
            Signal::Tick { .. } => self.tick(out),
            Signal::Source { source, .. } if source.name == "probes" && !source.up => self.forget(out),
            Signal::End { .. } => self.forget(out),
            Signal::Gpu { .. }
            | Signal::Driver { .. }
            | Signal::GpuState { .. }
            | Signal::Samples { .. }
            | Signal::Processes { .. }
            | Signal::Health { .. }
            | Signal::Uses { .. }
            | Signal::Process { .. }
            | Signal::Exit { .. }
            | Signal::CallStats { .. }
            | Signal::VendorCalls { .. }
            | Signal::DriverLog { .. }
            | Signal::Allocation { .. }
            | Signal::Source { .. } => {}
        }
    }

    fn enter(&mut self, at: MonoNs, call: &Call, out: &mut Vec<Fact>) {
        let key = (call.tid, call.kind.layer());
        self.exit(at, key, None, true, out); // a thread cannot enter twice: the return in between was lost
        if self.open.len() >= Self::OPEN_MAX {
            self.refused.add(1);
            return;
        }
        let threshold = self.threshold(call);
        let open = OpenCall { call: Box::new(call.clone()), enter: at, threshold, checked: None, told: None };
        self.open.insert(key, open);
    }

    fn threshold(&self, call: &Call) -> Duration {
        let named = || {
            let family = call.driver.as_deref().and_then(Family::from_name);
            self.config.call_thresholds.get(&operation::name(family, call.op).to_string()).copied()
        };
        let is_named = call.kind == CallKind::Ioctl && !self.config.call_thresholds.is_empty();
        is_named.then(named).flatten().unwrap_or(self.config.call_threshold)
    }

    fn check(&mut self, at: MonoNs, tid: Tid, state: &ThreadState, out: &mut Vec<Fact>) {
        for layer in Layer::ALL {
            let key = (tid, layer);
            let Some(open) = self.open.get_mut(&key) else { continue };
            open.checked = Some((state.inside, state.state, at));
            if state.inside == Inside::Outside {
                self.exit(at, key, None, true, out);
            } else {
                self.tell_if_due(key, out);
            }
        }
    }

    /// Closes a call. One that came and went between two looks is told in full when it was a stall.
    fn exit(&mut self, at: MonoNs, key: (Tid, Layer), ret: Option<i64>, lost: bool, out: &mut Vec<Fact>) {
        let Some(open) = self.open.remove(&key) else { return };
        let length = at.since(open.enter).unwrap_or_default();
        // The return itself proves that the thread was inside: no check is needed.
        let missed = open.told.is_none() && !lost && length >= open.threshold && self.is_victim(key, &open);
        if missed {
            out.push(self.finding(&open, StallState::Begin, length, None));
        }
        if missed || open.told.is_some() {
            let state = if lost { StallState::Unobserved } else { StallState::End };
            out.push(self.finding(&open, state, length, ret));
        }
    }

    fn tick(&mut self, out: &mut Vec<Fact>) {
        let keys: Vec<_> = self.open.keys().copied().collect();
        for key in keys {
            let silent =
                |open: &OpenCall| Self::SILENT <= self.now.since(open.last_seen()).unwrap_or_default();
            match self.open.get(&key) {
                Some(open) if silent(open) => self.exit(open.last_seen(), key, None, true, out),
                _ => self.tell_if_due(key, out),
            }
        }
    }

    /// Opens an episode at its threshold, and repeats it once a minute.
    fn tell_if_due(&mut self, key: (Tid, Layer), out: &mut Vec<Fact>) {
        let Some(open) = self.open.get(&key) else { return };
        let age = self.now.since(open.enter).unwrap_or_default();
        let state = match open.told {
            None if age >= open.threshold && open.was_checked() && self.is_victim(key, open) => {
                StallState::Begin
            }
            Some(told) if self.now.since(told).unwrap_or_default() >= Self::UPDATE_EVERY => {
                StallState::Update
            }
            _ => return,
        };
        out.push(self.finding(open, state, age, None));
        if let Some(open) = self.open.get_mut(&key) {
            open.told = Some(self.now);
        }
    }

    /// Nested calls are one stall, told of the outermost; bystanders are no victims.
    fn is_victim(&self, (tid, layer): (Tid, Layer), open: &OpenCall) -> bool {
        let outermost = self.open.range((tid, Layer::Syscall)..(tid, layer)).next().is_none();
        outermost && !self.uses.is_bystander(open.call.pid)
    }

    /// Nobody watches the calls any more: each is closed at the last sign of it.
    fn forget(&mut self, out: &mut Vec<Fact>) {
        let seen: Vec<_> = self.open.iter().map(|(key, open)| (*key, open.last_seen())).collect();
        for (key, last_seen) in seen {
            self.exit(last_seen, key, None, true, out);
        }
    }

    fn finding(&self, open: &OpenCall, state: StallState, length: Duration, ret: Option<i64>) -> Fact {
        let call = &open.call;
        let stall = Stall {
            state,
            begin: open.enter,
            duration: length,
            cause: Cause::DriverCall,
            confidence: match open.checked {
                Some((Inside::Unknown, ..)) => Confidence::Low,
                _ => Confidence::High,
            },
            hw_id: self.uses.only_device(call.pid).map(str::to_owned),
            call: Some(StalledCall {
                kind: call.kind,
                op: call.op,
                driver: call.driver.clone(),
                device: call.device,
                node: call.node.clone(),
                ret,
            }),
            victims: vec![Victim { pid: call.pid, tid: call.tid, caller: call.caller.clone() }],
            evidence: evidence(open, state, length),
        };
        Fact::Finding(Box::new(Finding {
            id: format!("stall-{}-{}-{}", call.tid.0, call.kind.name(), open.enter.0),
            at: self.now,
            severity: if length >= Self::ERROR_FROM { Severity::Error } else { Severity::Warn },
            kind: FindingKind::Stall(stall),
        }))
    }
}

fn evidence(open: &OpenCall, state: StallState, length: Duration) -> Vec<String> {
    let seconds = length.as_secs_f64();
    let first = match state {
        StallState::Begin | StallState::Update => {
            format!(
                "{} open for {seconds:.3} s, threshold {:.3} s",
                open.call.kind.name(),
                open.threshold.as_secs_f64()
            )
        }
        StallState::End => format!("{} returned after {seconds:.3} s", open.call.kind.name()),
        StallState::Unobserved => format!("{} no longer watched after {seconds:.3} s", open.call.kind.name()),
    };
    let mut evidence = vec![first];
    if let Some((inside, letter, _)) = open.checked {
        let word = match inside {
            Inside::Inside => "seen inside the call",
            Inside::Outside => "found outside the call: its return was not seen",
            Inside::Unknown => "cannot be looked at",
        };
        let letter = letter.map(|l| format!(", state {l}")).unwrap_or_default();
        evidence.push(format!("thread {word}{letter}"));
    }
    evidence
}

#[cfg(test)]
#[path = "driver_stall_tests.rs"]
mod tests;
