//! Who runs a function of the driver: a process's thread, or one of the kernel's own, which is nobody's doing.
//!
//! In: the current task. Out: [`Caller`].
//! What can go wrong: an unreadable task, counted; it is then taken for a process's.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use warpgauge_ebpf::calls::flags;
use warpgauge_ebpf::loss::Loss;

use super::globals::{OWN_TGID, TASK_FLAGS};
use super::maps::lose;
use super::task::{cgroup_id, current, member, start_ns};

/// `PF_KTHREAD` and `PF_EXITING`, the same in all kernels since long before the oldest supported one.
const KERNEL_THREAD: u32 = 0x0020_0000;
const EXITING: u32 = 4;

/// A thread and whose it is.
pub struct Caller {
    pub tid: u32,
    /// 0 for a thread of the kernel's.
    pub tgid: u32,
    pub cgroup: u64,
    pub start_ns: u64,
    /// Bits of [`flags`].
    pub flags: u32,
}

impl Caller {
    /// Whether it may be told of as a process: it is one, and its end is still to come.
    #[inline(always)]
    pub fn is_process(&self) -> bool {
        self.flags & (flags::KERNEL_THREAD | flags::DYING) == 0
    }
}

/// The current thread, unless it is the agent's own: the agent must not watch itself.
#[inline(always)]
pub fn caller() -> Option<Caller> {
    let id = bpf_get_current_pid_tgid();
    let (tid, tgid) = (id as u32, (id >> 32) as u32);
    if tgid == OWN_TGID.load() {
        return None;
    }
    let bits: u32 = member(current(), &TASK_FLAGS).unwrap_or_else(|_| {
        lose(Loss::TaskUnreadable);
        0
    });
    Some(if bits & KERNEL_THREAD != 0 {
        Caller { tid, tgid: 0, cgroup: 0, start_ns: 0, flags: flags::KERNEL_THREAD }
    } else {
        let flags = if bits & EXITING != 0 { flags::DYING } else { 0 };
        Caller { tid, tgid, cgroup: cgroup_id(), start_ns: start_ns(), flags }
    })
}

/// The number of the current thread.
#[inline(always)]
pub fn current_tid() -> u32 {
    bpf_get_current_pid_tgid() as u32
}
