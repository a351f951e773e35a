//! Pods and containers whose names are not known: when to ask for them again, and how many never came.
//!
//! In: each workload without a name, whenever it is met. Out: whether to ask now; counts of `warpgauge.mapping.failures`
//! of the stage `names`, once a workload: after 10 s without an answer, since a name may be some moments late.
//! What can go wrong: ever new workloads; the oldest is forgotten, and counts once more when it is met again.

use std::time::Duration;

use super::bounded::Bounded;
use super::pod_names::{ContainerId, PodNames, PodUid};
use crate::model::MonoNs;
use crate::telemetry::{Counter, Telemetry};

/// A pod, or a container in it.
pub type Who = (PodUid, Option<ContainerId>);

/// Workloads without names.
#[derive(Debug)]
pub struct Unnamed {
    all: Bounded<Who, Missing>,
    no_log_link: Counter,
    unreadable: Counter,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    since: MonoNs,
    asked: MonoNs,
    counted: bool,
}

impl Unnamed {
    /// Workloads watched.
    pub const MOST: usize = 1_024;
    /// A name that is not there after this long does not come.
    const LATE: Duration = Duration::from_secs(10);
    /// What nobody asks for any more is over.
    const QUIET: Duration = Duration::from_secs(600);
    /// The time between two questions, at first and then.
    const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

    /// Nobody lacks a name; failures are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let counter = |reason| {
            telemetry.counter("warpgauge.mapping.failures", &[("stage", "names"), ("reason", reason)])
        };
        let (no_log_link, unreadable) = (counter("no_log_link"), counter("unreadable"));
        Self { all: Bounded::new(Self::MOST), no_log_link, unreadable }
    }

    /// Whether to ask for a workload that lacks a name.
    pub fn due(&mut self, who: Who, now: MonoNs) -> bool {
        let age = |since: MonoNs| now.since(since).unwrap_or_default();
        let mut missing = Missing { since: now, asked: now, counted: false };
        if let Some(known) = self.all.get(who) {
            let waited = known.asked.since(known.since).unwrap_or_default();
            let again = if waited < Self::LATE { Self::AGAIN.0 } else { Self::AGAIN.1 };
            if age(known.asked) < again {
                return false;
            }
            missing = Missing { asked: now, ..*known };
        }
        self.all.insert(who, missing);
        true
    }

    /// Forgets those whose names are known now, and those nobody has asked for lately.
    pub fn tidy(&mut self, now: MonoNs, names: &PodNames) {
        let lately = |asked| now.since(asked).is_none_or(|age| age < Self::QUIET);
        self.all.retain(|who, missing| !names.has(who) && lately(missing.asked));
    }

    /// It was asked for in vain; `readable`: where the names should be could be read.
    pub fn in_vain(&mut self, who: Who, now: MonoNs, readable: bool) {
        let Some(known) = self.all.get(who).copied() else { return };
        if !known.counted && now.since(known.since).is_some_and(|age| Self::LATE <= age) {
            if readable { &self.no_log_link } else { &self.unreadable }.add(1);
            self.all.insert(who, Missing { counted: true, ..known });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_asked_for_often_at_first_and_counts_once() {
        let telemetry = Telemetry::default();
        let mut unnamed = Unnamed::new(&telemetry);
        let who = |n: u32| (PodUid::parse(&format!("{n:032x}")).unwrap(), None);
        let count = |reason| {
            let attributes = [("stage", "names"), ("reason", reason)];
            telemetry.counter("warpgauge.mapping.failures", &attributes).get()
        };
        let (mut asked, mut counts) = (Vec::new(), Vec::new());
        for tenth in 10..350 {
            let now = MonoNs(tenth * 100_000_000);
            if unnamed.due(who(1), now) {
                unnamed.in_vain(who(1), now, true);
                asked.push(tenth);
                counts.push(count("no_log_link"));
            }
        }
        assert_eq!(asked, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 210, 310]);
        assert_eq!(counts, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
        for second in [40, 60] {
            let now = MonoNs(second * 1_000_000_000);
            assert!(unnamed.due(who(2), now));
            unnamed.in_vain(who(2), now, false);
        }
        assert_eq!((count("no_log_link"), count("unreadable")), (1, 1));
        let mut left = |second: u64| {
            unnamed.tidy(MonoNs(second * 1_000_000_000), &PodNames::default());
            unnamed.all.iter().map(|(who, _)| who).collect::<Vec<_>>()
        };
        assert_eq!((left(630).len(), left(640), left(660)), (2, vec![who(2)], vec![]));
    }
}
