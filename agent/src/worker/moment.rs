//! One reading of the two clocks that a sample needs.
//!
//! In: the kernel's clocks. Out: a [`Moment`]. What can go wrong: the wall clock is stepped; ages are off by the step
//! until the engine has taken the next sample.

use rustix::time::{ClockId, clock_gettime};

use crate::model::MonoNs;

/// Now, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// CLOCK_MONOTONIC, which the agent shares.
    pub mono: MonoNs,
    /// Microseconds since 1970: the clock of DCGM's and NVML's samples.
    pub wall_us: i64,
}

impl Moment {
    /// Reads both clocks.
    pub fn now() -> Self {
        let ns = |clock| {
            let t = clock_gettime(clock);
            t.tv_sec.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec)
        };
        let mono = u64::try_from(ns(ClockId::Monotonic)).unwrap_or(0);
        Self { mono: MonoNs(mono), wall_us: ns(ClockId::Realtime) / 1_000 }
    }

    /// How long ago a sample was taken. Unit: ns; negative where its clock is ahead.
    pub fn age_ns(self, taken_us: i64) -> i64 {
        self.wall_us.saturating_sub(taken_us).saturating_mul(1_000)
    }
}
