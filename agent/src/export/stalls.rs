//! The books of stalls: how many are open, how many there were, and how much time they took.
//!
//! In: begin, update and end of each stall. Out: what to add to which cause.
//! Booked time never moves: an update books what came since the one before, to the cause of its own moment.
//! What can go wrong: an end without a begin, which is booked as a whole; too many open ones, which are not followed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::whose::Whose;
use crate::model::{Cause, Stall, StallState};

/// More open stalls than this are counted, but their updates are booked only at their end.
const MOST_OPEN: usize = 10_000;

/// Stalls that are going on.
#[derive(Debug, Default)]
pub struct Stalls {
    open: HashMap<String, Open>,
}

/// The owner is that of the begin: what a process is called may be lost when it dies, and the books must balance.
#[derive(Debug)]
struct Open {
    whose: Arc<Whose>,
    cause: Cause,
    booked: Duration,
}

/// What one message of a stall changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose stall it is.
    pub whose: Arc<Whose>,
    /// A stall of this cause began.
    pub began: Option<Cause>,
    /// This many more (or fewer) are active, by cause.
    pub active: Vec<(Cause, i64)>,
    /// Time to book to the cause.
    pub time: Option<(Cause, Duration)>,
}

impl Stalls {
    /// Books one message of the stall `id`, whose victim belongs to `whose`.
    pub fn book(&mut self, id: &str, stall: &Stall, whose: Arc<Whose>) -> Entry {
        let over = matches!(stall.state, StallState::End | StallState::Unobserved);
        match self.open.remove(id) {
            Some(mut open) => {
                let mut active = Vec::new();
                if over {
                    active.push((open.cause, -1));
                } else if open.cause != stall.cause {
                    active.extend([(open.cause, -1), (stall.cause, 1)]);
                }
                let time = stall.duration.saturating_sub(open.booked);
                let booked = over || stall.state == StallState::Update;
                let whose = Arc::clone(&open.whose);
                if !over {
                    open.cause = stall.cause;
                    open.booked = if booked { open.booked.max(stall.duration) } else { open.booked };
                    self.open.insert(id.to_owned(), open);
                }
                Entry { whose, began: None, active, time: booked.then_some((stall.cause, time)) }
            }
            None if over => {
                let (began, time) = (Some(stall.cause), Some((stall.cause, stall.duration)));
                Entry { whose, began, active: Vec::new(), time }
            }
            None if self.open.len() >= MOST_OPEN => {
                Entry { whose, began: None, active: Vec::new(), time: None }
            }
            None => {
                let open = Open { whose: Arc::clone(&whose), cause: stall.cause, booked: Duration::ZERO };
                self.open.insert(id.to_owned(), open);
                let active = vec![(stall.cause, 1)];
                Entry { whose, began: Some(stall.cause), active, time: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Confidence, MonoNs};

    fn stall(state: StallState, seconds: u64) -> Stall {
        Stall {
            state,
            begin: MonoNs(0),
            duration: Duration::from_secs(seconds),
            cause: Cause::DriverCall,
            confidence: Confidence::High,
            hw_id: None,
            device_by: None,
            call: None,
            victims: Vec::new(),
            lock: None,
            holder: None,
            evidence: Vec::new(),
        }
    }

    #[test]
    fn time_is_booked_at_updates_and_at_the_end_and_adds_up_to_the_whole_length() {
        let (mut stalls, whose) = (Stalls::default(), Arc::new(Whose::default()));
        let mut booked = Vec::new();
        for (state, seconds, began, active) in [
            (StallState::Begin, 1, true, 1),
            (StallState::Update, 60, false, 0),
            (StallState::Update, 120, false, 0),
            (StallState::End, 131, false, -1),
        ] {
            let entry = stalls.book("a", &stall(state, seconds), Arc::clone(&whose));
            assert_eq!(entry.began.is_some(), began, "{state:?}");
            assert_eq!(entry.active.iter().map(|(_, n)| n).sum::<i64>(), active, "{state:?}");
            booked.extend(entry.time.map(|(_, time)| time.as_secs()));
        }
        assert_eq!(booked, vec![60, 60, 11]);
        assert!(stalls.open.is_empty());
    }

    #[test]
    fn an_end_without_a_begin_is_booked_as_a_whole() {
        let entry = Stalls::default().book("a", &stall(StallState::Unobserved, 7), Arc::default());
        assert_eq!(entry.began, Some(Cause::DriverCall));
        assert_eq!(entry.time, Some((Cause::DriverCall, Duration::from_secs(7))));
        assert_eq!(entry.active, vec![]);
    }

    #[test]
    fn the_owner_at_the_begin_stays_the_owner() {
        let mut stalls = Stalls::default();
        let owner = Arc::new(Whose { pod_uid: Some("p".into()), ..Whose::default() });
        stalls.book("a", &stall(StallState::Begin, 1), Arc::clone(&owner));
        assert_eq!(stalls.book("a", &stall(StallState::End, 2), Arc::default()).whose, owner);
    }
}
