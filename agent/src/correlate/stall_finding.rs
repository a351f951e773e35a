//! What is said of a driver stall: its cause, and every fact that was seen.
//!
//! In: the calls a thread is in, and who has the lock it waits for. Out: cause, evidence, the call in short.
//! A cause is named only when all of its evidence is there; what is there of it travels along in any case.

use std::time::Duration;

use super::lock_table::LockTable;
use super::open_calls::{Blame, OpenCall, OpenCalls};
use crate::model::call::LockWait;
use crate::model::finding::StalledCall;
use crate::model::{Call, CallKind, Cause, Holder, Inside, Layer, MonoNs, StallState, rm};

/// Said of a victim that was taken for a monitor.
pub const PRESUMED_MONITOR: &str =
    "the process had allocated nothing that computes: taken for a monitor, which would not be here";

/// What ended a call, where it has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// What it returned.
    pub ret: Option<i64>,
    /// What the resource manager answered.
    pub status: Option<u32>,
}

/// The lock that the call's length is put down to: it waits for it now, for at least the threshold or half of its time,
/// or it has spent half of its time on such waits.
pub fn blamed<'a>(
    open: &'a OpenCall,
    inner: &[&OpenCall],
    now: MonoNs,
    length: Duration,
) -> Option<&'a Blame> {
    let waiting = inner.last().filter(|inner| inner.call.kind == CallKind::Lock);
    let waited = waiting.map_or(Duration::ZERO, |wait| now.since(wait.enter).unwrap_or_default());
    let all = waited.saturating_add(open.locked);
    let is_long = waiting.is_some() && waited >= open.threshold || all.saturating_mul(2) >= length;
    open.blame.as_ref().filter(|_| is_long && !all.is_zero())
}

/// The cause. Without a known holder a wait for a lock is a long call like any other.
pub fn cause(open: &OpenCall, blame: Option<&Blame>) -> Cause {
    match blame {
        Some(Blame { holder: Some(_), dead: true, .. }) => Cause::DeadHolder,
        Some(Blame { holder: Some(_), .. }) => Cause::DriverLock,
        _ if open.is_first_open() => Cause::SlowOpen,
        _ => Cause::DriverCall,
    }
}

/// The call in short.
pub fn stalled_call(call: &Call, ended: Ended) -> StalledCall {
    StalledCall {
        kind: call.kind,
        op: call.op,
        driver: call.driver.clone(),
        device: call.device,
        node: call.node.clone(),
        function: call.function.clone(),
        rm: call.rm,
        ret: ended.ret,
        status: ended.status,
    }
}

/// What was seen, the most telling first. `inner`: what the thread is in within the call.
pub fn evidence(
    open: &OpenCall,
    inner: &[&OpenCall],
    state: StallState,
    length: Duration,
    ended: Ended,
    now: MonoNs,
) -> Vec<String> {
    let seconds = length.as_secs_f64();
    let kind = open.call.kind.name();
    let first = match state {
        StallState::Begin | StallState::Update => {
            format!("{kind} open for {seconds:.3} s, threshold {:.3} s", open.threshold.as_secs_f64())
        }
        StallState::End => format!("{kind} returned after {seconds:.3} s"),
        StallState::Unobserved => format!("{kind} no longer watched after {seconds:.3} s"),
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
    evidence.extend(asked(&open.call));
    evidence.extend(inner.iter().map(|inner| within(inner, now)));
    if open.brings_up {
        evidence.push("a GPU is brought up".to_owned());
    }
    evidence
        .extend(ended.status.map(|status| format!("the resource manager answered {}", rm::status(status))));
    evidence
}

fn asked(call: &Call) -> Option<String> {
    let asked = call.rm?;
    let what = asked.cmd.map(rm::control).or_else(|| asked.class.map(rm::class))?;
    Some(format!("the resource manager was asked for {what}"))
}

fn within(inner: &OpenCall, now: MonoNs) -> String {
    let seconds = now.since(inner.enter).unwrap_or_default().as_secs_f64();
    match (&inner.call.lock, &inner.call.function) {
        (Some(wait), _) => format!("waits for lock {} ({}) for {seconds:.3} s", wait.lock, mode(wait)),
        (None, Some(function)) => format!("in {function} for {seconds:.3} s"),
        (None, None) => format!("in another call ({}) for {seconds:.3} s", inner.call.kind.name()),
    }
}

/// What is known of the lock's holder, and of the others that want it.
pub fn evidence_of_lock(blame: &Blame, calls: &OpenCalls, locks: &LockTable, now: MonoNs) -> Vec<String> {
    let lock = &blame.wait.lock;
    let Some(holder) = &blame.holder else {
        return vec![format!("who has lock {lock} is not known")];
    };
    let mut evidence = vec![holder_line(lock, holder, now)];
    if blame.dead {
        evidence.push(format!("process {} has ended since", holder.pid.0));
    }
    if let Some(outer) = calls.of(holder.tid).first() {
        let seconds = now.since(outer.enter).unwrap_or_default().as_secs_f64();
        evidence.push(format!("the holder's own call ({}) lasts {seconds:.3} s", outer.call.kind.name()));
    }
    let (holders, waiting) = (locks.count(lock), calls.waiting_for(lock));
    if holders > 1 || waiting > 1 {
        evidence.push(format!("{holders} have lock {lock}, {waiting} wait for it"));
    }
    evidence
}

fn holder_line(lock: &str, holder: &Holder, now: MonoNs) -> String {
    let comm = holder.caller.as_ref().map(|caller| format!(" ({})", caller.comm)).unwrap_or_default();
    let seconds = now.since(holder.since).unwrap_or_default().as_secs_f64();
    format!(
        "thread {}{comm} of process {} has had lock {lock} for {seconds:.3} s",
        holder.tid.0, holder.pid.0
    )
}

fn mode(wait: &LockWait) -> &'static str {
    if wait.exclusive { "write" } else { "read" }
}

/// Whether the layer is one that says what the thread does within its call.
pub fn is_inner(open: &OpenCall, other: &OpenCall) -> bool {
    let place = |call: &OpenCall| (call.enter, call.call.kind.layer());
    place(other) > place(open) && other.call.kind.layer() != Layer::Syscall
}
