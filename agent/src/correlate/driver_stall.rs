//! Driver stalls: a thread that stays inside the driver longer than its threshold.
//!
//! In: entries and returns of calls, the answers of the check of the calling thread, who has which lock. Out: findings
//! that open while the call hangs, are repeated once a minute, and close with the real length.
//! Evidence, all of it required: an open call past its threshold, and a check that did not find the thread outside.
//! What can go wrong: a return is lost; then the episode closes as `unobserved`, with a bound instead of a length.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lock_table::LockTable;
use super::open_calls::{Blame, Key, OpenCall, OpenCalls};
use super::stall_finding::{self, Ended};
use super::uses::UseTable;
use crate::config::CorrelateConfig;
use crate::model::operation::{self, Family};
use crate::model::{
    Call, CallKind, Confidence, Edge, Fact, Finding, FindingKind, Inside, Layer, MonoNs, Severity, Signal,
    Stall, StallState, ThreadState, Tid, Victim,
};
use crate::telemetry::{Counter, Telemetry};

/// The calls that are open, and which of them are stalls.
#[derive(Debug)]
pub struct DriverStalls {
    config: CorrelateConfig,
    open: OpenCalls,
    uses: UseTable,
    locks: LockTable,
    /// Nodes whose first open took long, and when it last did.
    slow_opens: BTreeMap<String, MonoNs>,
    /// The latest time any signal has told; signals of different sources overtake each other a little.
    now: MonoNs,
    refused: Counter,
}

impl DriverStalls {
    /// Without a sign of the call for this long, its return was lost on the way. The longest scan interval is 10 s.
    const SILENT: Duration = Duration::from_secs(30);
    /// How often a stall that goes on is told again.
    const UPDATE_EVERY: Duration = Duration::from_secs(60);
    /// From this length on a stall is an error.
    const ERROR_FROM: Duration = Duration::from_secs(60);
    /// Bringing up a GPU takes seconds by nature: from this length on it is a stall even the first time.
    const FIRST_OPEN: Duration = Duration::from_secs(10);
    /// A device that is brought up again within this time: it should have been kept up.
    const AGAIN: Duration = Duration::from_secs(3_600);
    /// Most nodes remembered for that.
    const NODES_MAX: usize = 256;

