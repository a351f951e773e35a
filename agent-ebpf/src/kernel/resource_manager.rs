//! What an ioctl asks RM for, and what RM says; and bringing up a GPU.
//!
//! In: `rm_ioctl(stack, state, file, escape, block, size)`, whose block is the kernel's copy of the parameters, and
//! `rm_init_adapter(stack, state)`. Out: the request in the ioctl's own entry, sums by code and status, workloads.
//! What can go wrong: an unreadable block, counted; the request is then known by its escape alone.

use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use warpgauge_ebpf::calls::{InFlight, InFlightKey, Rm, flags, kind, layer};
use warpgauge_ebpf::event::{Event, process, what};
use warpgauge_ebpf::loss::Loss;
use warpgauge_ebpf::rm::{ALLOC, RmKey, RmSum, answer, code_at, counted_code, is_of_workload, status_at};

use super::caller::caller;
use super::counting::{NO_EXIST, add_u64};
use super::events::tell;
use super::in_flight::{at_driver, begin, finish_inner, now, take, tell_if_slow};
use super::maps::{IN_FLIGHT, RM_CALLS, lose};
use super::processes::{is_first, note};
use super::task::read;

#[kprobe]
pub fn kp_rm_ioctl(ctx: ProbeContext) -> u32 {
    let (Some(who), Some(escape), Some(block)) = (caller(), ctx.arg::<u32>(3), ctx.arg::<u64>(4)) else {
        return 0;
    };
    let size = ctx.arg::<u32>(5).unwrap_or_default();
    let escape = escape & 0xff;
    let code = code_at(escape).and_then(|at| word(block, at, size)).unwrap_or_default();
    let rm = Rm { escape, code, status: Rm::UNANSWERED };
    let mut dev = 0;
    if let Some(ioctl) = ioctl_around(who.tid) {
        // SAFETY: a map value, and only its own thread writes it.
        unsafe {
            (*ioctl).rm = rm;
            // what the kernel's copy says is better
            (*ioctl).flags &= !flags::RM_BLOCK;
            dev = (*ioctl).dev;
        }
    }
    let mut call = at_driver(kind::RM);
    (call.dev, call.rm, call.object, call.fd) = (dev, rm, block, size);
    begin(layer::DRIVER, &who, &mut call);
    0
}

/// It gives `NV_STATUS` of its own; what RM did is in the block, unless it was refused before.
#[kretprobe]
pub fn kr_rm_ioctl(ctx: RetProbeContext) -> u32 {
    let Some((key, mut call)) = take(layer::DRIVER, |call| call.kind == kind::RM) else { return 0 };
    let end_ns = now();
    let (escape, size) = (call.rm.escape, call.fd);
    let in_block = status_at(escape, size).and_then(|at| word(call.object, at, size));
    call.rm.status = answer(ctx.ret::<u32>(), in_block);
    if let Some(ioctl) = ioctl_around(key.tid) {
        // SAFETY: a map value, and only its own thread writes it.
        unsafe { (*ioctl).rm.status = call.rm.status };
    }
    answered(key.tid, &call, end_ns);
    // one that lasts is announced like any other call, so its end must be told
    tell_if_slow(&key, &call, end_ns, 0);
    0
}

/// RM has come back from what it was asked in a call: that is summed, and tells a workload.
#[inline(always)]
pub fn answered(tid: u32, call: &InFlight, end_ns: u64) {
    sum(call, end_ns.wrapping_sub(call.enter_ns));
    let is_workload = call.rm.escape == ALLOC && call.rm.status == 0 && is_of_workload(call.rm.code);
    if is_workload && call.tgid != 0 {
        note(call.tgid, call.start_ns);
        if is_first(call.tgid, process::WORKLOAD) {
            tell_workload(tid, call, end_ns);
        }
    }
}

/// The ioctl that the current call into RM is a part of.
#[inline(always)]
fn ioctl_around(tid: u32) -> Option<*mut InFlight> {
    let entry = IN_FLIGHT.get_ptr_mut(InFlightKey { tid, layer: layer::SYSCALL })?;
    // SAFETY: a map value, readable until the program ends.
    (unsafe { (*entry).kind } == kind::IOCTL).then_some(entry)
}

/// A word of a block of parameters; `None` where it lies outside, or is unreadable.
#[inline(always)]
fn word(block: u64, at: u32, size: u32) -> Option<u32> {
    if size < at + 4 {
        return None;
    }
    match read(block.wrapping_add(u64::from(at))) {
        Ok(word) => Some(word),
        Err(_) => {
            lose(Loss::ArgumentUnreadable);
            None
        }
    }
}

#[inline(always)]
fn sum(call: &InFlight, dur_ns: u64) {
    let Rm { escape, code, status } = call.rm;
    let code = counted_code(code, status);
    let key = RmKey { cgroup: call.cgroup, tgid: call.tgid, escape, code, status };
    let Some(sum) = find_or_insert(&key) else {
        lose(Loss::RmFull);
        return;
    };
    // SAFETY: the pointer is to a whole value of the map, readable and writable until the program ends.
    unsafe {
        add_u64(&raw mut (*sum).calls, 1);
        add_u64(&raw mut (*sum).time_ns, dur_ns);
    }
}

#[inline(always)]
fn find_or_insert(key: &RmKey) -> Option<*mut RmSum> {
    if let Some(found) = RM_CALLS.get_ptr_mut(key) {
        return Some(found);
    }
    // another CPU may have been first: then this fails, and its value is as good
    let _ = RM_CALLS.insert(key, RmSum { calls: 0, time_ns: 0 }, NO_EXIST);
    RM_CALLS.get_ptr_mut(key)
}

#[inline(always)]
fn tell_workload(tid: u32, call: &InFlight, at_ns: u64) {
    tell(&Event {
        at_ns,
        start_ns: call.start_ns,
        cgroup: call.cgroup,
        tgid: call.tgid,
        tid,
        what: what::WORKLOAD,
        code: call.rm.code,
        comm: call.comm,
        ..Event::default()
    });
}

/// A GPU is brought up within an open; or within a call that ties a process to it, which then stays the one followed.
#[kprobe]
pub fn kp_init_adapter(_ctx: ProbeContext) -> u32 {
    let Some(who) = caller() else { return 0 };
    if let Some(outer) = IN_FLIGHT.get_ptr(InFlightKey { tid: who.tid, layer: layer::DRIVER }) {
        // SAFETY: a map value, readable until the program ends.
        if unsafe { (*outer).kind } != kind::INIT {
            return 0;
        }
    }
    begin(layer::DRIVER, &who, &mut at_driver(kind::INIT));
    0
}

/// For the return of `rm_init_adapter`, which gives a byte: 0 for a failure.
#[kretprobe]
pub fn kr_driver(ctx: RetProbeContext) -> u32 {
    if let Some((key, call)) = take(layer::DRIVER, |call| call.kind == kind::INIT) {
        let done: u8 = ctx.ret();
        finish_inner(&key, &call, i64::from(done), done == 0);
    }
    0
}
