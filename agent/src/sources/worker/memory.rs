//! The memory budget of the worker: a leak in a vendor's library costs a restart, not the node's memory.
//!
//! In: resident memory, and whether the throttle would allow an exchange. Out: a [`Verdict`]. Pure.
//! What can go wrong: a worker that needs more than its budget for good is exchanged once a minute, and is not there for
//! a part of it when it needs a quarter more; the counter of restarts tells.

/// What a worker may reach while it waits to be exchanged: the budget, and this part of it. The memory limit of the pod
/// has to hold it: `deploy/daemonset.yaml`.
const SURPLUS: u64 = 4;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the budget, or exchanged too recently.
    Keep,
    /// Above it: end this one in order and start a new one at once.
    Replace,
    /// A quarter above it, so that no wait is possible: end it, and start a new one when the throttle allows.
    End,
}

/// Judges `resident` bytes against `budget` bytes.
pub fn judge(resident: u64, budget: u64, may_replace: bool) -> Verdict {
    if resident <= budget {
        Verdict::Keep
    } else if may_replace {
        Verdict::Replace
    } else if resident > most(budget) {
        Verdict::End
    } else {
        Verdict::Keep
    }
}

/// Where no wait is possible, in bytes.
pub fn most(budget: u64) -> u64 {
    budget.saturating_add(budget / SURPLUS)
}

/// Whether `resident` bytes are so near to `budget` that they have to be looked at more often.
pub fn is_near(resident: u64, budget: u64) -> bool {
    resident > budget - budget / SURPLUS
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
            (200, false, Verdict::Keep),
            (201, false, Verdict::End),
            (u64::MAX, true, Verdict::Replace),
        ] {
            assert_eq!(judge(resident, 160, may), want, "{resident} {may}");
        }
        assert!(!is_near(120, 160) && is_near(121, 160) && is_near(u64::MAX, 160));
    }

    #[test]
    fn the_manifests_limit_holds_the_agent_and_the_largest_worker() {
        const MIB: u64 = 1024 * 1024;
        // The agent and the kernel's maps, as both are budgeted: 48 MiB and 48 MiB.
        let others = 96 * MIB;
        let manifest = include_str!("../../../../deploy/daemonset.yaml");
        let limits = manifest.split("limits:").nth(1).unwrap();
        let limit = limits.lines().find_map(|line| line.trim().strip_prefix("memory: ")).unwrap();
        let limit = limit.strip_suffix("Mi").unwrap().parse::<u64>().unwrap() * MIB;
        let worker = most(crate::config::Config::default().worker.memory_limit);
        assert!(others + worker + 64 * MIB <= limit, "with room for a second's growth and the page cache");
    }
}
