//! Fields that cannot be watched, and why: told at once, again every ten seconds, tried again every five minutes.
//!
//! In: refused pairs. Out: absences, and what to try again. What can go wrong: nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::engine::{Entity, ReturnCode};
use super::inventory::{Inventory, Target};
use super::plan::Want;
use super::poll;
use super::readings::{absent_value, of_code};
use super::watch::Refused;
use crate::model::{Absence, MonoNs};
use crate::wire::report::Kind;
use crate::worker::link::Link;
use crate::worker::moment::Moment;

const AGAIN: Duration = Duration::from_secs(10);
pub(super) const RETRY: Duration = Duration::from_secs(300);

/// One field of one device that is not watched.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) target: Target,
    pub(super) field: u16,
    pub(super) absence: Absence,
    /// The GPU, where this is a profiling field of that one.
    pub(super) profiling: Option<u32>,
    /// What to watch to try again; `None` where it is of no use.
    again: Option<(Entity, Duration)>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals {
    pub(super) list: Vec<Refusal>,
    pub(super) told: MonoNs,
    pub(super) retry: MonoNs,
}

impl Refusals {
    /// Notes what the watcher could not watch of a want.
    pub(super) fn add(&mut self, refused: &[Refused], want: &Want, found: &Inventory) {
        for pair in refused {
            let Some(target) = found.targets.get(&pair.entity) else { continue };
            // What does not go with the rest goes no better by itself later.
            let of_use = ![ReturnCode::UNKNOWN_FIELD, ReturnCode::PROFILING_MULTI_PASS].contains(&pair.code);
            let again = of_use.then_some((pair.entity, want.every));
            let (absence, profiling) = (of_code(pair.code), want.profiling);
            self.put(Refusal { target: target.clone(), field: pair.field, absence, profiling, again });
        }
        self.told = MonoNs::default();
    }

    /// Notes a field that this device does not get.
    pub(super) fn without(&mut self, target: &Target, field: u16, absence: Absence) {
        self.put(Refusal { target: target.clone(), field, absence, profiling: None, again: None });
        self.told = MonoNs::default();
    }

    /// One of each: what is refused again is not refused twice.
    fn put(&mut self, refusal: Refusal) {
        let same = |r: &&mut Refusal| r.field == refusal.field && r.target == refusal.target;
        match self.list.iter_mut().find(same) {
            Some(known) => *known = refusal,
            None => self.list.push(refusal),
        }
    }

    /// Forgets what is known of profiling fields: they are about to be watched.
    pub(super) fn forget_profiling(&mut self) {
        self.list.retain(|r| r.profiling.is_none() && r.absence != Absence::Paused);
    }

    /// Tells them when they are new or were not told for a while.
    pub(super) fn tell(&mut self, link: &Link, now: Moment) {
        let waited = self.told != MonoNs::default() && now.mono.since(self.told).unwrap_or_default() < AGAIN;
        if waited || self.list.is_empty() {
            return;
        }
        self.told = now.mono;
        let mut by_target: BTreeMap<_, (&Target, Vec<_>)> = BTreeMap::new();
        for refusal in &self.list {
            let target = &refusal.target;
            let (_, values) =
                by_target.entry((target.key, target.part)).or_insert_with(|| (target, Vec::new()));
            values.push(absent_value(refusal.field, refusal.absence));
        }
        for (target, values) in by_target.into_values() {
            link.send(Kind::Samples(poll::samples(target, now.mono, values)));
        }
    }

    /// Takes what is to be tried again, as wants; what is of no use stays, and profiling while it is paused.
    pub(super) fn take_retries(&mut self, paused: bool) -> Vec<Want> {
        let mut wants: Vec<Want> = Vec::new();
        self.list.retain(|refusal| {
            let profiling = refusal.profiling;
            let Some((entity, every)) = refusal.again.filter(|_| !paused || profiling.is_none()) else {
                return true;
            };
            let same = |w: &&mut Want| w.entities == [entity] && w.every == every && w.profiling == profiling;
            match wants.iter_mut().find(same) {
                Some(want) => want.fields.push(refusal.field),
                None => {
                    let fields = vec![refusal.field];
                    wants.push(Want { entities: vec![entity], fields, every, profiling });
                }
            }
            false
        });
        together(wants)
    }
}

/// Entities of one kind with the same fields are tried together.
fn together(wants: Vec<Want>) -> Vec<Want> {
    let mut merged: Vec<Want> = Vec::new();
    let kind = |want: &Want| want.entities.first().map(|entity| entity.group);
    for want in wants {
        let same = |m: &&mut Want| {
            kind(m) == kind(&want)
                && (m.every, m.profiling) == (want.every, want.profiling)
                && m.fields == want.fields
        };
        match merged.iter_mut().find(same) {
            Some(m) => m.entities.extend(&want.entities),
            None => merged.push(want),
        }
    }
    merged
}
