//! How much kernel memory the maps take: computed, since the kernel tells it only from 6.4 on.
//!
//! In: the sizes of the shared library and the number of possible CPUs. Out: bytes, charged to the agent's own pod.
//! What can go wrong: an element's overhead differs by a few bytes between kernels; this takes the largest seen.

use warpgauge_ebpf::calls::{InFlight, InFlightKey};
use warpgauge_ebpf::event::KnownProcess;
use warpgauge_ebpf::histogram::{Histogram, HistogramKey};
use warpgauge_ebpf::lock::{Held, HeldKey};
use warpgauge_ebpf::loss::LOSSES;
use warpgauge_ebpf::maps::{
    ARMED_ENTRIES, EVENTS_BYTES, HELD_ENTRIES, HISTOGRAM_ENTRIES, IN_FLIGHT_ENTRIES, LOG_BYTES, MAJOR_SLOTS,
    OFF_ENTRIES, OFF_SUM_ENTRIES, PROCESS_ENTRIES, RM_ENTRIES, SLOW_CALLS_BYTES, UNLOADS_BYTES,
};
use warpgauge_ebpf::rm::{RmKey, RmSum};
use warpgauge_ebpf::schedule::{Off, OffKey, OffSum};

/// The kernel's own part of a hash element, and of a bucket.
const ELEMENT: u64 = 48;
const BUCKET: u64 = 16;
/// Positions and bookkeeping of a ring buffer.
const RING_PAGES: u64 = 3 * 4096;
const PAGE: u64 = 4096;

/// Entries, bytes of a key, bytes of a value.
type Hash = (u32, usize, usize);

const fn of<K, V>(entries: u32) -> Hash {
    (entries, size_of::<K>(), size_of::<V>())
}

/// All hashes of the object.
const HASHES: [Hash; 8] = [
    of::<InFlightKey, InFlight>(IN_FLIGHT_ENTRIES),
    of::<HistogramKey, Histogram>(HISTOGRAM_ENTRIES),
    of::<u32, KnownProcess>(PROCESS_ENTRIES),
    of::<RmKey, RmSum>(RM_ENTRIES),
    of::<HeldKey, Held>(HELD_ENTRIES),
    of::<u32, u64>(ARMED_ENTRIES),
    of::<u32, Off>(OFF_ENTRIES),
    of::<OffKey, OffSum>(OFF_SUM_ENTRIES),
];

/// Its ring buffers, and their bytes.
const RINGS: [u32; 4] = [SLOW_CALLS_BYTES, UNLOADS_BYTES, EVENTS_BYTES, LOG_BYTES];

/// Its arrays, and their bytes: losses, majors, kinds whose returns are sure, whether RM is read from blocks, an empty
/// histogram, values set at the load.
const ARRAYS: [u64; 6] =
    [LOSSES as u64 * 8, 4 * MAJOR_SLOTS as u64, 4, 4, size_of::<Histogram>() as u64, PAGE];

/// Bytes of all maps.
pub fn map_bytes(possible_cpus: u32) -> u64 {
    let hashes: u64 = HASHES.iter().map(|map| hash(*map, u64::from(possible_cpus))).sum();
    let rings: u64 = RINGS.iter().map(|bytes| u64::from(*bytes) + RING_PAGES).sum();
    let arrays: u64 = ARRAYS.iter().map(|bytes| bytes.next_multiple_of(PAGE)).sum();
    hashes + rings + arrays
}

/// A preallocated hash: it has one spare element per possible CPU, and a free list.
fn hash((entries, key, value): Hash, cpus: u64) -> u64 {
    let element = ELEMENT + (key as u64).next_multiple_of(8) + (value as u64).next_multiple_of(8);
    let entries = u64::from(entries);
    (entries + cpus) * element + entries.next_power_of_two() * BUCKET + cpus * 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maps_stay_small_on_the_largest_machines() {
        const MIB: u64 = 1 << 20;
        let largest = map_bytes(512);
        assert!(largest < 8 * MIB, "{largest}");
        // per CPU only the spare elements and the free lists
        let elements = [8 + 112, 24 + 176, 8 + 16, 24 + 16, 16 + 48, 8 + 8, 8 + 24, 8 + 24];
        let per_cpu: u64 = elements.iter().map(|element| 48 + element + 64).sum();
        assert_eq!(largest - map_bytes(0), 512 * per_cpu);
    }

    /// A map that is added to the object is one more line above.
    #[test]
    fn every_map_of_the_object_is_counted() {
        let lib = include_str!("../../../../agent-ebpf/src/kernel/maps.rs");
        let maps = |kind: &str| lib.matches(&format!(": {kind}")).count();
        assert_eq!(maps("HashMap<"), HASHES.len());
        // the log has a ring of its own, the values of the load an array
        assert_eq!(maps("RingBuf ="), RINGS.len() - 1);
        assert_eq!(maps("Array<"), ARRAYS.len() - 1);
    }
}
