//! UVM: who ties itself to a GPU, CPU faults on managed memory, faults of a GPU, and pages moved out of its memory.
//!
//! In: `uvm_api_*(parameters, file)`, whose parameters are the kernel's copy and begin with the GPU's UUID; the functions
//! of faults and evictions. Out: events, calls in flight, histograms.
//! What can go wrong: unreadable parameters, counted; the registration is then not told.

use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use warpgauge_ebpf::calls::{NODE_LEN, kind, layer};
use warpgauge_ebpf::event::{BYTES, Event, what};
use warpgauge_ebpf::loss::Loss;

use super::caller::caller;
use super::events::{tell, tell_own};
use super::in_flight::{at_driver, begin, finish_inner, now, take, tell_if_slow};
use super::maps::lose;
use super::processes::note;
use super::task::read;

const UUID: usize = 16;

/// The UUID that a block of parameters begins with.
#[inline(always)]
fn uuid(ctx: &ProbeContext) -> Option<[u8; UUID]> {
    let uuid = read(ctx.arg::<u64>(0)?);
    if uuid.is_err() {
        lose(Loss::ArgumentUnreadable);
    }
    uuid.ok()
}

/// `what` stays in the entry until the return tells whether it came to pass.
#[inline(always)]
fn enter_register(ctx: &ProbeContext, what: u32) -> u32 {
    let (Some(who), Some(uuid)) = (caller(), uuid(ctx)) else { return 0 };
    let mut call = at_driver(kind::REGISTER);
    call.op = what;
    for (to, from) in call.node.iter_mut().zip(uuid) {
        *to = from;
    }
    begin(layer::DRIVER, &who, &mut call);
    0
}

#[kprobe]
pub fn kp_uvm_register_gpu(ctx: ProbeContext) -> u32 {
    enter_register(&ctx, what::REGISTER_GPU)
}

#[kprobe]
pub fn kp_uvm_register_va_space(ctx: ProbeContext) -> u32 {
    enter_register(&ctx, what::REGISTER_VA_SPACE)
}

#[kprobe]
pub fn kp_uvm_register_channel(ctx: ProbeContext) -> u32 {
    enter_register(&ctx, what::REGISTER_CHANNEL)
}

/// For the return of all three, which give `NV_STATUS`.
#[kretprobe]
pub fn kr_uvm_register(ctx: RetProbeContext) -> u32 {
    let Some((key, call)) = take(layer::DRIVER, |call| call.kind == kind::REGISTER) else { return 0 };
    let (at_ns, status) = (now(), ctx.ret::<u32>());
    // one that lasts is announced like any other call, so its end must be told
    tell_if_slow(&key, &call, at_ns, i64::from(status));
    if status != 0 || call.tgid == 0 {
        return 0;
    }
    note(call.tgid, call.start_ns);
    tell(&Event {
        at_ns,
        start_ns: call.start_ns,
        cgroup: call.cgroup,
        tgid: call.tgid,
        tid: key.tid,
        what: call.op,
        code: 0,
        comm: call.comm,
        bytes: padded(&call.node),
    });
    0
}

#[inline(always)]
fn padded(node: &[u8; NODE_LEN]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (to, from) in bytes.iter_mut().zip(node) {
        *to = *from;
    }
    bytes
}

#[kprobe]
pub fn kp_uvm_unregister_gpu(ctx: ProbeContext) -> u32 {
    let (Some(who), Some(uuid)) = (caller(), uuid(&ctx)) else { return 0 };
    let mut event = Event {
        at_ns: now(),
        start_ns: who.start_ns,
        cgroup: who.cgroup,
        tgid: who.tgid,
        what: what::UNREGISTER_GPU,
        ..Event::default()
    };
    for (to, from) in event.bytes.iter_mut().zip(uuid) {
        *to = from;
    }
    tell_own(&mut event);
    0
}

#[inline(always)]
fn follow(layer: u32, kind: u32) -> u32 {
    if let Some(who) = caller() {
        begin(layer, &who, &mut at_driver(kind));
    }
    0
}

/// In the thread that touched the memory.
#[kprobe]
pub fn kp_fault(_ctx: ProbeContext) -> u32 {
    follow(layer::FAULT, kind::FAULT)
}

/// `VM_FAULT_OOM`, `SIGBUS`, `HWPOISON`, `HWPOISON_LARGE` and `SIGSEGV`.
const FAULT_FAILED: u32 = 0x1 | 0x2 | 0x10 | 0x20 | 0x40;

#[kretprobe]
pub fn kr_fault(ctx: RetProbeContext) -> u32 {
    let ret: u32 = ctx.ret();
    end(layer::FAULT, kind::FAULT, ret, ret & FAULT_FAILED != 0)
}

/// In a thread of the kernel's.
#[kprobe]
pub fn kp_service(_ctx: ProbeContext) -> u32 {
    follow(layer::DRIVER, kind::SERVICE)
}

/// It gives nothing back.
#[kretprobe]
pub fn kr_service(_ctx: RetProbeContext) -> u32 {
    end(layer::DRIVER, kind::SERVICE, 0, false)
}

/// Within a service, a fault, or a call: so it has a layer of its own.
#[kprobe]
pub fn kp_evict(_ctx: ProbeContext) -> u32 {
    follow(layer::EVICT, kind::EVICT)
}

/// It gives `NV_STATUS`.
#[kretprobe]
pub fn kr_evict(ctx: RetProbeContext) -> u32 {
    let status: u32 = ctx.ret();
    end(layer::EVICT, kind::EVICT, status, status != 0)
}

#[inline(always)]
fn end(layer: u32, kind: u32, ret: u32, failed: bool) -> u32 {
    if let Some((key, call)) = take(layer, |call| call.kind == kind) {
        finish_inner(&key, &call, i64::from(ret), failed);
    }
    0
}
