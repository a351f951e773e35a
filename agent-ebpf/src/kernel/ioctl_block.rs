//! What an ioctl asks RM for and what RM says, from the process's own block of parameters: where RM's function itself
//! cannot be watched, since that part of the driver is built without the kernel's tracing.
//!
//! In: command and argument of an ioctl on a device of the driver. Out: the request in the ioctl's entry, the answer as
//! [`answered`](super::resource_manager::answered) sums it.
//! What can go wrong: the block's page is not in memory at the entry, where a probe must not wait for it: the request is
//! then read at the end, and counted as unreadable if it is not there either. The process's other threads may change the
//! block at any time: what is read is that process's own word about itself, and about nobody else.

use aya_ebpf::helpers::bpf_probe_read_user;
use warpgauge_ebpf::calls::{InFlight, Rm, flags};
use warpgauge_ebpf::loss::Loss;
use warpgauge_ebpf::rm::{
    Block, Wrapper, answer_of, code_at, is_wrapper, of_device, reaches_rm, status_at, unwrapped,
};

use super::maps::{lose, rm_is_read_from_blocks};

/// An ioctl begins; its device and command are in the entry that it will have.
#[inline(always)]
pub fn ask(call: &mut InFlight, argument: u64) {
    if !rm_is_read_from_blocks() || !of_device(call.dev) {
        return;
    }
    call.flags |= flags::RM_BLOCK;
    call.object = argument;
    let Some(block) = block(call) else { return };
    if reaches_rm(block.escape) {
        let code = code_at(block.escape).and_then(|at| word(&block, at)).unwrap_or_default();
        call.rm = Rm { escape: block.escape, code, status: Rm::UNANSWERED };
    }
}

/// It ends. `false`: RM gave no answer, since the request did not come to it or was not understood.
#[inline(always)]
pub fn hear(call: &mut InFlight, ret: i64) -> bool {
    if ret != 0 {
        return false;
    }
    let Some(block) = block(call) else {
        lose(Loss::ArgumentUnreadable);
        return call.rm.escape != 0;
    };
    if !reaches_rm(block.escape) {
        return false;
    }
    if call.rm.code == 0
        && let Some(at) = code_at(block.escape)
    {
        call.rm.code = word_or_lost(&block, at).unwrap_or_default();
    }
    call.rm.escape = block.escape;
    let status = status_at(block.escape, block.size).and_then(|at| word_or_lost(&block, at));
    call.rm.status = status.map_or(Rm::UNANSWERED, answer_of);
    true
}

/// The block of a call; `None` where the wrapper around it is unreadable.
#[inline(always)]
fn block(call: &InFlight) -> Option<Block> {
    let block = Block::of(call.op, call.object);
    if is_wrapper(block.escape) { user::<Wrapper>(block.at).map(unwrapped) } else { Some(block) }
}

#[inline(always)]
fn word(block: &Block, at: u32) -> Option<u32> {
    if block.has(at) { user(block.at.wrapping_add(u64::from(at))) } else { None }
}

#[inline(always)]
fn word_or_lost(block: &Block, at: u32) -> Option<u32> {
    let word = word(block, at);
    if word.is_none() && block.has(at) {
        lose(Loss::ArgumentUnreadable);
    }
    word
}

#[inline(always)]
fn user<T>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address; a bad one is an error, not a fault. Every `T` here is made of plain numbers.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}
