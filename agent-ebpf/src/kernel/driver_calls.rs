//! The driver's file operations: what a system call does once it has reached the driver.
//!
//! In: `(file, command, argument)` of ioctl, `(inode, file)` of open and release, `(file, area)` of mmap, `(file, table)`
//! of poll. Out: calls in flight of the outermost layer.
//! What can go wrong: a close may run in a thread of the kernel's, or in one that exits: it is followed and told apart.

use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use warpgauge_ebpf::calls::{ANY_SYSCALL, InFlight, InFlightKey, kind, layer};

use super::caller::{caller, current_tid};
use super::in_flight::{at_driver, begin, finish};
use super::ioctl_block::ask;
use super::maps::IN_FLIGHT;
use super::processes::note;
use super::task::{device_of_file, device_of_inode};

#[inline(always)]
fn follow(
    ctx: &ProbeContext,
    kind: u32,
    device: impl FnOnce(u64) -> u32,
    more: impl FnOnce(&mut InFlight),
) -> u32 {
    let (Some(who), Some(of)) = (caller(), ctx.arg::<u64>(0)) else { return 0 };
    if who.is_process() {
        note(who.tgid, who.start_ns);
    }
    let mut call = at_driver(kind);
    call.dev = device(of);
    more(&mut call);
    begin(layer::SYSCALL, &who, &mut call);
    0
}

#[kprobe]
pub fn kp_ioctl(ctx: ProbeContext) -> u32 {
    let op = ctx.arg::<u32>(1).unwrap_or_default();
    let argument = ctx.arg::<u64>(2).unwrap_or_default();
    follow(&ctx, kind::IOCTL, device_of_file, |call| {
        call.op = op;
        ask(call, argument);
    })
}

#[kprobe]
pub fn kp_open(ctx: ProbeContext) -> u32 {
    follow(&ctx, kind::OPEN, device_of_inode, |_| {})
}

#[kprobe]
pub fn kp_close(ctx: ProbeContext) -> u32 {
    follow(&ctx, kind::CLOSE, device_of_inode, |_| {})
}

#[kprobe]
pub fn kp_mmap(ctx: ProbeContext) -> u32 {
    follow(&ctx, kind::MMAP, device_of_file, |_| {})
}

#[kprobe]
pub fn kp_poll(ctx: ProbeContext) -> u32 {
    follow(&ctx, kind::POLL, device_of_file, |_| {})
}

/// For the return of all of them.
#[kretprobe]
pub fn kr_call(ctx: RetProbeContext) -> u32 {
    let key = InFlightKey { tid: current_tid(), layer: layer::SYSCALL };
    let Some(entry) = IN_FLIGHT.get_ptr(key) else { return 0 };
    // SAFETY: a map value; only this thread writes it, apart from the agent deleting it.
    let call = unsafe { &*entry };
    if call.syscall == ANY_SYSCALL {
        let ret: u64 = ctx.ret();
        // ioctl gives a long, the others an int, above which the register has no meaning
        let ret = if call.kind == kind::IOCTL { ret as i64 } else { i64::from(ret as i32) };
        finish(&key, entry, ret);
    }
    0
}
