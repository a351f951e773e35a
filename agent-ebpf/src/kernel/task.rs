//! What the current task is: its process's start time, its cgroup, its rights, and the device behind one of its
//! descriptors.
//!
//! In: the current task, and structure offsets from BTF. Out: plain numbers.
//! What can go wrong: every step is a guarded read and may fail; a descriptor closed by another thread at the same time
//! gives a wrong answer for that one call at worst.

use aya_ebpf::Global;
use aya_ebpf::helpers::generated::bpf_get_current_comm;
use aya_ebpf::helpers::{bpf_get_current_cgroup_id, bpf_get_current_task, bpf_probe_read_kernel};
use warpgauge_ebpf::calls::major;
use warpgauge_ebpf::globals::CGROUP_V1;
use warpgauge_ebpf::loss::Loss;

use super::globals::{
    CGROUP_KN, CGROUP_MODE, CRED_EFFECTIVE, CRED_NAMESPACE, CSS_CGROUP, CSS_SET_SUBSYS, FDT_FD, FDT_MAX,
    FILE_INODE, FILES_FDT, INODE_MODE, INODE_RDEV, KN_ID, NAMESPACE_LEVEL, PIDS_SUBSYS, TASK_CGROUPS,
    TASK_CRED, TASK_FILES, TASK_LEADER, TASK_START,
};
use super::maps::{MAJORS, lose};

/// A member of a kernel structure.
#[inline(always)]
pub fn member<T>(structure: u64, offset: &Global<u32>) -> Result<T, i32> {
    read(structure.wrapping_add(u64::from(offset.load())))
}

/// A value at an address of the kernel's.
#[inline(always)]
pub fn read<T>(address: u64) -> Result<T, i32> {
    // SAFETY: the helper checks the address; a bad one is an error, not a fault.
    unsafe { bpf_probe_read_kernel(address as *const T) }
}

#[inline(always)]
pub fn current() -> u64 {
    // SAFETY: takes nothing, and gives the address of the running task.
    unsafe { bpf_get_current_task() }
}

/// When the process began (clock: boot time); 0 where unreadable. Tells a process from a later one with its pid.
#[inline(always)]
pub fn start_ns() -> u64 {
    let start = || member::<u64>(member(current(), &TASK_LEADER)?, &TASK_START);
    start().unwrap_or_else(|_: i32| {
        lose(Loss::TaskUnreadable);
        0
    })
}

/// Name of the current thread; zeros where it has none.
#[inline(always)]
pub fn name_thread(name: &mut [u8; 16]) {
    // SAFETY: the helper writes the bytes of the array and no more, whether it works or not. (By value they would be
    // copied one by one.)
    let _ = unsafe { bpf_get_current_comm(name.as_mut_ptr().cast(), 16) };
}

/// Id of the cgroup in the hierarchy that carries the containers; 0 where unreadable.
#[inline(always)]
pub fn cgroup_id() -> u64 {
    if CGROUP_MODE.load() != CGROUP_V1 {
        // SAFETY: takes nothing.
        return unsafe { bpf_get_current_cgroup_id() };
    }
    pids_cgroup_id().unwrap_or_else(|_| {
        lose(Loss::CgroupUnreadable);
        0
    })
}

#[inline(always)]
fn pids_cgroup_id() -> Result<u64, i32> {
    let set: u64 = member(current(), &TASK_CGROUPS)?;
    let in_set = u64::from(CSS_SET_SUBSYS.load()) + 8 * u64::from(PIDS_SUBSYS.load());
    let subsystem: u64 = read(set.wrapping_add(in_set))?;
    let cgroup: u64 = member(subsystem, &CSS_CGROUP)?;
    let node: u64 = member(cgroup, &CGROUP_KN)?;
    member(node, &KN_ID)
}

/// The watched character device behind a descriptor of the current task.
#[inline(always)]
pub fn watched_device(fd: u32) -> Option<u32> {
    or_lost(device(fd, watched))
}

/// The character device behind a descriptor of the current task, watched or not.
#[inline(always)]
pub fn character_device(fd: u32) -> Option<u32> {
    or_lost(device(fd, |_| true))
}

#[inline(always)]
fn or_lost(device: Result<Option<u32>, i32>) -> Option<u32> {
    device.unwrap_or_else(|_| {
        lose(Loss::FileUnreadable);
        None
    })
}

#[inline(always)]
fn device(fd: u32, wanted: impl Fn(u32) -> bool) -> Result<Option<u32>, i32> {
    let files: u64 = member(current(), &TASK_FILES)?;
    let table: u64 = member(files, &FILES_FDT)?;
    // a descriptor that is not open is the caller's mistake, not a loss
    if fd >= member(table, &FDT_MAX)? {
        return Ok(None);
    }
    let slots: u64 = member(table, &FDT_FD)?;
    let file: u64 = read(slots.wrapping_add(u64::from(fd) * 8))?;
    if file == 0 {
        return Ok(None);
    }
    let inode: u64 = member(file, &FILE_INODE)?;
    let device: u32 = member(inode, &INODE_RDEV)?;
    // the major first: it turns nearly all files away, and block devices have majors of their own
    Ok((wanted(device) && is_character_device(member(inode, &INODE_MODE)?)).then_some(device))
}

#[inline(always)]
fn is_character_device(mode: u16) -> bool {
    mode & 0xf000 == 0x2000
}

/// The device that an inode stands for; 0 where unreadable.
#[inline(always)]
pub fn device_of_inode(inode: u64) -> u32 {
    or_zero(member(inode, &INODE_RDEV))
}

/// The device behind an open file; 0 where unreadable.
#[inline(always)]
pub fn device_of_file(file: u64) -> u32 {
    let device = || member(member(file, &FILE_INODE)?, &INODE_RDEV);
    or_zero(device())
}

#[inline(always)]
fn or_zero(device: Result<u32, i32>) -> u32 {
    device.unwrap_or_else(|_| {
        lose(Loss::FileUnreadable);
        0
    })
}

/// Whether the device is of a watched major.
#[inline(always)]
pub fn watched(device: u32) -> bool {
    let major = major(device);
    if major == 0 {
        return false;
    }
    let Some(majors) = MAJORS.get(0) else { return false };
    majors.contains(&major)
}

/// Whether the current task may unload modules: the capability, in the first user namespace. (In one of its own every
/// user has all capabilities.) What cannot be read is taken for a yes.
#[inline(always)]
pub fn may_unload_modules() -> bool {
    const CAP_SYS_MODULE: u64 = 1 << 16;
    let may = || -> Result<bool, i32> {
        let rights: u64 = member(current(), &TASK_CRED)?;
        // one 64-bit word, or two of 32 bits with the lower one first
        let effective: u64 = member(rights, &CRED_EFFECTIVE)?;
        let level: u32 = member(member(rights, &CRED_NAMESPACE)?, &NAMESPACE_LEVEL)?;
        Ok(effective & CAP_SYS_MODULE != 0 && level == 0)
    };
    may().unwrap_or(true)
}
