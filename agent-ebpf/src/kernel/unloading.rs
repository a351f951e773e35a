//! Attempts to unload the driver: told at once, since the driver cannot go while somebody holds it.
//!
//! In: the name argument of `delete_module`, at its tracepoint or at the kernel's function behind it. Out: an event, if it begins with the driver's prefix and the caller may
//! unload modules. Anybody may make the call and be refused: the agent must not let go of the driver for those.
//! What can go wrong: an unreadable name or a full ring buffer, counted; unreadable rights, taken for sufficient.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use aya_ebpf::macros::kprobe;
use aya_ebpf::programs::ProbeContext;
use warpgauge_ebpf::loss::Loss;
use warpgauge_ebpf::prefix::Prefix;
use warpgauge_ebpf::unload::{NAME_LEN, PREFIX, Unload};

use super::in_flight::{foreign_thread, now};
use super::maps::{UNLOADS, lose};
use super::task::{may_unload_modules, read};

const DRIVER: Prefix = match Prefix::new(PREFIX) {
    Some(prefix) => prefix,
    None => unreachable!(),
};

/// A name, as words for the comparison and as bytes for the event.
#[repr(C)]
union Name {
    words: [u64; NAME_LEN / 8],
    bytes: [u8; NAME_LEN],
}

/// Where `struct pt_regs` has the first argument of a system call. Unit: bytes. `di` of x86-64, `regs[0]` of arm64.
const FIRST_ARGUMENT: u64 = if cfg!(bpf_target_arch = "aarch64") { 0 } else { 112 };

/// For the kernel's function behind `delete_module`, which is given the caller's registers.
#[kprobe]
pub fn kp_delete_module(ctx: ProbeContext) -> u32 {
    let name = ctx.arg::<u64>(0).map(|registers| read::<u64>(registers.wrapping_add(FIRST_ARGUMENT)));
    match name {
        Some(Ok(name)) => enter_unload(&ctx, name),
        _ => {
            lose(Loss::UnloadUnreadable);
        }
    }
    0
}

#[inline(always)]
pub fn enter_unload(ctx: &impl EbpfContext, name_address: u64) {
    let Some((_, tgid)) = foreign_thread() else { return };
    let mut name = Name { words: [0; NAME_LEN / 8] };
    // SAFETY: the helper writes at most NAME_LEN bytes, and checks the address it reads from.
    let length =
        unsafe { bpf_probe_read_user_str((&raw mut name).cast(), NAME_LEN as u32, name_address as *const _) };
    // SAFETY: both views of the union are plain bytes, all of them written.
    let words = unsafe { [name.words[0], name.words[1], name.words[2], name.words[3]] };
    if length >= 0 && !DRIVER.matches(&words) || !may_unload_modules() {
        return;
    }
    if length < 0 {
        lose(Loss::UnloadUnreadable);
        return;
    }
    // SAFETY: as above.
    let module = unsafe { name.bytes };
    let comm = ctx.command().unwrap_or_default();
    match UNLOADS.reserve::<Unload>(0) {
        Some(mut slot) => {
            slot.write(Unload { at_ns: now(), tgid, reserved: 0, comm, module });
            slot.submit(0);
        }
        None => {
            lose(Loss::RingFull);
        }
    }
}
