//! Fields that spoil one another: watched together every value is blank, each alone is fine.
//!
//! In: units whose reads were all blank twice. Out: a [`Step`]: split it, or put two halves together again. What can
//! go wrong: a unit is blank for another reason. Then no half gets better: they are put together again, and the next
//! try waits ten minutes, then twenty, up to an hour.
//!
//! A pair ends in different halves, which then both give values, or in the same half, and the other one does. So if
//! neither does there is no single pair to find, and the search ends after one split.

use std::time::Duration;

use super::engine::Dcgm;
use super::poll::Poll;
use crate::model::MonoNs;

/// All-blank reads in a row that make a suspect.
const READS: u32 = 2;
const FIRST_BACKOFF: Duration = Duration::from_secs(600);
const LONGEST_BACKOFF: Duration = Duration::from_secs(3_600);
/// Splits of one connection; each needs a field group more, of which an engine has about sixty.
const SPLITS_MAX: u32 = 24;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Watch each half of this unit's fields by itself.
    Split(usize),
    /// Watch these two together again: apart they are no better.
    Join(usize, usize),
    /// The halves of a pair are told apart: these two do not belong together.
    Settle(usize, usize),
    /// The other half is gone: nothing is looked for any more.
    Alone(usize),
}

/// The search of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conflicts {
    splits: u32,
    /// Pairs made so far; their numbers are never used again.
    pairs: u32,
    backoff: Option<Duration>,
}

impl Conflicts {
    /// The next step, if there is one.
    pub(super) fn next<D: Dcgm>(&self, polls: &[Poll<D>], now: MonoNs) -> Option<Step> {
        let suspect = |poll: &Poll<D>| poll.blank_reads >= READS;
        let good = |poll: &Poll<D>| poll.worked && poll.blank_reads == 0;
        for (a, poll) in polls.iter().enumerate() {
            let Some(pair) = poll.pair else { continue };
            let of_pair = |(b, other): &(usize, &Poll<D>)| *b != a && other.pair == Some(pair);
            let Some((b, other)) = polls.iter().enumerate().find(of_pair) else {
                return Some(Step::Alone(a));
            };
            if b < a {
                continue;
            }
            if suspect(poll) && suspect(other) {
                return Some(Step::Join(a, b));
            }
            let told = |poll| good(poll) || suspect(poll);
            if told(poll) && told(other) {
                return Some(Step::Settle(a, b));
            }
        }
        if self.splits >= SPLITS_MAX {
            return None;
        }
        polls
            .iter()
            .position(|poll| {
                suspect(poll)
                    && !poll.worked
                    && poll.pair.is_none()
                    && poll.profiling.is_none()
                    && poll.unit.fields.len() > 1
                    && poll.whole_until.is_none_or(|until| now >= until)
            })
            .map(Step::Split)
    }

    /// A number for a new pair of halves.
    pub(super) fn pair(&mut self) -> u32 {
        self.splits += 1;
        self.pairs += 1;
        self.pairs
    }

    /// Everything is watched anew; how long a search that found nothing waits stays known.
    pub(super) fn begin(&mut self) {
        self.splits = 0;
    }

    /// The search found nothing: how long the unit stays whole.
    pub(super) fn back_off(&mut self) -> Duration {
        // Nothing was gained by that split.
        self.splits = self.splits.saturating_sub(1);
        let wait = self.backoff.unwrap_or(FIRST_BACKOFF);
        self.backoff = Some(wait.saturating_mul(2).min(LONGEST_BACKOFF));
        wait
    }
}
