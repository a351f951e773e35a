//! How soon a worker that ended is started again.
//!
//! In: starts and ends, with their times. Out: the earliest next start. Pure.
//! The first restart is immediate (a lone crash costs a second of data), then the wait doubles up to a minute; five
//! minutes of health begin anew. What can go wrong: nothing.

use std::time::Duration;

use crate::model::MonoNs;

/// Second wait; the first is none.
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A life of this length is a success.
const HEALTHY: Duration = Duration::from_secs(300);

/// The throttle.
#[derive(Debug, Default)]
pub struct Throttle {
    next_wait: Duration,
    started: Option<MonoNs>,
    not_before: MonoNs,
}

impl Throttle {
    /// A worker was started.
    pub fn started(&mut self, now: MonoNs) {
        self.started = Some(now);
    }

    /// It ended by itself or had to be ended: how long to wait.
    pub fn ended(&mut self, now: MonoNs) -> Duration {
        let lived = self.started.take().and_then(|started| now.since(started));
        if lived.is_some_and(|lived| lived >= HEALTHY) {
            self.next_wait = Duration::ZERO;
        }
        let wait = self.next_wait;
        self.next_wait = (wait * 2).clamp(WAIT, WAIT_MAX);
        self.not_before = now.after(wait);
        wait
    }

    /// Whether a worker that is exchanged for a new one now has lived for as long as the wait would be.
    pub fn may_replace(&self, now: MonoNs) -> bool {
        let lived = self.started.and_then(|started| now.since(started)).unwrap_or_default();
        lived >= self.next_wait.min(HEALTHY)
    }

    /// A worker was exchanged, after [`Self::may_replace`]: the next one starts at once, and has to live longer.
    pub fn replaced(&mut self, now: MonoNs) {
        self.ended(now);
        self.not_before = now;
    }

    /// What is left of the wait.
    pub fn wait(&self, now: MonoNs) -> Duration {
        self.not_before.since(now).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> MonoNs {
        MonoNs(s * 1_000_000_000)
    }

    #[test]
    fn a_crash_loop_slows_down_and_health_begins_anew() {
        let mut throttle = Throttle::default();
        let mut now = 0;
        let mut waits = Vec::new();
        for life in [0, 0, 0, 0, 0, 0, 0, 0, 0, 299, 300, 1] {
            throttle.started(s(now));
            now += life;
            let wait = throttle.ended(s(now)).as_secs();
            assert_eq!(throttle.wait(s(now)).as_secs(), wait);
            waits.push(wait);
            now += wait;
            assert_eq!(throttle.wait(s(now)), Duration::ZERO);
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 0, 1]);
    }

    #[test]
    fn a_leak_replaces_no_faster_than_a_crash_loop_would() {
        let mut throttle = Throttle::default();
        let mut replaced = Vec::new();
        throttle.started(s(0));
        for now in 0..200 {
            if throttle.may_replace(s(now)) {
                throttle.replaced(s(now));
                assert_eq!(throttle.wait(s(now)), Duration::ZERO, "without a gap");
                throttle.started(s(now));
                replaced.push(now);
            }
        }
        assert_eq!(replaced, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    }
}