    /// No open calls.
    pub fn new(config: CorrelateConfig, telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "open_calls")]);
        Self {
            config,
            open: OpenCalls::default(),
            uses: UseTable::new(telemetry),
            locks: LockTable::new(telemetry),
            slow_opens: BTreeMap::new(),
            now: MonoNs(0),
            refused,
        }
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
                Edge::Exit { ret, status, lost } => {
                    self.exit(*at, (call.tid, call.kind.layer()), Ended { ret, status }, lost, out);
                }
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
            | Signal::Exec { .. }
            | Signal::OpenNodes { .. }
            | Signal::Exit { .. }
            | Signal::CallStats { .. }
            | Signal::RmCalls { .. }
            | Signal::LockWaits { .. }
            | Signal::UvmWork { .. }
            | Signal::Scheduling { .. }
            | Signal::LockHolders { .. }
            | Signal::Role { .. }
            | Signal::XidReport { .. }
            | Signal::VendorCalls { .. }
            | Signal::DriverLog { .. }
            | Signal::Allocation { .. }
            | Signal::PodDevices { .. }
            | Signal::JobDevices { .. }
            | Signal::Source { .. } => {}
        }
        self.locks.push(signal);
    }

    fn enter(&mut self, at: MonoNs, call: &Call, out: &mut Vec<Fact>) {
        let key = (call.tid, call.kind.layer());
        self.exit(at, key, Ended::default(), true, out); // a thread cannot enter twice: the return was lost
        let threshold = self.threshold(call);
        if !self.open.enter(OpenCall::new(call, at, threshold)) {
            self.refused.add(1);
        }
        self.look_for_holder(call.tid);
    }

    fn threshold(&self, call: &Call) -> Duration {
        let named = || {
            let family = call.driver.as_deref().and_then(Family::from_name);
            self.config.call_thresholds.get(&operation::name(family, call.op).to_string()).copied()
        };
        let is_named = call.kind == CallKind::Ioctl && !self.config.call_thresholds.is_empty();
        is_named.then(named).flatten().unwrap_or(self.config.call_threshold)
    }

    /// The holder may have let go by the time the victim's call is told: whom it was last known to wait for is kept.
    fn look_for_holder(&mut self, tid: Tid) {
        let Some(open) = self.open.get((tid, Layer::Lock)) else { return };
        let (Some(wait), since) = (open.call.lock.clone(), open.enter) else { return };
        let holder = self.locks.holder(&wait.lock, tid, since).cloned();
        let dead = holder.as_ref().is_some_and(|holder| self.locks.is_dead(holder));
        let Some(outer) = self.open.outermost_mut(tid) else { return };
        match &mut outer.blame {
            Some(blame) if blame.wait == wait && holder.is_none() => {}
            blame => *blame = Some(Blame { wait, holder, dead }),
        }
    }

    fn check(&mut self, at: MonoNs, tid: Tid, state: &ThreadState, out: &mut Vec<Fact>) {
        self.look_for_holder(tid);
        for layer in Layer::ALL {
            let key = (tid, layer);
            let Some(open) = self.open.get_mut(key) else { continue };
            open.checked = Some((state.inside, state.state, at));
            if state.inside == Inside::Outside {
                self.exit(at, key, Ended::default(), true, out);
            } else {
                self.tell_if_due(key, out);
            }
        }
    }

    /// Closes a call. One that came and went between two looks is told in full when it was a stall.
    fn exit(&mut self, at: MonoNs, key: Key, ended: Ended, lost: bool, out: &mut Vec<Fact>) {
        let is_outermost = self.open.outermost(key.0) == Some(key.1);
        let Some(open) = self.open.leave(at, key, lost) else { return };
        let length = at.since(open.enter).unwrap_or_default();
        // The return itself proves that the thread was inside: no check is needed.
        let is_long =
            length >= self.threshold_now(&open) && is_outermost && self.uses.as_victim(&open.call).is_some();
        let missed = open.told.is_none() && !lost && is_long;
        if missed {
            out.push(self.finding(&open, StallState::Begin, length, Ended::default()));
        }
        if missed || open.told.is_some() {
            let state = if lost { StallState::Unobserved } else { StallState::End };
            out.push(self.finding(&open, state, length, ended));
        }
        if open.is_first_open() && length >= open.threshold {
            self.remember_slow_open(&open, at);
        }
    }

    fn tick(&mut self, out: &mut Vec<Fact>) {
        let keys: Vec<_> = self.open.iter().map(|(key, _)| *key).collect();
        for key in keys {
            let silent =
                |open: &OpenCall| Self::SILENT <= self.now.since(open.last_seen()).unwrap_or_default();
            match self.open.get(key) {
                Some(open) if silent(open) => self.exit(open.last_seen(), key, Ended::default(), true, out),
                _ => self.tell_if_due(key, out),
            }
        }
    }

    /// Opens an episode at its threshold, and repeats it once a minute.
    fn tell_if_due(&mut self, key: Key, out: &mut Vec<Fact>) {
        let Some(open) = self.open.get(key) else { return };
        let age = self.now.since(open.enter).unwrap_or_default();
        let state = match open.told {
            None if age >= self.threshold_now(open) && open.was_checked() && self.is_victim(key, open) => {
                StallState::Begin
            }
            Some(told) if self.now.since(told).unwrap_or_default() >= Self::UPDATE_EVERY => {
                StallState::Update
            }
            _ => return,
        };
        self.look_for_holder(key.0);
        let Some(open) = self.open.get(key) else { return };
        out.push(self.finding(open, state, age, Ended::default()));
        if let Some(open) = self.open.get_mut(key) {
            open.told = Some(self.now);
        }
    }

    /// Nested calls are one stall, told of the outermost; monitors are no victims.
    fn is_victim(&self, (tid, layer): Key, open: &OpenCall) -> bool {
        self.open.outermost(tid) == Some(layer) && self.uses.as_victim(&open.call).is_some()
    }

    /// The first open of a device has more time, unless it was slow a while ago already.
    fn threshold_now(&self, open: &OpenCall) -> Duration {
        let seen = self.slow_opens.get(&node_of(&open.call));
        let again = seen.is_some_and(|seen| self.now.since(*seen).unwrap_or_default() < Self::AGAIN);
        if open.is_first_open() && !again { open.threshold.max(Self::FIRST_OPEN) } else { open.threshold }
    }

    fn remember_slow_open(&mut self, open: &OpenCall, at: MonoNs) {
        self.slow_opens.retain(|_, seen| at.since(*seen).unwrap_or_default() < Self::AGAIN);
        if self.slow_opens.len() < Self::NODES_MAX {
            self.slow_opens.insert(node_of(&open.call), at);
        }
    }

    /// Nobody watches the calls any more: each is closed at the last sign of it, the outermost of a thread first.
    fn forget(&mut self, out: &mut Vec<Fact>) {
        let mut seen: Vec<_> =
            self.open.iter().map(|(key, open)| (key.0, open.enter, *key, open.last_seen())).collect();
        seen.sort_unstable();
        for (_, _, key, last_seen) in seen {
            self.exit(last_seen, key, Ended::default(), true, out);
        }
    }

    fn finding(&self, open: &OpenCall, state: StallState, length: Duration, ended: Ended) -> Fact {
        let (call, now) = (&open.call, self.now);
        let mut inner = self.open.of(call.tid);
        inner.retain(|other| stall_finding::is_inner(open, other));
        let blame = stall_finding::blamed(open, &inner, now, length);
        let mut evidence = stall_finding::evidence(open, &inner, state, length, ended, now);
        let victim = self.uses.as_victim(call);
        if victim == Some(Confidence::Low) {
            evidence.push(stall_finding::PRESUMED_MONITOR.to_owned());
        }
        if let Some(blame) = blame {
            evidence.extend(stall_finding::evidence_of_lock(blame, &self.open, &self.locks, now));
        }
        let mut devices = self.uses.devices(call.pid);
        let device = devices.next().filter(|_| devices.next().is_none());
        let stall = Stall {
            state,
            begin: open.enter,
            duration: length,
            cause: stall_finding::cause(open, blame),
            confidence: match (open.checked, victim) {
                (Some((Inside::Unknown, ..)), _) | (_, Some(Confidence::Low)) => Confidence::Low,
                _ => Confidence::High,
            },
            hw_id: device.map(|(hw_id, _)| hw_id.to_owned()),
            device_by: device.map(|(_, evidence)| evidence),
            call: Some(stall_finding::stalled_call(call, ended)),
            victims: vec![Victim { pid: call.pid, tid: call.tid, caller: call.caller.clone() }],
            lock: blame.map(|blame| blame.wait.clone()),
            holder: blame.and_then(|blame| blame.holder.clone()),
            evidence,
        };
        Fact::Finding(Box::new(Finding {
            id: format!("stall-{}-{}-{}", call.tid.0, call.kind.name(), open.enter.0),
            at: self.now,
            severity: if length >= Self::ERROR_FROM { Severity::Error } else { Severity::Warn },
            kind: FindingKind::Stall(stall),
        }))
    }
}

/// What an open is of, as far as it is known.
fn node_of(call: &Call) -> String {
    let device = || call.device.map(|device| device.to_string());
    call.node.clone().or_else(device).unwrap_or_default()
}

#[cfg(test)]
#[path = "driver_stall_tests.rs"]
mod tests;
