//! The maps, and counting what did not fit into them.
//!
//! In: sizes from the shared library. Out: maps under the names the agent looks for.
//! Nothing is per CPU: such maps are multiplied by the possible CPUs and charged to the agent's own pod.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, RingBuf};
use warpgauge_ebpf::calls::{InFlight, InFlightKey};
use warpgauge_ebpf::event::KnownProcess;
use warpgauge_ebpf::histogram::{Histogram, HistogramKey};
use warpgauge_ebpf::lock::{Held, HeldKey};
use warpgauge_ebpf::loss::{LOSSES as LOSS_COUNT, Loss};
use warpgauge_ebpf::maps::{
    ARMED_ENTRIES, EVENTS_BYTES, HELD_ENTRIES, HISTOGRAM_ENTRIES, IN_FLIGHT_ENTRIES, MAJOR_SLOTS,
    OFF_ENTRIES, OFF_SUM_ENTRIES, PROCESS_ENTRIES, RM_ENTRIES, SLOW_CALLS_BYTES, UNLOADS_BYTES,
};
use warpgauge_ebpf::rm::{RmKey, RmSum};
use warpgauge_ebpf::schedule::{Off, OffKey, OffSum};

use super::counting::add_u64;

#[map]
pub static IN_FLIGHT: HashMap<InFlightKey, InFlight> = HashMap::with_max_entries(IN_FLIGHT_ENTRIES, 0);

#[map]
pub static HISTOGRAMS: HashMap<HistogramKey, Histogram> = HashMap::with_max_entries(HISTOGRAM_ENTRIES, 0);

#[map]
pub static SLOW_CALLS: RingBuf = RingBuf::with_byte_size(SLOW_CALLS_BYTES, 0);

#[map]
pub static UNLOADS: RingBuf = RingBuf::with_byte_size(UNLOADS_BYTES, 0);

#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(EVENTS_BYTES, 0);

#[map]
pub static PROCESSES: HashMap<u32, KnownProcess> = HashMap::with_max_entries(PROCESS_ENTRIES, 0);

#[map]
pub static RM_CALLS: HashMap<RmKey, RmSum> = HashMap::with_max_entries(RM_ENTRIES, 0);

#[map]
pub static HELD: HashMap<HeldKey, Held> = HashMap::with_max_entries(HELD_ENTRIES, 0);

#[map]
pub static ARMED: HashMap<u32, u64> = HashMap::with_max_entries(ARMED_ENTRIES, 0);

#[map]
pub static OFF: HashMap<u32, Off> = HashMap::with_max_entries(OFF_ENTRIES, 0);

#[map]
pub static OFF_SUMS: HashMap<OffKey, OffSum> = HashMap::with_max_entries(OFF_SUM_ENTRIES, 0);

#[map]
static LOSSES: Array<u64> = Array::with_max_entries(LOSS_COUNT, 0);

#[map]
pub static MAJORS: Array<[u32; MAJOR_SLOTS]> = Array::with_max_entries(1, 0);

#[map]
static SURE_RETURNS: Array<u32> = Array::with_max_entries(1, 0);

/// Whether the ends of calls of that kind are all seen.
#[inline(always)]
pub fn returns_are_sure(kind: u32) -> bool {
    SURE_RETURNS.get(0).is_some_and(|kinds| kinds >> kind & 1 == 1)
}

#[map]
static RM_FROM_BLOCK: Array<u32> = Array::with_max_entries(1, 0);

/// Whether the block of an ioctl is looked at.
#[inline(always)]
pub fn rm_is_read_from_blocks() -> bool {
    RM_FROM_BLOCK.get(0).is_some_and(|yes| *yes != 0)
}

/// Never written: what a fresh histogram is copied from, since 176 bytes are too much of the stack's 512.
#[map]
pub static ZERO_HISTOGRAM: Array<Histogram> = Array::with_max_entries(1, 0);

/// Counts a loss; gives how often it had happened before, roughly, since other CPUs count too.
#[inline(always)]
pub fn lose(loss: Loss) -> u64 {
    let Some(counter) = LOSSES.get_ptr_mut(loss as u32) else { return 0 };
    // SAFETY: the map's value is a u64, and array elements live as long as the map.
    let before = unsafe { counter.read_volatile() };
    // SAFETY: as above; the add is atomic.
    unsafe { add_u64(counter, 1) };
    before
}
