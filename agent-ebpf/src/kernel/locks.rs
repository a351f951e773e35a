//! RM's locks: who waits, and who has them.
//!
//! In: `os_acquire_*(lock)`, `os_cond_acquire_mutex(lock)`, `os_release_mutex(lock)`, `os_release_rwlock_*(lock)`.
//! Out: waits as calls in flight and histograms, holders; none of a semaphore, which is nobody's.
//! What can go wrong: a full map, counted. `os_acquire_semaphore` is compiled into a jump to `os_acquire_mutex`: a second
//! entry of the same thread on the same lock is the same wait, with the first one's mode, and its second return finds
//! nothing any more.

use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use warpgauge_ebpf::calls::{InFlight, InFlightKey, kind, layer};
use warpgauge_ebpf::histogram::HistogramKey;
use warpgauge_ebpf::lock::{Held, HeldKey, SHORTEST_WAIT_NS, mode, number};
use warpgauge_ebpf::loss::Loss;

use super::caller::caller;
use super::counting::count;
use super::in_flight::{at_driver, begin, foreign_thread, now, take, tell_if_slow};
use super::maps::{HELD, IN_FLIGHT, lose};

#[inline(always)]
fn wait(ctx: &ProbeContext, mode: u32) -> u32 {
    let (Some(who), Some(lock)) = (caller(), ctx.arg::<u64>(0)) else { return 0 };
    if let Some(waiting) = IN_FLIGHT.get_ptr(InFlightKey { tid: who.tid, layer: layer::LOCK }) {
        // SAFETY: a map value, readable until the program ends.
        let same = unsafe { (*waiting).object == lock };
        // an interrupt may try a lock in the middle of another's wait, and names the thread it found
        if same || mode == mode::TRIED {
            return 0;
        }
    }
    let mut call = at_driver(kind::LOCK);
    (call.op, call.object) = (mode, lock);
    begin(layer::LOCK, &who, &mut call);
    0
}

#[kprobe]
pub fn kp_lock_read(ctx: ProbeContext) -> u32 {
    wait(&ctx, mode::READ)
}

#[kprobe]
pub fn kp_lock_write(ctx: ProbeContext) -> u32 {
    wait(&ctx, mode::WRITE)
}

#[kprobe]
pub fn kp_lock_mutex(ctx: ProbeContext) -> u32 {
    wait(&ctx, mode::MUTEX)
}

#[kprobe]
pub fn kp_lock_semaphore(ctx: ProbeContext) -> u32 {
    wait(&ctx, mode::SEMAPHORE)
}

/// `NV_ERR_INVALID_REQUEST`, which is all that a wait is refused with: the thread may not sleep.
const REFUSED: u32 = 0x3f;

/// For the return of all four. Compared with the one refusal, since older drivers' functions give nothing back, which
/// leaves any number.
#[kretprobe]
pub fn kr_lock(ctx: RetProbeContext) -> u32 {
    let Some((key, call)) = take(layer::LOCK, |call| call.op != mode::TRIED) else { return 0 };
    let (end_ns, status) = (now(), ctx.ret::<u32>());
    let waited_ns = end_ns.wrapping_sub(call.enter_ns);
    if waited_ns >= SHORTEST_WAIT_NS {
        let (cgroup, tgid, kind) = (call.cgroup, call.tgid, call.kind);
        let key = HistogramKey { cgroup, tgid, dev: call.op, op: number(call.object), kind };
        count(&key, waited_ns, status == REFUSED);
    }
    if status != REFUSED && call.op != mode::SEMAPHORE {
        hold(&key, &call, end_ns);
    }
    tell_if_slow(&key, &call, end_ns, 0);
    0
}

#[kprobe]
pub fn kp_try_lock(ctx: ProbeContext) -> u32 {
    wait(&ctx, mode::TRIED)
}

#[kretprobe]
pub fn kr_try_lock(ctx: RetProbeContext) -> u32 {
    if let Some((key, call)) = take(layer::LOCK, |call| call.op == mode::TRIED)
        && ctx.ret::<u32>() == 0
    {
        hold(&key, &call, now());
    }
    0
}

#[inline(always)]
fn hold(key: &InFlightKey, call: &InFlight, since_ns: u64) {
    let of = HeldKey { lock: call.object, tid: key.tid, reserved: 0 };
    let held = Held {
        since_ns,
        start_ns: call.start_ns,
        cgroup: call.cgroup,
        tgid: call.tgid,
        mode: call.op,
        comm: call.comm,
    };
    if HELD.insert(of, &held, 0).is_err() {
        lose(Loss::HeldFull);
    }
}

/// For the releases of mutexes and reader-writer locks: a thread lets go of what is its own, and of nobody else's. One
/// that was not seen to take the lock may believe to have it: a try of a reader-writer lock that failed tells it so.
#[kprobe]
pub fn kp_unlock(ctx: ProbeContext) -> u32 {
    let (Some((key, _)), Some(lock)) = (foreign_thread(), ctx.arg::<u64>(0)) else { return 0 };
    let _ = HELD.remove(HeldKey { lock, tid: key.tid, reserved: 0 }); // taken before anybody looked, or not at all
    0
}
