//! A call from its entry to its end: an entry in the map while it lasts, then a count, and an event if it was slow.
//!
//! In: the programs' calls of [`begin`], [`leave`], [`finish`] and [`take`]. Out: maps and events.
//! What can go wrong: a full map, counted; an end without an entry (the call began before the agent did), ignored; an
//! entry whose end was missed, counted and removed at the thread's next call, whose end would be taken for its own.

use core::hint::black_box;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::programs::TracePointContext;
use aya_log_ebpf::{debug, warn};
use warpgauge_ebpf::calls::{
    ANY_SYSCALL, InFlight, InFlightKey, NO_FD, NODE_LEN, Rm, SlowCall, flags, kind, layer, major, minor,
};
use warpgauge_ebpf::histogram::HistogramKey;
use warpgauge_ebpf::loss::Loss;
use warpgauge_ebpf::returns::{counted_op, failed};
use warpgauge_ebpf::syscall;

use super::caller::{Caller, current_tid};
use super::counting::count;
use super::globals::{OWN_TGID, SLOW_NS};
use super::ioctl_block::hear;
use super::maps::{IN_FLIGHT, SLOW_CALLS, lose, returns_are_sure};
use super::processes::note;
use super::resource_manager::answered;
use super::task::{cgroup_id, character_device, name_thread, start_ns, watched};

#[cfg(bpf_target_arch = "x86_64")]
const SYSCALLS: syscall::Numbers = syscall::X86_64;
#[cfg(bpf_target_arch = "aarch64")]
const SYSCALLS: syscall::Numbers = syscall::AARCH64;

/// The current thread, unless it is the agent's own: the agent must not watch itself.
#[inline(always)]
pub fn foreign_thread() -> Option<(InFlightKey, u32)> {
    let id = bpf_get_current_pid_tgid();
    let tgid = (id >> 32) as u32;
    (tgid != OWN_TGID.load()).then_some((InFlightKey { tid: id as u32, layer: layer::SYSCALL }, tgid))
}

/// A call seen at a function of the driver's, without what [`begin`] adds.
#[inline(always)]
pub fn at_driver(kind: u32) -> InFlight {
    of_syscall(kind, ANY_SYSCALL, NO_FD, if returns_are_sure(kind) { flags::SURE_RETURN } else { 0 })
}

/// A call seen at the tracepoint of its system call, without what [`enter`] adds.
#[inline(always)]
pub fn of_syscall(kind: u32, syscall: u32, fd: u32, flags: u32) -> InFlight {
    InFlight {
        enter_ns: 0,
        cgroup: 0,
        start_ns: 0,
        tgid: 0,
        dev: 0,
        op: 0,
        kind,
        syscall,
        fd,
        flags,
        rm: Rm { escape: 0, code: 0, status: 0 },
        object: 0,
        comm: [0; 16],
        node: [0; NODE_LEN],
    }
}

/// A system call begins, seen at its tracepoint.
#[inline(always)]
pub fn enter(ctx: &TracePointContext, key: &InFlightKey, tgid: u32, call: &mut InFlight) {
    call.tgid = tgid;
    call.cgroup = cgroup_id();
    call.start_ns = start_ns();
    if call.flags & flags::PATH_UNREAD == 0 {
        note(tgid, call.start_ns);
    }
    if !insert(key, call) {
        let before = lose(Loss::InFlightFull);
        // said at 1, 2, 4, 8 …: a full map must not fill the log
        if before & before.wrapping_add(1) == 0 {
            warn!(ctx, "too many calls in flight: {} not followed so far", before + 1);
        }
    }
}

/// A call begins, seen at a function of the driver's.
#[inline(always)]
pub fn begin(layer: u32, who: &Caller, call: &mut InFlight) {
    call.tgid = who.tgid;
    call.cgroup = who.cgroup;
    call.start_ns = who.start_ns;
    call.flags |= who.flags;
    if !insert(&InFlightKey { tid: who.tid, layer }, call) {
        lose(Loss::InFlightFull);
    }
}

/// In place, since a copy would be too much for the stack.
#[inline(always)]
fn insert(key: &InFlightKey, call: &mut InFlight) -> bool {
    call.enter_ns = now();
    name_thread(&mut call.comm);
    if let Some(former) = IN_FLIGHT.get_ptr(key) {
        count_missed(former);
    }
    IN_FLIGHT.insert(key, &*call, 0).is_ok()
}

#[inline(always)]
fn count_missed(former: *const InFlight) {
    // SAFETY: a map value, readable until the program ends.
    if !unsafe { (*former).is_open_ended() } {
        lose(Loss::ReturnMissed);
    }
}

/// The current thread begins a call that is not followed: an entry it still has is of an earlier one.
#[inline(always)]
pub fn pass_over(key: &InFlightKey) {
    if let Some(former) = IN_FLIGHT.get_ptr(key) {
        count_missed(former);
        let _ = IN_FLIGHT.remove(key); // the agent may have been first
    }
}

