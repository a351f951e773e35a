//! Events (XIDs) that an earlier worker told already.
//!
//! In: a device, an event's number and the engine's own time of it. Out: whether it is news. Pure.
//! A new worker asks the engine for everything it still has, and an embedded engine reads the kernel log anew: what
//! comes again must not count again, nor may something be left out because it is older than the latest.
//! What can go wrong: more events than are kept; then those before the oldest that is kept are no news.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Events that are remembered of each device: a burst of one a second for some minutes.
const EVENTS_MAX: usize = 512;
/// Devices that have had events.
const DEVICES_MAX: usize = 512;
/// XIDs that an engine has twice: from NVML and from the kernel log. Source: measured, and the engine's default list.
const TWO_WAYS: [i64; 3] = [79, 119, 120];
/// Both of them lie within this; so does what the kernel log's clock differs by from one engine to the next.
const TWICE_US: i64 = 1_500_000;

/// What was told.
#[derive(Debug, Default)]
pub struct Events(BTreeMap<Arc<str>, Told>);

#[derive(Debug)]
struct Told {
    events: BTreeSet<(i64, i64)>,
    /// Nothing up to here is news. Unit: µs since 1970.
    floor: i64,
}

impl Events {
    /// Whether an event is news; if so, it is remembered. `at_us`: the engine's time, µs since 1970.
    pub fn is_news(&mut self, hw_id: &Arc<str>, number: i64, at_us: i64) -> bool {
        if self.0.len() >= DEVICES_MAX && !self.0.contains_key(hw_id) {
            return true; // better twice than never
        }
        let told = self.0.entry(Arc::clone(hw_id));
        let told = told.or_insert_with(|| Told { events: BTreeSet::new(), floor: i64::MIN });
        let window = if TWO_WAYS.contains(&number) { TWICE_US } else { 0 };
        let near = (at_us.saturating_sub(window), i64::MIN)..=(at_us.saturating_add(window), i64::MAX);
        if at_us <= told.floor || told.events.range(near).any(|(_, known)| *known == number) {
            return false;
        }
        told.events.insert((at_us, number));
        if told.events.len() > EVENTS_MAX
            && let Some((oldest, _)) = told.events.pop_first()
        {
            told.floor = oldest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_worker_told_is_no_news() {
        let mut events = Events::default();
        let (a, b): (Arc<str>, Arc<str>) = ("GPU-1".into(), "GPU-2".into());
        const S: i64 = 1_000_000;
        for (hw_id, number, at_us, news) in [
            (&a, 31, 10 * S, true),
            (&a, 31, 10 * S, false),
            (&a, 31, 10 * S + 1, true),
            (&b, 31, 10 * S, true),
            (&a, 43, 10 * S, true),
            (&a, 79, 21 * S, true),
            (&a, 79, 20 * S, false), // the kernel log's, which the new engine found first
            (&a, 79, 18 * S, true),  // another fault, told late
            (&a, 31, 3 * S, true),   // older than the latest, and not told yet
        ] {
            assert_eq!(events.is_news(hw_id, number, at_us), news, "{hw_id} {number} {at_us}");
        }
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_does_not_come_again() {
        let mut events = Events::default();
        let id: Arc<str> = "GPU-1".into();
        let most = EVENTS_MAX as i64;
        assert!((1..=most + 10).all(|at| events.is_news(&id, 31, at)));
        assert_eq!(events.0["GPU-1"].events.len(), EVENTS_MAX);
        assert!((1..=most + 10).all(|at| !events.is_news(&id, 31, at)));
        assert!((0..DEVICES_MAX).all(|n| events.is_news(&format!("GPU-x{n}").into(), 31, 1)));
        assert_eq!(events.0.len(), DEVICES_MAX);
    }
}
