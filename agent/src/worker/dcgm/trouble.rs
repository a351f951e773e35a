//! What is refused again and again: tried again less and less often, and told once.
//!
//! In: refusals and successes of one service. Out: when to watch it anew. What can go wrong: nothing.

use std::time::Duration;

use super::engine::ReturnCode;
use super::state;
use crate::model::MonoNs;
use crate::worker::link::Link;

/// Before the second try, the third, and each one after it.
const WAITS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(300)];

/// How long to wait after so many tries in a row.
pub(super) fn wait(tries: u32) -> Duration {
    let [.., longest] = WAITS;
    usize::try_from(tries).ok().and_then(|tries| WAITS.get(tries)).copied().unwrap_or(longest)
}

/// The trouble of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Trouble {
    tries: u32,
    again: MonoNs,
    told: Option<ReturnCode>,
}

impl Trouble {
    /// It works.
    pub(super) fn over(&mut self) {
        *self = Self::default();
    }

    /// A call was refused; answers whether it is time to watch anew. A refusal that one new watch does not mend is told.
    pub(super) fn met(&mut self, call: &str, code: ReturnCode, link: &Link, now: MonoNs) -> bool {
        let is_lasting = self.tries > 0 || !is_of_another_engine(code);
        if is_lasting && self.told != Some(code) {
            self.told = Some(code);
            link.send(state::refused(call, code));
        }
        if now < self.again {
            return false;
        }
        self.again = now.after(wait(self.tries));
        self.tries = self.tries.saturating_add(1);
        true
    }

    /// It is time to try again what could not be watched at all.
    pub(super) fn is_due(&self, now: MonoNs) -> bool {
        self.tries > 0 && now >= self.again
    }
}

/// The group or field group means nothing (or something else) to this engine.
pub(super) fn is_of_another_engine(code: ReturnCode) -> bool {
    matches!(
        code,
        ReturnCode::NOT_WATCHED | ReturnCode::BAD_PARAM | ReturnCode::NO_DATA | ReturnCode::NOT_CONFIGURED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_further_and_further_apart_and_told_once() {
        let (link, out) = Link::for_tests();
        let mut trouble = Trouble::default();
        let at = |second: u64| MonoNs((100 + second) * 1_000_000_000);
        let mut met = |second| {
            trouble.met("dcgmHealthCheck", ReturnCode::BAD_PARAM, &link, at(second)).then_some(second)
        };
        let anew: Vec<u64> = (0..1_000).filter_map(&mut met).collect();
        assert_eq!(anew, [0, 1, 11, 311, 611, 911]);
        assert_eq!(out.try_iter().count(), 1);
        trouble.over();
        assert!(!trouble.is_due(at(2_000)));
    }
}
