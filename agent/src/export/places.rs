//! How many series there may be, and of whom: no single workload takes the places of all others.
//!
//! In: a metric's name, and the workload that wants one more series of it. Out: a place, or a [`Refusal`].
//! A workload may hold up to a third of what is free, so alone a quarter of a limit and less the more others hold; and
//! always the few that any workload has. Nothing can go wrong.

use std::collections::HashMap;
use std::sync::Arc;

use super::series::Limits;
use super::whose::Whose;

/// Series of one metric that a workload may hold while there is room, and of all metrics together.
const FEW: Limits = Limits { per_metric: 16, total: 64 };
/// Of what is free a workload may hold this part.
const PART: usize = 3;
/// Of a limit this part is for what is no workload's.
const NODES_OWN: usize = 16;

/// Who holds how many series.
#[derive(Debug)]
pub struct Places {
    limits: Limits,
    total: usize,
    metrics: HashMap<&'static str, usize>,
    owners: HashMap<Arc<Whose>, Owner>,
}

#[derive(Debug, Default)]
struct Owner {
    total: usize,
    metrics: HashMap<&'static str, usize>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// All are taken.
    Limit,
    /// The workload has its share.
    OwnerLimit,
}

impl Refusal {
    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::OwnerLimit => "owner_limit",
        }
    }
}

impl Places {
    /// All are free.
    pub fn new(limits: Limits) -> Self {
        Self { limits, total: 0, metrics: HashMap::new(), owners: HashMap::new() }
    }

    /// A place for one more series.
    ///
    /// # Errors
    /// [`Refusal`], where there is none.
    pub fn take(&mut self, metric: &'static str, owner: Option<&Arc<Whose>>) -> Result<(), Refusal> {
        let held = self.metrics.get(metric).copied().unwrap_or_default();
        let free = self.limits.per_metric.saturating_sub(held);
        let free_of_all = self.limits.total.saturating_sub(self.total);
        // the node's own always have some left: they are few, and an XID comes when it is busiest
        let kept = |limit: usize| if owner.is_some() { limit / NODES_OWN } else { 0 };
        if free <= kept(self.limits.per_metric) || free_of_all <= kept(self.limits.total) {
            return Err(Refusal::Limit);
        }
        if let Some(owner) = owner {
            let (own, own_of_all) = self.owners.get(owner).map_or((0, 0), |of| (of.of(metric), of.total));
            let may = |own: usize, few: usize, free: usize| own < few || own.saturating_mul(PART) < free;
            if !may(own, FEW.per_metric, free) || !may(own_of_all, FEW.total, free_of_all) {
                return Err(Refusal::OwnerLimit);
            }
            let of = self.owners.entry(Arc::clone(owner)).or_default();
            of.total += 1;
            *of.metrics.entry(metric).or_default() += 1;
        }
        self.total += 1;
        *self.metrics.entry(metric).or_default() += 1;
        Ok(())
    }

    /// A series ended.
    pub fn give_back(&mut self, metric: &'static str, owner: Option<&Arc<Whose>>) {
        self.total = self.total.saturating_sub(1);
        if let Some(held) = self.metrics.get_mut(metric) {
            *held = held.saturating_sub(1);
        }
        let Some((whose, of)) = owner.and_then(|owner| Some((owner, self.owners.get_mut(owner)?))) else {
            return;
        };
        of.total = of.total.saturating_sub(1);
        if let Some(held) = of.metrics.get_mut(metric) {
            *held = held.saturating_sub(1);
        }
        if of.total == 0 {
            self.owners.remove(whose);
        }
    }

    /// More than three quarters of a limit are taken: what is over should not be held for long.
    pub fn is_crowded(&self) -> bool {
        let crowded = |held: usize, limit: usize| held > limit / 4 * 3;
        crowded(self.total, self.limits.total)
            || self.metrics.values().any(|held| crowded(*held, self.limits.per_metric))
    }

    /// How many series of each metric there are.
    pub fn held(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.metrics.iter().map(|(metric, held)| (*metric, *held))
    }
}

impl Owner {
    fn of(&self, metric: &str) -> usize {
        self.metrics.get(metric).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { per_metric: 2_000, total: 6_000 };

    fn pod(name: &str) -> Arc<Whose> {
        Arc::new(Whose { pod_uid: Some(name.to_owned()), ..Whose::default() })
    }

    /// Takes places until there are none, and says how many there were and why there are no more.
    fn greed(places: &mut Places, metric: &'static str, owner: Option<&Arc<Whose>>) -> (usize, Refusal) {
        let mut taken = 0;
        loop {
            match places.take(metric, owner) {
                Ok(()) => taken += 1,
                Err(refusal) => return (taken, refusal),
            }
        }
    }

    #[test]
    fn one_owner_gets_a_quarter_and_the_next_ones_part_of_what_is_left() {
        let mut places = Places::new(LIMITS);
        let owner = Refusal::OwnerLimit;
        assert_eq!(greed(&mut places, "a", Some(&pod("greedy"))), (500, owner));
        assert_eq!(greed(&mut places, "a", Some(&pod("second"))), (375, owner));
        assert_eq!(greed(&mut places, "b", Some(&pod("greedy"))), (500, owner), "of each metric");
        for n in 0..6 {
            greed(&mut places, "a", Some(&pod(&format!("many-{n}"))));
        }
        let newcomer = pod("newcomer");
        let few = (0..16).filter(|_| places.take("a", Some(&newcomer)).is_ok()).count();
        assert_eq!(few, 16, "after 8 greedy ones there is still room for what any workload has");
        let held: usize = places.held().filter(|(metric, _)| *metric == "a").map(|(_, held)| held).sum();
        assert!(held < LIMITS.per_metric, "{held}");
    }

    #[test]
    fn workloads_leave_places_for_the_nodes_own() {
        let mut places = Places::new(LIMITS);
        for n in 0..200 {
            greed(&mut places, "a", Some(&pod(&n.to_string())));
        }
        assert_eq!(greed(&mut places, "a", Some(&pod("one more"))), (0, Refusal::Limit));
        assert_eq!(greed(&mut places, "a", None), (125, Refusal::Limit));
    }

    #[test]
    fn of_all_metrics_together_an_owner_has_a_share_too() {
        let mut places = Places::new(Limits { per_metric: 2_000, total: 1_000 });
        let taken: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|metric| greed(&mut places, metric, Some(&pod("greedy"))).0)
            .collect();
        assert_eq!(taken, [250, 0, 0]);
        assert_eq!(greed(&mut places, "a", None), (750, Refusal::Limit), "the node's own have no share");
        assert_eq!(places.take("b", Some(&pod("late"))), Err(Refusal::Limit));
    }

    #[test]
    fn a_place_that_is_given_back_is_used_again_and_nobody_is_remembered() {
        let mut places = Places::new(Limits { per_metric: 3, total: 10 });
        let (p, q) = (pod("p"), pod("q"));
        assert_eq!(greed(&mut places, "a", Some(&p)), (3, Refusal::Limit));
        assert!(places.is_crowded());
        assert_eq!(places.take("a", Some(&q)), Err(Refusal::Limit));
        places.give_back("a", Some(&p));
        assert_eq!(places.take("a", Some(&q)), Ok(()));
        for owner in [&p, &p, &q] {
            places.give_back("a", Some(owner));
        }
        assert_eq!((places.owners.len(), places.total, places.is_crowded()), (0, 0, false));
        assert_eq!(places.held().collect::<Vec<_>>(), [("a", 0)]);
    }
}
