//! The programs on tracepoints of system calls, one per role: the agent attaches each to those it chose.
//!
//! In: the context of a syscall tracepoint, which is the same on all architectures: the call's number at byte 8, then
//! from byte 16 its arguments, or its return value. Out: calls into the modules beside this one.
//! What can go wrong: nothing; a program without anything to say returns.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use warpgauge_ebpf::calls::{InFlight, kind};

use super::globals::FOREIGN_TYPES;
use super::in_flight::{enter, foreign_thread, leave, of_syscall, pass_over};
use super::ioctl_block::ask;
use super::opening::enter_open;
use super::task::watched_device;
use super::unloading::enter_unload;

#[inline(always)]
fn syscall(ctx: &TracePointContext) -> u32 {
    // SAFETY: every syscall tracepoint has its number there; the verifier checks the access against the event.
    unsafe { ctx.as_ptr().cast::<u32>().add(2).read_volatile() }
}

#[inline(always)]
fn argument(ctx: &TracePointContext, index: usize) -> u64 {
    // SAFETY: as above; the kernel refuses to attach a program that reads beyond the event's arguments.
    unsafe { ctx.as_ptr().cast::<u64>().add(2 + index).read_volatile() }
}

/// Follows a call on a descriptor, if that is a watched device. `more`: completes its entry.
#[inline(always)]
fn enter_on_fd(ctx: &TracePointContext, kind: u32, fd: u32, more: impl FnOnce(&mut InFlight)) {
    let Some((key, tgid)) = foreign_thread() else { return };
    let Some(dev) = watched_device(fd) else { return pass_over(&key) };
    let mut call = of_syscall(kind, syscall(ctx), fd, 0);
    call.dev = dev;
    more(&mut call);
    enter(ctx, &key, tgid, &mut call);
}

/// A call that is none of a watched device, whatever its descriptor.
#[inline(always)]
fn enter_elsewhere() {
    if let Some((key, _)) = foreign_thread() {
        pass_over(&key);
    }
}

#[tracepoint]
pub fn ioctl_enter(ctx: TracePointContext) -> u32 {
    let op = argument(&ctx, 1) as u32;
    if FOREIGN_TYPES.load().contains(op) {
        enter_elsewhere();
    } else {
        enter_on_fd(&ctx, kind::IOCTL, argument(&ctx, 0) as u32, |call| {
            call.op = op;
            ask(call, argument(&ctx, 2));
        });
    }
    0
}

#[tracepoint]
pub fn close_enter(ctx: TracePointContext) -> u32 {
    enter_on_fd(&ctx, kind::CLOSE, argument(&ctx, 0) as u32, |_| {});
    0
}

const MAP_ANONYMOUS: u64 = 0x20;

#[tracepoint]
pub fn mmap_enter(ctx: TracePointContext) -> u32 {
    if argument(&ctx, 3) & MAP_ANONYMOUS != 0 {
        enter_elsewhere();
    } else {
        enter_on_fd(&ctx, kind::MMAP, argument(&ctx, 4) as u32, |_| {});
    }
    0
}

/// For `open`, whose path comes first.
#[tracepoint]
pub fn open_enter(ctx: TracePointContext) -> u32 {
    enter_open(&ctx, syscall(&ctx), argument(&ctx, 0));
    0
}

/// For `openat` and `openat2`, whose path comes second.
#[tracepoint]
pub fn openat_enter(ctx: TracePointContext) -> u32 {
    enter_open(&ctx, syscall(&ctx), argument(&ctx, 1));
    0
}

/// For the return of all of them.
#[tracepoint]
pub fn call_exit(ctx: TracePointContext) -> u32 {
    leave(&ctx, syscall(&ctx), argument(&ctx, 0) as i64);
    0
}

/// For `delete_module`, whose first argument is a name.
#[tracepoint]
pub fn delete_module_enter(ctx: TracePointContext) -> u32 {
    enter_unload(&ctx, argument(&ctx, 0));
    0
}
