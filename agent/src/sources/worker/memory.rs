//! The memory budget of the worker: a leak in a vendor's library costs a restart, not the node's memory.
//!
//! In: resident memory, and whether the throttle would allow an exchange. Out: a [`Verdict`]. Pure.
//! What can go wrong: a worker that needs more than its budget for good is exchanged once a minute; the counter of
//! restarts tells.

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the budget, or exchanged too recently.
    Keep,
    /// Above it: end this one in order and start a new one at once.
    Replace,
    /// So far above it that no wait is possible: end it, and start a new one when the throttle allows.
    End,
}

/// Judges `resident` bytes against `budget` bytes.
pub fn judge(resident: u64, budget: u64, may_replace: bool) -> Verdict {
    if resident <= budget {
        Verdict::Keep
    } else if may_replace {
        Verdict::Replace
    } else if resident / 2 > budget {
        Verdict::End
    } else {
        Verdict::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_budget_it_goes_when_it_may_and_far_above_in_any_case() {
        for (resident, may, want) in [
            (160, true, Verdict::Keep),
            (161, true, Verdict::Replace),
            (161, false, Verdict::Keep),
            (321, false, Verdict::Keep),
            (322, false, Verdict::End),
            (u64::MAX, true, Verdict::Replace),
        ] {
            assert_eq!(judge(resident, 160, may), want, "{resident} {may}");
        }
    }
}
