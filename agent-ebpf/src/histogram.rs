//! Latency histograms: key, value, and the one rule that says which slot a duration falls into.
//!
//! In: a duration in nanoseconds. Out: a slot; slot *i* is bucket *i* − 30 of an OTLP exponential histogram of scale 0
//! in seconds, so it holds (2^(i−30), 2^(i−29)] s. The last slot holds everything from 512 s.
//! What can go wrong: slots are 32 bits and wrap; readers take differences. Nothing else, the rule is total.

/// Number of slots.
pub const SLOTS: usize = 40;

/// What calls are counted by.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistogramKey {
    /// Cgroup of the chosen hierarchy at entry; 0 where it could not be read.
    pub cgroup: u64,
    /// Process.
    pub tgid: u32,
    /// Device number in the kernel's form; 0 for an open that failed.
    pub dev: u32,
    /// The ioctl command, all 32 bits; 0 for other calls.
    pub op: u32,
    /// One of [`kind`](crate::calls::kind).
    pub kind: u32,
}

/// Finished calls of one key. Shared by all CPUs and changed by atomic adds only.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Sum of the durations. Unit: ns.
    pub sum_ns: u64,
    /// Calls that returned a negative value.
    pub errors: u64,
    /// Calls by latency.
    pub slots: [u32; SLOTS],
}

impl Histogram {
    /// Nothing counted yet.
    pub const EMPTY: Self = Self { sum_ns: 0, errors: 0, slots: [0; SLOTS] };
}

const _: () = assert!(size_of::<HistogramKey>() == 24);
const _: () = assert!(size_of::<Histogram>() == 176);

/// Durations are cut here (39 hours), so that the product below stays within 64 bits.
const LONGEST_NS: u64 = 1 << 47;

/// The slot of a duration.
///
/// Durations are turned into units of 2^-30 s by 1 + 77323 / 2^20, which is 2^30 / 10^9 less 0.87 · 10^-6. The result
/// is short by at most 0.81 millionths and one unit, never long: only a duration that lies above a boundary by less
/// than that counts as lying on it. Sums use the exact nanoseconds.
#[inline(always)]
pub const fn slot(dur_ns: u64) -> u32 {
    let dur = if dur_ns > LONGEST_NS { LONGEST_NS } else { dur_ns };
    slot_of_units(dur + ((dur * 77323) >> 20))
}

/// The slot of a duration in units of 2^-30 s. Upper bounds are inclusive: 2^k belongs to the bucket that ends there.
#[inline(always)]
const fn slot_of_units(units: u64) -> u32 {
    if units <= 1 {
        return 0;
    }
    let log = floor_log2(units - 1);
    if log >= SLOTS as u32 { SLOTS as u32 - 1 } else { log }
}

/// By branches: the oldest BPF instruction set cannot count leading zeros. `v` must not be 0.
#[inline(always)]
const fn floor_log2(mut v: u64) -> u32 {
    let mut log = 0;
    if v >= 1 << 32 {
        v >>= 32;
        log += 32;
    }
    if v >= 1 << 16 {
        v >>= 16;
        log += 16;
    }
    if v >= 1 << 8 {
        v >>= 8;
        log += 8;
    }
    if v >= 1 << 4 {
        v >>= 4;
        log += 4;
    }
    if v >= 1 << 2 {
        v >>= 2;
        log += 2;
    }
    if v >= 1 << 1 {
        log += 1;
    }
    log
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    /// The rule without any approximation: the smallest i with dur ≤ 2^(i-29) s.
    fn exact(dur_ns: u64) -> u32 {
        let scaled = u128::from(dur_ns) << 30;
        (0..39).find(|&i| scaled <= 1_000_000_000u128 << (i + 1)).unwrap_or(39)
    }

    #[test]
    fn boundaries_belong_to_the_bucket_below() {
        assert_eq!([0, 1, 2, 3].map(slot_of_units), [0, 0, 0, 1]);
        for k in 2..48u32 {
            let bound = 1u64 << k;
            assert_eq!(slot_of_units(bound - 1), (k - 1).min(39), "2^{k} - 1");
            assert_eq!(slot_of_units(bound), (k - 1).min(39), "2^{k}");
            assert_eq!(slot_of_units(bound + 1), k.min(39), "2^{k} + 1");
        }
    }

    #[test]
    fn known_durations() {
        for (dur, want) in [
            (0, 0),
            (1, 0),
            (2, 0),
            (1_000, 10),         // 1.07 µs units: (2^10, 2^11] · 2^-30 s
            (1_000_000, 20),     // (0.98, 1.95] ms
            (250_000_000, 27),   // (125, 250] ms
            (1_000_000_000, 29), // exactly 1 s is the top of (0.5, 1] s
            (1_000_001_000, 30),
            (512_000_000_000, 38), // exactly 512 s is the top of the last but one
            (512_001_000_000, 39),
            (1 << 47, 39),
            (u64::MAX, 39),
        ] {
            assert_eq!(slot(dur), want, "{dur} ns");
        }
    }

    #[test]
    fn the_approximation_is_never_long_and_short_by_less_than_a_millionth() {
        let mut durations: Vec<u64> = (0..70_000).collect();
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..200_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            durations.push((random >> 17) >> (random % 47));
        }
        for k in 0..47 {
            let near = ((1_000_000_000u128 << k) >> 30) as u64;
            durations.extend(near.saturating_sub(200)..near + 200);
        }
        for dur in durations.into_iter().filter(|d| *d <= LONGEST_NS) {
            let (got, want) = (slot(dur), exact(dur));
            if got != want {
                assert_eq!(got + 1, want, "{dur} ns: only ever one slot low");
                // 2 ns: one unit of rounding, and whole nanoseconds
                let shorter = dur - dur / 1_000_000 - 2;
                assert_eq!(exact(shorter), got, "{dur} ns lies more than a millionth above the boundary");
            }
        }
    }

    #[test]
    fn slots_never_fall() {
        let mut last = 0;
        for dur in (0..48).flat_map(|k| [(1u64 << k) - 1, 1 << k, (1 << k) + 1]) {
            assert!(slot(dur) >= last, "{dur}");
            last = slot(dur);
        }
        assert_eq!(last, 39);
    }
}
