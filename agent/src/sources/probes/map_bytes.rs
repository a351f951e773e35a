//! How much kernel memory the maps take: computed, since the kernel tells it only from 6.4 on.
//!
//! In: the sizes of the shared library and the number of possible CPUs. Out: bytes, charged to the agent's own pod.
//! What can go wrong: an element's overhead differs by a few bytes between kernels; this takes the largest seen.

use warpgauge_ebpf::calls::{InFlight, InFlightKey};
use warpgauge_ebpf::histogram::{Histogram, HistogramKey};
use warpgauge_ebpf::loss::LOSSES;
use warpgauge_ebpf::maps::{
    HISTOGRAM_ENTRIES, IN_FLIGHT_ENTRIES, LOG_BYTES, MAJOR_SLOTS, SLOW_CALLS_BYTES, UNLOADS_BYTES,
};

/// The kernel's own part of a hash element, and of a bucket.
const ELEMENT: u64 = 48;
const BUCKET: u64 = 16;
/// Positions and bookkeeping of a ring buffer.
const RING_PAGES: u64 = 3 * 4096;
const PAGE: u64 = 4096;

/// Bytes of all maps.
pub fn map_bytes(possible_cpus: u32) -> u64 {
    let cpus = u64::from(possible_cpus);
    let in_flight = hash(IN_FLIGHT_ENTRIES, size_of::<InFlightKey>(), size_of::<InFlight>(), cpus);
    let histograms = hash(HISTOGRAM_ENTRIES, size_of::<HistogramKey>(), size_of::<Histogram>(), cpus);
    let rings = [SLOW_CALLS_BYTES, UNLOADS_BYTES, LOG_BYTES]
        .map(|bytes| u64::from(bytes) + RING_PAGES)
        .iter()
        .sum::<u64>();
    let arrays = [u64::from(LOSSES) * 8, 4 * MAJOR_SLOTS as u64, size_of::<Histogram>() as u64, PAGE];
    in_flight + histograms + rings + arrays.map(|bytes| bytes.next_multiple_of(PAGE)).iter().sum::<u64>()
}

/// A preallocated hash: it has one spare element per possible CPU, and a free list.
fn hash(entries: u32, key: usize, value: usize, cpus: u64) -> u64 {
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
        assert!(largest < 5 * MIB, "{largest}");
        // per CPU only the spare elements and the free lists
        assert_eq!(largest - map_bytes(0), 512 * ((48 + 8 + 96) + (48 + 24 + 176) + 2 * 64));
    }
}
