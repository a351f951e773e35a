//! Atomic adds, and counting a finished call in its histogram.
//!
//! In: a key, a duration, whether it failed. Out: changed map values.
//! The adds are inline assembly: core has no atomics for this target, and only a plain add whose old value nobody uses
//! is accepted before kernel 5.12. `build-ebpf` looks for any other atomic instruction in the object.

use core::arch::asm;

use warpgauge_ebpf::histogram::{Histogram, HistogramKey, SLOTS, slot};
use warpgauge_ebpf::loss::Loss;

use super::maps::{HISTOGRAMS, ZERO_HISTOGRAM, lose};

/// # Safety
/// `target` must point at an aligned u64 in a map value.
#[inline(always)]
pub unsafe fn add_u64(target: *mut u64, value: u64) {
    // SAFETY: the caller's promise; the instruction touches those eight bytes only.
    unsafe {
        asm!("lock *(u64 *)({target} + 0) += {value}", target = in(reg) target, value = in(reg) value);
    }
}

/// # Safety
/// `target` must point at an aligned u32 in a map value.
#[inline(always)]
unsafe fn add_u32(target: *mut u32, value: u64) {
    // SAFETY: the caller's promise; the instruction touches those four bytes only.
    unsafe {
        asm!("lock *(u32 *)({target} + 0) += {value}", target = in(reg) target, value = in(reg) value);
    }
}

/// Inserts only where nothing is yet.
pub const NO_EXIST: u64 = 1;

#[inline(always)]
pub fn count(key: &HistogramKey, dur_ns: u64, failed: bool) {
    let Some(histogram) = find_or_insert(key) else {
        lose(Loss::HistogramFull);
        return;
    };
    let slot = slot(dur_ns) as usize;
    // SAFETY: the pointer is to a whole value of the map; the kernel keeps it readable until the program ends, even
    // if the agent deletes the key meanwhile (then the counts are gone with the process they belonged to).
    unsafe {
        add_u64(&raw mut (*histogram).sum_ns, dur_ns);
        if failed {
            add_u64(&raw mut (*histogram).errors, 1);
        }
        if slot < SLOTS {
            add_u32((&raw mut (*histogram).slots).cast::<u32>().add(slot), 1);
        }
    }
}

#[inline(always)]
fn find_or_insert(key: &HistogramKey) -> Option<*mut Histogram> {
    if let Some(found) = HISTOGRAMS.get_ptr_mut(key) {
        return Some(found);
    }
    let empty = ZERO_HISTOGRAM.get(0)?;
    // another CPU may have been first: then this fails, and its value is as good
    let _ = HISTOGRAMS.insert(key, empty, NO_EXIST);
    HISTOGRAMS.get_ptr_mut(key)
}
