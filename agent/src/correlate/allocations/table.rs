//! Who has which device now, by one teller; what has changed since it told last.
//!
//! In: all rows of an answer. Out: [`Allocation`]s that ended, then those that began or have other shares.
//! What can go wrong: more rows than are kept; the surplus is refused, and the caller counts it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::signal::{Allocation, AllocationSource};
use crate::model::{Fact, MonoNs, Signal};

/// Whom a device was given to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its namespace, pod and container; empty for a job.
    pub container: Option<[String; 3]>,
    /// Its job id.
    pub job: Option<String>,
    /// Who says so.
    pub how: AllocationSource,
}

/// Rows of one answer: at most one of a device and an owner, whatever number of ids it came from.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rows {
    rows: BTreeMap<(Arc<str>, Arc<Owner>), Vec<u32>>,
}

impl Rows {
    /// Rows kept: 5,000 pods on a node of 8 GPUs with 7 instances and 4 replicas each, and more than once over.
    pub const MOST: usize = 16_384;
    /// Shares of a device that one owner may have; MPS has 48 in all.
    const SHARES_MAX: usize = 1_024;

    /// The device is the owner's, or one more share of it; `false` where there is no room.
    pub fn add(&mut self, hw_id: &Arc<str>, owner: &Arc<Owner>, share: Option<u32>) -> bool {
        let key = (Arc::clone(hw_id), Arc::clone(owner));
        if self.rows.len() >= Self::MOST && !self.rows.contains_key(&key) {
            return false;
        }
        let shares = self.rows.entry(key).or_default();
        // In order, so that the order of ids means nothing.
        if let Some((share, Err(place))) = share.map(|share| (share, shares.binary_search(&share))) {
            if shares.len() >= Self::SHARES_MAX {
                return false;
            }
            shares.insert(place, share);
        }
        true
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nobody has anything.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Puts these rows in the place of `before`; what that changes is appended to `out`.
    pub fn replace(self, before: &mut Self, at: MonoNs, out: &mut Vec<Fact>) {
        for (key, shares) in before.rows.iter().filter(|(key, _)| !self.rows.contains_key(*key)) {
            out.push(fact(at, key, shares, true));
        }
        for (key, shares) in self.rows.iter().filter(|(key, shares)| before.rows.get(*key) != Some(*shares)) {
            out.push(fact(at, key, shares, false));
        }
        *before = self;
    }
}

fn fact(at: MonoNs, (hw_id, owner): &(Arc<str>, Arc<Owner>), shares: &[u32], end: bool) -> Fact {
    let [namespace, pod, container] = match &owner.container {
        Some(names) => names.clone().map(|name| Some(name).filter(|name| !name.is_empty())),
        None => [None, None, None],
    };
    let allocation = Allocation {
        hw_id: hw_id.as_ref().to_owned(),
        pod_uid: None, // no teller knows it
        pod,
        namespace,
        container,
        job: owner.job.clone(),
        how: owner.how,
        shares: shares.to_vec(),
        end,
    };
    Fact::Reading(Signal::Allocation { at, allocation: Box::new(allocation) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(pod: &str) -> Arc<Owner> {
        let container = Some(["a".to_owned(), pod.to_owned(), String::new()]);
        Arc::new(Owner { container, ..Owner::default() })
    }

    /// What replaces what, as `device pod shares` and a minus for an end.
    fn changes(before: &mut Rows, rows: &[(&str, &str, Option<u32>)]) -> Vec<String> {
        let (mut now, mut out) = (Rows::default(), Vec::new());
        for (hw_id, pod, share) in rows {
            assert!(now.add(&(*hw_id).into(), &owner(pod), *share));
        }
        now.replace(before, MonoNs(1), &mut out);
        let words = out.into_iter().map(|fact| {
            let Fact::Reading(Signal::Allocation { allocation, .. }) = fact else { panic!("{fact:?}") };
            assert_eq!((allocation.namespace.as_deref(), allocation.container), (Some("a"), None));
            let sign = if allocation.end { "-" } else { "+" };
            format!("{sign}{} {} {:?}", allocation.hw_id, allocation.pod.unwrap(), allocation.shares)
        });
        words.collect()
    }

    #[test]
    fn only_changes_are_told_ends_first() {
        let mut before = Rows::default();
        let (x5, x19) = (("G1", "x", Some(5)), ("G1", "x", Some(19)));
        assert_eq!(changes(&mut before, &[x19, x5, x5, ("G2", "y", None)]), ["+G1 x [5, 19]", "+G2 y []"]);
        assert_eq!(changes(&mut before, &[("G2", "y", None), x5, x19]), [] as [&str; 0]);
        assert_eq!(changes(&mut before, &[x5, ("G2", "z", None)]), ["-G2 y []", "+G1 x [5]", "+G2 z []"]);
        assert_eq!(changes(&mut before, &[]), ["-G1 x [5]", "-G2 z []"]);
        assert!(before.is_empty());
    }

    #[test]
    fn rows_and_shares_are_bounded() {
        let (mut rows, hw_id) = (Rows::default(), Arc::from("G"));
        for n in 0..Rows::MOST {
            assert!(rows.add(&hw_id, &owner(&n.to_string()), None));
        }
        assert!(!rows.add(&hw_id, &owner("one more"), None));
        let known = owner("0");
        let taken = (0..2_000).filter(|share| rows.add(&hw_id, &known, Some(*share))).count();
        assert_eq!((rows.len(), taken), (Rows::MOST, Rows::SHARES_MAX));
    }
}
