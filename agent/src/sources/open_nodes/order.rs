//! Whom to look at again, by what the probes have seen.
//!
//! In: facts. Out: an order, for a process that opened or closed one of the driver's nodes, or runs another program.
//! Nothing can go wrong: an order that is lost is made good for by the next round over all processes.

use crate::model::{CallKind, Fact, Pid, Signal};

/// Look at this process again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The process.
    pub pid: Pid,
    /// Whatever was said of it before is forgotten elsewhere, too.
    pub anew: bool,
}

/// The order that a fact comes down to.
pub fn order(fact: &Fact) -> Option<Order> {
    match fact {
        Fact::Reading(Signal::CallStats { stats, .. }) => {
            let opens_or_closes = matches!(stats.kind, CallKind::Open | CallKind::Close);
            let succeeded = stats.latency.errors < stats.latency.count();
            (opens_or_closes && succeeded).then_some(Order { pid: stats.pid, anew: false })
        }
        Fact::Reading(Signal::Exec { pid, .. }) => Some(Order { pid: *pid, anew: true }),
        Fact::Reading(_) | Fact::Finding(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallStats, CgroupId, LatencyDelta, MonoNs};

    #[test]
    fn who_opens_closes_or_becomes_another_is_looked_at() {
        let stats = |kind, count: u32, errors: u64| {
            let mut latency = LatencyDelta { errors, ..LatencyDelta::default() };
            latency.slots[3] = count;
            let (pid, cgroup) = (Pid(7), CgroupId(1));
            let stats =
                CallStats { pid, cgroup, device: None, kind, function: None, op: 0, latency, last: false };
            Fact::Reading(Signal::CallStats { at: MonoNs(1), stats: Box::new(stats) })
        };
        let again = |anew| Some(Order { pid: Pid(7), anew });
        for (fact, want) in [
            (stats(CallKind::Open, 2, 1), again(false)),
            (stats(CallKind::Open, 2, 2), None),
            (stats(CallKind::Close, 1, 0), again(false)),
            (stats(CallKind::Ioctl, 5, 0), None),
            (stats(CallKind::Close, 0, 0), None),
            (Fact::Reading(Signal::Exec { at: MonoNs(1), pid: Pid(7) }), again(true)),
            (Fact::Reading(Signal::Exit { at: MonoNs(1), pid: Pid(7) }), None),
        ] {
            assert_eq!(order(&fact), want, "{fact:?}");
        }
    }
}
