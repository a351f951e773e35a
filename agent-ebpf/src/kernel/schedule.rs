//! Where the threads of armed processes spend the time in which they do not run.
//!
//! In: the tracepoints of a switch and of a wake-up (fields: `layout::FIELDS`); the map of armed processes.
//! Out: sums by process and reason.
//! What can go wrong: a full map, counted. A thread that never runs again leaves no entry: it switches out as a dead one.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use warpgauge_ebpf::calls::{InFlightKey, flags, layer};
use warpgauge_ebpf::layout::{Field, SWITCH_NEXT, SWITCH_PREVIOUS_STATE, WAKEUP_THREAD};
use warpgauge_ebpf::loss::Loss;
use warpgauge_ebpf::schedule::{Off, OffKey, OffSum, reason};

use super::counting::{NO_EXIST, add_u64};
use super::in_flight::now;
use super::maps::{ARMED, IN_FLIGHT, OFF, OFF_SUMS, lose};

/// Bits of a state as the event has it. Neither of the lower eight: it could have gone on.
const UNINTERRUPTIBLE: u64 = 0x02;
const DEAD: u64 = 0x10 | 0x20;
const NOT_RUNNABLE: u64 = 0xff;

#[inline(always)]
fn field<T>(ctx: &TracePointContext, field: Field) -> T {
    // SAFETY: the positions are multiples of the fields' sizes, and the kernel refuses to attach a program that reads
    // beyond the event.
    unsafe { ctx.as_ptr().cast::<u8>().add(field.offset).cast::<T>().read_volatile() }
}

#[tracepoint]
pub fn sched_switch(ctx: TracePointContext) -> u32 {
    let now = now();
    let id = bpf_get_current_pid_tgid();
    let (tid, tgid) = (id as u32, (id >> 32) as u32);
    // the idle threads have number 0, and there is one per CPU
    if tgid != 0 && is_armed(tgid, now) {
        go(tid, tgid, field(&ctx, SWITCH_PREVIOUS_STATE), now);
    }
    let next: u32 = field(&ctx, SWITCH_NEXT);
    if next != 0 {
        come(next, now);
    }
    0
}

#[inline(always)]
fn is_armed(tgid: u32, now: u64) -> bool {
    // SAFETY: a map value, readable until the program ends.
    ARMED.get_ptr(tgid).is_some_and(|until| now < unsafe { *until })
}

/// The current thread stops.
#[inline(always)]
fn go(tid: u32, tgid: u32, state: u64, now: u64) {
    if state & DEAD != 0 {
        return;
    }
    let could_go_on = state & NOT_RUNNABLE == 0;
    let woken_ns = if could_go_on { now } else { 0 };
    let off = Off { since_ns: now, woken_ns, tgid, reason: why(tid, state) };
    if OFF.insert(tid, &off, 0).is_err() {
        lose(Loss::OffFull);
    }
}

#[inline(always)]
fn why(tid: u32, state: u64) -> u32 {
    if is_in(tid, layer::LOCK) {
        reason::DRIVER_LOCK
    } else if is_in(tid, layer::FAULT) {
        reason::FAULT
    } else if is_in(tid, layer::DRIVER) || is_in(tid, layer::SYSCALL) {
        reason::DRIVER_CALL
    } else if state & NOT_RUNNABLE == 0 {
        reason::PREEMPTED
    } else if state & UNINTERRUPTIBLE != 0 {
        reason::UNINTERRUPTIBLE
    } else {
        reason::SLEEP
    }
}

/// Whether the thread is in a call of this layer, for all that is known.
#[inline(always)]
fn is_in(tid: u32, layer: u32) -> bool {
    let Some(call) = IN_FLIGHT.get_ptr(InFlightKey { tid, layer }) else { return false };
    // SAFETY: a map value, readable until the program ends.
    unsafe { (*call).flags & flags::PATH_UNREAD == 0 && !(*call).is_open_ended() }
}

/// A thread goes on.
#[inline(always)]
fn come(tid: u32, now: u64) {
    let Some(entry) = OFF.get_ptr(tid) else { return };
    // SAFETY: a map value, readable until the program ends.
    let off = unsafe { *entry };
    let _ = OFF.remove(tid);
    let Some(sum) = find_or_insert(&OffKey { tgid: off.tgid, reason: off.reason }) else {
        lose(Loss::OffFull);
        return;
    };
    // a wake-up that was not seen
    let woken_ns = if off.woken_ns == 0 { now } else { off.woken_ns };
    // SAFETY: the pointer is to a whole value of the map, readable and writable until the program ends.
    unsafe {
        add_u64(&raw mut (*sum).times, 1);
        add_u64(&raw mut (*sum).waited_ns, woken_ns.saturating_sub(off.since_ns));
        add_u64(&raw mut (*sum).queued_ns, now.saturating_sub(woken_ns));
    }
}

#[inline(always)]
fn find_or_insert(key: &OffKey) -> Option<*mut OffSum> {
    if let Some(found) = OFF_SUMS.get_ptr_mut(key) {
        return Some(found);
    }
    // another CPU may have been first: then this fails, and its value is as good
    let _ = OFF_SUMS.insert(key, OffSum { times: 0, waited_ns: 0, queued_ns: 0 }, NO_EXIST);
    OFF_SUMS.get_ptr_mut(key)
}

#[tracepoint]
pub fn sched_wakeup(ctx: TracePointContext) -> u32 {
    let thread: u32 = field(&ctx, WAKEUP_THREAD);
    if let Some(off) = OFF.get_ptr_mut(thread) {
        // SAFETY: a map value. A thread is woken once before it runs, so nobody else writes this.
        unsafe {
            if (*off).woken_ns == 0 {
                (*off).woken_ns = now();
            }
        }
    }
    0
}
