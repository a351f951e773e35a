//! A call from its entry to its end: an entry in the map while it lasts, then a count, and an event if it was slow.
//!
//! In: the programs' calls of [`enter`], [`leave`] and [`exit`](mark_dying). Out: maps and events.
//! What can go wrong: a full map, counted; an end without an entry (the call began before the agent did), ignored; an
//! entry whose end was missed, counted and removed at the thread's next call, whose end would be taken for its own.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::programs::TracePointContext;
use aya_log_ebpf::{debug, warn};
use warpgauge_ebpf::calls::{
    InFlight, InFlightKey, NODE_LEN, Rm, SlowCall, flags, kind, layer, major, minor,
};
use warpgauge_ebpf::histogram::HistogramKey;
use warpgauge_ebpf::loss::Loss;
use warpgauge_ebpf::returns::{counted_op, failed};

use super::counting::count;
use super::globals::{OWN_TGID, SLOW_NS};
use super::maps::{IN_FLIGHT, SLOW_CALLS, lose};
use super::task::{cgroup_id, character_device, start_ns, watched};

/// The current thread, unless it is the agent's own: the agent must not watch itself.
#[inline(always)]
pub fn foreign_thread() -> Option<(InFlightKey, u32)> {
    let id = bpf_get_current_pid_tgid();
    let tgid = (id >> 32) as u32;
    (tgid != OWN_TGID.load()).then_some((InFlightKey { tid: id as u32, layer: layer::SYSCALL }, tgid))
}

/// What is known of a call when it begins.
pub struct Begun {
    pub kind: u32,
    pub syscall: u32,
    pub dev: u32,
    pub op: u32,
    pub fd: u32,
    pub flags: u32,
    pub node: [u8; NODE_LEN],
}

#[inline(always)]
pub fn enter(ctx: &TracePointContext, key: &InFlightKey, tgid: u32, call: &Begun) {
    let entry = InFlight {
        enter_ns: now(),
        cgroup: cgroup_id(),
        start_ns: start_ns(),
        tgid,
        dev: call.dev,
        op: call.op,
        kind: call.kind,
        syscall: call.syscall,
        fd: call.fd,
        flags: call.flags,
        rm: Rm::default(),
        object: 0,
        comm: ctx.command().unwrap_or_default(),
        node: call.node,
    };
    if IN_FLIGHT.get_ptr(key).is_some() {
        lose(Loss::ReturnMissed);
    }
    if IN_FLIGHT.insert(key, entry, 0).is_err() {
        let before = lose(Loss::InFlightFull);
        // said at 1, 2, 4, 8 …: a full map must not fill the log
        if before & before.wrapping_add(1) == 0 {
            warn!(ctx, "too many calls in flight: {} not followed so far", before + 1);
        }
    }
}

/// The current thread begins a call that is not followed: an entry it still has is of an earlier one.
#[inline(always)]
pub fn pass_over(key: &InFlightKey) {
    if IN_FLIGHT.get_ptr(key).is_some() {
        let _ = IN_FLIGHT.remove(key); // the agent may have been first
        lose(Loss::ReturnMissed);
    }
}

/// The end of the current thread's call, if one is being followed.
#[inline(always)]
pub fn leave(ctx: &TracePointContext, syscall: u32, ret: i64) {
    // one lookup is all that an unrelated call pays
    let key = InFlightKey { tid: bpf_get_current_pid_tgid() as u32, layer: layer::SYSCALL };
    let Some(entry) = IN_FLIGHT.get_ptr(key) else { return };
    // SAFETY: a map value; only this thread writes it, apart from the agent deleting it.
    let mut call = unsafe { *entry };
    if call.syscall != syscall {
        // left over from a call whose end was missed: the agent finds that out, and its length is unknown here
        return;
    }
    let end_ns = now();
    // removed before the event is sent: whoever has seen the event will not find the entry any more
    let _ = IN_FLIGHT.remove(key);
    let is_watched = call.kind != kind::OPEN || resolve_open(&mut call, ret);
    let dur_ns = end_ns.wrapping_sub(call.enter_ns);
    if is_watched {
        let op = counted_op(call.op, ret);
        let counted =
            HistogramKey { cgroup: call.cgroup, tgid: call.tgid, dev: call.dev, op, kind: call.kind };
        count(&counted, dur_ns, failed(ret));
    }
    // an open of a matching path was announced before anybody knew its device: its end is told whatever that is
    let may_be_announced = is_watched || call.flags & flags::PATH_UNREAD == 0;
    if may_be_announced && dur_ns >= SLOW_NS.load() {
        report(ctx, &SlowCall { key, end_ns, ret, call }, dur_ns);
    }
}

/// Only the descriptor that came back tells which device an open was for. `false`: none that is watched; the driver may
/// have been loaded a moment ago, under a major that is not known yet.
#[inline(always)]
fn resolve_open(call: &mut InFlight, ret: i64) -> bool {
    if ret < 0 {
        // a failed open is known by its path alone
        return call.flags & flags::PATH_UNREAD == 0;
    }
    match character_device(ret as u32) {
        Some(device) => {
            call.dev = device;
            watched(device)
        }
        None => false,
    }
}

#[inline(always)]
fn report(ctx: &TracePointContext, event: &SlowCall, dur_ns: u64) {
    match SLOW_CALLS.reserve::<SlowCall>(0) {
        Some(mut slot) => {
            slot.write(*event);
            slot.submit(0);
        }
        None => {
            lose(Loss::RingFull);
        }
    }
    debug!(
        ctx,
        "slow call ended: thread {} on {}:{}, command 0x{:x}, returned {} after {} ms",
        event.key.tid,
        major(event.call.dev),
        minor(event.call.dev),
        event.call.op,
        event.ret,
        dur_ns / 1_000_000
    );
}

/// The current thread is exiting. Its entry stays: whether the call is over, only its own return can say.
#[inline(always)]
pub fn mark_dying() {
    let key = InFlightKey { tid: bpf_get_current_pid_tgid() as u32, layer: layer::SYSCALL };
    if let Some(entry) = IN_FLIGHT.get_ptr_mut(key) {
        // SAFETY: a map value, and only the thread itself writes it.
        unsafe { (*entry).flags |= flags::DYING };
    }
}

#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: takes nothing.
    unsafe { bpf_ktime_get_ns() }
}