/// The end of the current thread's system call, if one is being followed.
#[inline(always)]
pub fn leave(ctx: &TracePointContext, syscall: u32, ret: i64) {
    // one lookup is all that an unrelated call pays
    let key = InFlightKey { tid: current_tid(), layer: layer::SYSCALL };
    let Some(entry) = IN_FLIGHT.get_ptr(key) else { return };
    // SAFETY: a map value; only this thread writes it, apart from the agent deleting it.
    let call = unsafe { &*entry };
    let is_its_end =
        if call.syscall == ANY_SYSCALL { SYSCALLS.ends(call.kind, syscall) } else { call.syscall == syscall };
    if !is_its_end {
        // a close that has ended since; or left over from a call whose end was missed: the agent finds that out, and its
        // length is unknown here
        if call.is_open_ended() {
            let _ = IN_FLIGHT.remove(key);
        }
        return;
    }
    if let Some(slow) = finish(&key, entry, ret) {
        debug!(
            ctx,
            "slow call ended: thread {} on {}:{}, command 0x{:x}, returned {} after {} ms",
            key.tid,
            major(slow.dev),
            minor(slow.dev),
            slow.op,
            ret,
            slow.dur_ns / 1_000_000
        );
    }
}

/// What is said of a slow call in the log.
pub struct Slow {
    dev: u32,
    op: u32,
    dur_ns: u64,
}

/// Counts the end of a call of the outermost layer, and tells it if it was slow.
#[inline(always)]
pub fn finish(key: &InFlightKey, entry: *const InFlight, ret: i64) -> Option<Slow> {
    // SAFETY: a map value, readable until the program ends.
    let mut call = unsafe { *entry };
    let end_ns = now();
    // removed before the event is sent: whoever has seen the event will not find the entry any more
    let _ = IN_FLIGHT.remove(key);
    // the driver's own function knows its device from the start
    let is_watched = call.kind != kind::OPEN || call.syscall == ANY_SYSCALL || resolve_open(&mut call, ret);
    let dur_ns = end_ns.wrapping_sub(call.enter_ns);
    if call.flags & flags::RM_BLOCK != 0 {
        let is_rms = hear(&mut call, ret);
        let Rm { escape, code, status } = call.rm;
        call.rm =
            Rm { escape: forget(escape, end_ns), code: forget(code, end_ns), status: forget(status, end_ns) };
        if is_rms {
            answered(key.tid, &call, end_ns);
        }
    }
    if is_watched {
        let failed = failed(ret) || call.kind == kind::IOCTL && call.rm.failed();
        let op = forget(counted_op(call.dev, call.op, ret), end_ns);
        count(&counted_by(&call, op), dur_ns, failed);
    }
    if is_watched && call.flags & flags::PATH_UNREAD != 0 {
        note(call.tgid, call.start_ns);
    }
    // an open of a matching path was announced before anybody knew its device: its end is told whatever that is
    let may_be_announced = is_watched || call.flags & flags::PATH_UNREAD == 0;
    if !may_be_announced || dur_ns < SLOW_NS.load() {
        return None;
    }
    let slow = Slow { dev: call.dev, op: call.op, dur_ns };
    report(&SlowCall { key: *key, end_ns, ret, call });
    Some(slow)
}

/// The same value, of which the verifier knows nothing any more. It walks all that follows once for each constant that
/// a value may be, and whoever compared it with a dozen has left it a dozen. `by`: any number that it does not know.
#[inline(always)]
fn forget(value: u32, by: u64) -> u32 {
    black_box(u64::from(value).wrapping_add(by)).wrapping_sub(by) as u32
}

/// What calls like this one are counted by.
#[inline(always)]
fn counted_by(call: &InFlight, op: u32) -> HistogramKey {
    HistogramKey { cgroup: call.cgroup, tgid: call.tgid, dev: call.dev, op, kind: call.kind }
}

/// The current thread's entry of an inner layer, taken out of the map.
#[inline(always)]
pub fn take(layer: u32, is_wanted: impl Fn(&InFlight) -> bool) -> Option<(InFlightKey, InFlight)> {
    let key = InFlightKey { tid: current_tid(), layer };
    let entry = IN_FLIGHT.get_ptr(key)?;
    // SAFETY: a map value; only this thread writes it, apart from the agent deleting it.
    let call = unsafe { *entry };
    if !is_wanted(&call) {
        return None;
    }
    let _ = IN_FLIGHT.remove(key);
    Some((key, call))
}

/// Counts the end of a call of an inner layer, and tells it if it was slow.
#[inline(always)]
pub fn finish_inner(key: &InFlightKey, call: &InFlight, ret: i64, failed: bool) {
    let end_ns = now();
    let dur_ns = end_ns.wrapping_sub(call.enter_ns);
    count(&counted_by(call, call.op), dur_ns, failed);
    tell_if_slow(key, call, end_ns, ret);
}

/// Tells the end of a call of an inner layer if it was slow.
#[inline(always)]
pub fn tell_if_slow(key: &InFlightKey, call: &InFlight, end_ns: u64, ret: i64) {
    if end_ns.wrapping_sub(call.enter_ns) >= SLOW_NS.load() {
        report(&SlowCall { key: *key, end_ns, ret, call: *call });
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
fn report(event: &SlowCall) {
    match SLOW_CALLS.reserve::<SlowCall>(0) {
        Some(mut slot) => {
            slot.write(*event);
            slot.submit(0);
        }
        None => {
            lose(Loss::RingFull);
        }
    }
}

/// The current thread is exiting. Its entries stay: whether a call is over, only its own return can say.
#[inline(always)]
pub fn mark_dying() {
    let tid = current_tid();
    for layer in layer::ALL {
        if let Some(entry) = IN_FLIGHT.get_ptr_mut(InFlightKey { tid, layer }) {
            // SAFETY: a map value, and only the thread itself writes it.
            unsafe { (*entry).flags |= flags::DYING };
        }
    }
}

#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: takes nothing.
    unsafe { bpf_ktime_get_ns() }
}
