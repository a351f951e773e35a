//! What runs in the kernel, in the order a call meets it.
//!
//! In: contexts of tracepoints and kprobes. Out: entries, histograms, events. Floor: kernel 5.10, so plain atomic adds only, no helper
//! newer than the ring buffer, and kernel memory by guarded reads.
//! What can go wrong: a full map or an unreadable pointer; each is counted as a [`Loss`](warpgauge_ebpf::loss::Loss).

mod caller;
mod counting;
mod driver_calls;
mod events;
mod globals;
mod in_flight;
mod ioctl_block;
mod locks;
mod maps;
mod opening;
mod processes;
mod programs;
mod resource_manager;
mod schedule;
mod task;
mod unified_memory;
mod unloading;

/// Nothing here panics: the compiler proves it, or the link fails for want of a panic machinery.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// `bpf_probe_read_kernel` is for GPL programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
