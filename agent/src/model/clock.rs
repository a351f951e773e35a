//! The clocks signals are timed by, as types, and the conversions between them.
//!
//! In: readings of the kernel's clocks. Out: [`MonoNs`] for everything inside the pipeline, [`WallNs`] on the wire.
//! What can go wrong: sources are not ordered among themselves, so a difference may be negative; it is `None` then.

use std::time::Duration;

/// Nanoseconds on CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns`. Not comparable across boots or hosts.
///
/// Trap: it stands still while the machine is suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// Time from `earlier` to `self`; `None` when `earlier` is in fact later.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// This moment moved forward by `by`, saturating at the end of the clock.
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(by)))
    }

    /// This moment moved back by `by`, saturating at boot.
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(by)))
    }

    /// Seconds since boot, rounded to milliseconds: the `t` of a replay file.
    pub fn replay_seconds(self) -> f64 {
        let ms = self.0.saturating_add(500_000) / 1_000_000;
        ms as f64 / 1e3
    }

    /// The inverse of [`Self::replay_seconds`]; `None` for a time before 0, above 2^53 ns or not a number.
    pub fn from_replay_seconds(t: f64) -> Option<Self> {
        const LARGEST: f64 = 9_007_199_254_740_992.0;
        let ns = (t * 1e9).round();
        (0.0..=LARGEST).contains(&ns).then_some(Self(ns as u64))
    }
}

/// Microseconds on the kernel log's own clock (`local_clock`), as /dev/kmsg prints them.
///
/// Trap: it starts near 0 at boot like CLOCK_MONOTONIC but drifts away from it by up to seconds a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KmsgUs(pub u64);

/// Nanoseconds since 1970-01-01 UTC (CLOCK_REALTIME), OTLP's `time_unix_nano`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallNs(pub u64);

/// One simultaneous reading of both clocks; turns monotonic times into wall times.
///
/// The wall clock may be stepped: an anchor is taken again for each export, so that a step moves later points only.
#[derive(Clone, Copy, Debug)]
pub struct WallAnchor {
    /// The monotonic reading.
    pub mono: MonoNs,
    /// The wall reading taken at the same time.
    pub wall: WallNs,
}

impl WallAnchor {
    /// The wall time of a monotonic time, before or after the anchor; saturates at 1970.
    pub fn wall(&self, at: MonoNs) -> WallNs {
        let shifted = i128::from(self.wall.0) + i128::from(at.0) - i128::from(self.mono.0);
        WallNs(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }
}

/// The kernel-log clock's offset to CLOCK_MONOTONIC, estimated from records read the moment they were written.
///
/// Each live record gives an upper bound of the offset (read time minus its stamp). The least of them is the best
/// estimate, but the clocks drift apart: how far it may rise again depends on the time since the last live record.
/// Before the first live record the two clocks are taken as equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct KmsgOffset {
    /// The offset in nanoseconds, and when it was last learnt.
    known: Option<(i64, MonoNs)>,
}

impl KmsgOffset {
    /// Rise that is followed at any time: no more than the delay of an ordinary read.
    const FOLLOW_NS: u64 = 100_000;
    /// Drift that is followed per time, 500 ppm: as fast as the kernel lets CLOCK_MONOTONIC be slewed.
    const DRIFT_PER: u64 = 2_000;

    /// Learns from a record read at `now` without waiting in the buffer.
    pub fn observe(&mut self, stamp: KmsgUs, now: MonoNs) {
        let seen = signed_ns(now.0).saturating_sub(signed_ns(stamp.0.saturating_mul(1_000)));
        let offset = self.known.map_or(seen, |(known, at)| {
            let rise = now.0.saturating_sub(at.0) / Self::DRIFT_PER + Self::FOLLOW_NS;
            seen.min(known.saturating_add(signed_ns(rise)))
        });
        self.known = Some((offset, now));
    }

