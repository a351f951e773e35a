//! Telling user space what happens once; and the reports of the driver that are told at once.
//!
//! In: an event; the arguments of `nv_report_error` and `nv_set_system_power_state`. Out: the ring buffer.
//! What can go wrong: a full ring buffer or an unreadable argument, counted.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use aya_ebpf::macros::kprobe;
use aya_ebpf::programs::ProbeContext;
use warpgauge_ebpf::event::{BYTES, Event, what};
use warpgauge_ebpf::layout::ABSENT;
use warpgauge_ebpf::loss::Loss;

use super::caller::{caller, current_tid};
use super::globals::{DEVICE_KOBJECT, KOBJECT_NAME, PCI_DEVICE};
use super::in_flight::now;
use super::maps::{EVENTS, lose};
use super::task::{name_thread, read};

/// Of the current thread.
#[inline(always)]
pub fn tell_own(event: &mut Event) {
    event.tid = current_tid();
    name_thread(&mut event.comm);
    tell(event);
}

#[inline(always)]
pub fn tell(event: &Event) {
    match EVENTS.reserve::<Event>(0) {
        Some(mut slot) => {
            slot.write(*event);
            slot.submit(0);
        }
        None => {
            lose(Loss::EventsFull);
        }
    }
}

/// `nv_report_error(device, xid, format, arguments)`. Whoever runs has nothing to do with it.
#[kprobe]
pub fn kp_report_error(ctx: ProbeContext) -> u32 {
    let (Some(device), Some(xid)) = (ctx.arg::<u64>(0), ctx.arg::<u32>(1)) else { return 0 };
    let mut event = Event { at_ns: now(), what: what::XID, code: xid, ..Event::default() };
    if !has_name(device, &mut event.bytes) {
        lose(Loss::ArgumentUnreadable);
    }
    tell(&event);
    0
}

/// The name of a PCI device is its address, such as `0000:3b:00.0`.
#[inline(always)]
fn has_name(device: u64, name: &mut [u8; BYTES]) -> bool {
    let (in_pci, in_device, in_object) = (PCI_DEVICE.load(), DEVICE_KOBJECT.load(), KOBJECT_NAME.load());
    if in_pci == ABSENT || in_device == ABSENT || in_object == ABSENT || device == 0 {
        return false;
    }
    let at = device
        .wrapping_add(u64::from(in_pci))
        .wrapping_add(u64::from(in_device))
        .wrapping_add(u64::from(in_object));
    let Ok(text) = read::<u64>(at) else { return false };
    // SAFETY: the helper writes at most BYTES bytes with the end among them, and checks the address it reads from.
    let length =
        unsafe { bpf_probe_read_kernel_str(name.as_mut_ptr().cast(), BYTES as u32, text as *const _) };
    length > 0
}

/// `nv_set_system_power_state(state, ...)`, in the process that asks for it.
#[kprobe]
pub fn kp_power(ctx: ProbeContext) -> u32 {
    let (Some(who), Some(state)) = (caller(), ctx.arg::<u32>(0)) else { return 0 };
    tell_own(&mut Event {
        at_ns: now(),
        start_ns: who.start_ns,
        cgroup: who.cgroup,
        tgid: who.tgid,
        what: what::POWER,
        code: state,
        ..Event::default()
    });
    0
}
