//! Processes that call the driver: known from their first call on, until user space has heard of their end.
//!
//! In: calls, and the tracepoints of exit and exec. Out: [`KnownProcess`] entries, and events.
//! What can go wrong: too many processes, counted; a number given anew, told by the start time.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use warpgauge_ebpf::event::{Event, KnownProcess, process, what};
use warpgauge_ebpf::layout::ABSENT;
use warpgauge_ebpf::loss::Loss;

use super::events::tell_own;
use super::globals::{SIGNAL_LIVE, TASK_SIGNAL};
use super::in_flight::{mark_dying, now};
use super::maps::{PROCESSES, lose};
use super::task::{cgroup_id, current, member, start_ns};

/// Remembers a process.
#[inline(always)]
pub fn note(tgid: u32, start_ns: u64) {
    if let Some(known) = PROCESSES.get_ptr(tgid) {
        // SAFETY: a map value, readable until the program ends.
        if unsafe { (*known).start_ns } == start_ns {
            return;
        }
    }
    if PROCESSES.insert(tgid, KnownProcess { start_ns, flags: 0, reserved: 0 }, 0).is_err() {
        lose(Loss::ProcessesFull);
    }
}

/// Whether this is the first time that the process is known for this. (Two threads at once may both be first.)
#[inline(always)]
pub fn is_first(tgid: u32, flag: u32) -> bool {
    let Some(known) = PROCESSES.get_ptr_mut(tgid) else { return false };
    // SAFETY: a map value; a flag that another thread sets at the same time may be lost, and is then told twice.
    unsafe {
        let first = (*known).flags & flag == 0;
        (*known).flags |= flag;
        first
    }
}

/// For `sched_process_exit`, which every thread meets.
#[tracepoint]
pub fn process_exit(_ctx: TracePointContext) -> u32 {
    mark_dying();
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let Some(known) = PROCESSES.get_ptr(tgid) else { return 0 };
    // SAFETY: a map value, readable until the program ends.
    let start = unsafe { (*known).start_ns };
    if start == start_ns() && is_last_thread() && is_first(tgid, process::EXITED) {
        tell_process(what::EXIT, tgid, start);
    }
    0
}

/// The kernel counts a thread out before it comes here. Where that cannot be read, no end is told.
#[inline(always)]
fn is_last_thread() -> bool {
    if TASK_SIGNAL.load() == ABSENT || SIGNAL_LIVE.load() == ABSENT {
        return false;
    }
    let live = || member::<i32>(member(current(), &TASK_SIGNAL)?, &SIGNAL_LIVE);
    match live() {
        Ok(live) => live == 0,
        Err(_) => {
            lose(Loss::TaskUnreadable);
            false
        }
    }
}

/// For `sched_process_exec`: what the process was known for, its former program did.
#[tracepoint]
pub fn process_exec(_ctx: TracePointContext) -> u32 {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let Some(known) = PROCESSES.get_ptr_mut(tgid) else { return 0 };
    // SAFETY: a map value, and after an exec the process has only this thread.
    let start = unsafe {
        (*known).flags = 0;
        (*known).start_ns
    };
    if start == start_ns() {
        tell_process(what::EXEC, tgid, start);
    }
    0
}

#[inline(always)]
fn tell_process(what: u32, tgid: u32, start_ns: u64) {
    tell_own(&mut Event { at_ns: now(), start_ns, cgroup: cgroup_id(), tgid, what, ..Event::default() });
}