    /// The monotonic time of a stamp; saturates at boot. May lie ahead of now, as long as no live record was seen.
    pub fn mono(&self, stamp: KmsgUs) -> MonoNs {
        let stamp_ns = stamp.0.saturating_mul(1_000);
        MonoNs(stamp_ns.saturating_add_signed(self.known.map_or(0, |(offset, _)| offset)))
    }
}

fn saturating_nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn signed_ns(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_unordered_times_is_none() {
        assert_eq!(MonoNs(5).since(MonoNs(7)), None);
        assert_eq!(MonoNs(7).since(MonoNs(5)), Some(Duration::from_nanos(2)));
    }

    #[test]
    fn replay_seconds_survive_the_round_trip_to_a_millisecond() {
        for t in [0.0, 0.001, 20.2, 86_400.123] {
            assert_eq!(MonoNs::from_replay_seconds(t).map(MonoNs::replay_seconds), Some(t));
        }
        for t in [-0.1, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(MonoNs::from_replay_seconds(t), None);
        }
    }

    #[test]
    fn wall_times_lie_on_both_sides_of_the_anchor() {
        let anchor = WallAnchor { mono: MonoNs(1_000), wall: WallNs(50_000) };
        assert_eq!(anchor.wall(MonoNs(0)), WallNs(49_000));
        assert_eq!(anchor.wall(MonoNs(2_000)), WallNs(51_000));
        assert_eq!(WallAnchor { mono: MonoNs(9), wall: WallNs(1) }.wall(MonoNs(0)), WallNs(0));
    }

    #[test]
    fn the_least_delay_gives_the_kmsg_offset() {
        let mut offset = KmsgOffset::default();
        assert_eq!(offset.mono(KmsgUs(10)), MonoNs(10_000), "equal clocks until a live record is seen");
        offset.observe(KmsgUs(1_000), MonoNs(3_000_000)); // 2 ms
        offset.observe(KmsgUs(2_000), MonoNs(9_000_000)); // 7 ms: read late
        assert_eq!(offset.mono(KmsgUs(1_000)), MonoNs(3_103_000), "100 µs, and 3 µs for 6 ms");
        offset.observe(KmsgUs(3_000), MonoNs(4_000_000)); // 1 ms
        assert_eq!(offset.mono(KmsgUs(3_000)), MonoNs(4_000_000));
        offset.observe(KmsgUs(9_000), MonoNs(2_000_000)); // the log's clock is ahead by 7 ms
        assert_eq!(offset.mono(KmsgUs(9_000)), MonoNs(2_000_000));
    }

    #[test]
    fn drift_is_followed_by_the_time_that_passed_not_by_the_number_of_records() {
        const DAY_US: u64 = 86_400_000_000;
        let after_a_day = |drift_us: u64| {
            let mut offset = KmsgOffset::default();
            offset.observe(KmsgUs(1_000_000), MonoNs(1_000_000_000)); // 0
            let now = MonoNs((1_000_000 + DAY_US + drift_us) * 1_000);
            offset.observe(KmsgUs(1_000_000 + DAY_US), now);
            now.0.saturating_sub(offset.mono(KmsgUs(1_000_000 + DAY_US)).0)
        };
        assert_eq!(after_a_day(2_000_000), 0, "2 s are less than 500 ppm of a day: followed at once");
        let allowed = (DAY_US + 60_000_000) / 2_000 + 100;
        assert_eq!(after_a_day(60_000_000), (60_000_000 - allowed) * 1_000, "a minute is not drift alone");

        let mut offset = KmsgOffset::default();
        for n in 0..1_000 {
            offset.observe(KmsgUs(n), MonoNs(n * 1_000)); // 1 ms of records, all read at once
        }
        offset.observe(KmsgUs(1_000), MonoNs(5_000_000_000)); // the reader was held up for 5 s
        assert_eq!(offset.mono(KmsgUs(1_000)), MonoNs(1_000_000 + 100_000 + 4_999_001_000 / 2_000));
    }
}
