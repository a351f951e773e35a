//! Units of measured values, as types: what a number means cannot get lost on the way.
//!
//! In: raw integers from kernel maps, logs and counters. Out: values the exporters print in their unit.
//! Nothing can go wrong here but arithmetic at the edges, which saturates.

/// A number of latency slots; slot *i* is bucket *i* − 30 of an OTLP exponential histogram of scale 0, in seconds.
///
/// Source: the kernel program's rule (see `warpgauge_ebpf::histogram`). The last slot holds all from 512 s.
pub const SLOTS: usize = warpgauge_ebpf::histogram::SLOTS;

/// How often calls of each latency happened, and for how long in all, since the previous reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyDelta {
    /// Calls per slot. Unit: calls. Source: differences of the kernel map's wrapping 32-bit slots.
    pub slots: [u32; SLOTS],
    /// Sum of the durations. Unit: ns. Source: exact nanoseconds, not bucket bounds.
    pub sum_ns: u64,
    /// Calls that returned a negative value. Trap: NVIDIA's RM reports most failures with a return value of 0.
    pub errors: u64,
}

impl Default for LatencyDelta {
    fn default() -> Self {
        Self { slots: [0; SLOTS], sum_ns: 0, errors: 0 }
    }
}

impl LatencyDelta {
    /// Calls in all slots together.
    pub fn count(&self) -> u64 {
        self.slots.iter().map(|&n| u64::from(n)).sum()
    }
}
