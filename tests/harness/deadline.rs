//! Waiting for a condition, with a deadline.
//!
//! In: a condition. Out: what it gave. The only place in the tests where time passes.
//! What can go wrong: it does not come true in time; the test fails and says what it waited for.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How much longer deadlines are in a virtual machine (`cargo xtask vm-test`), whose processor is emulated.
const IN_VM: u64 = 4;

/// Waits until `condition` gives something.
///
/// # Panics
/// When it does not within `seconds` (in an emulated guest: within 4 times as many).
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn wait_for<T>(what: &str, seconds: u64, condition: impl FnMut() -> Option<T>) -> T {
    try_for(seconds, condition).unwrap_or_else(|| panic!("waited {} s for {what}", seconds * times()))
}

/// The same, with `None` instead of a failure.
pub fn try_for<T>(seconds: u64, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + Duration::from_secs(seconds * times());
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if end < Instant::now() {
            return None;
        }
        #[expect(clippy::disallowed_methods, reason = "this is the place that waits for a condition")]
        std::thread::sleep(LOOK_EVERY);
    }
}

fn times() -> u64 {
    if std::env::var_os("WARPGAUGE_VM").is_some() { IN_VM } else { 1 }
}
