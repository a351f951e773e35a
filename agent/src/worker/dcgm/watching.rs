//! From wants to polls: the part of a session that watches.
//!
//! In: [`Want`]s. Out: polls that are read from now on, and refusals. What can go wrong: see [`super::watch`].

use std::time::Duration;

use super::engine::{Answer, Dcgm, Entity, ReturnCode};
use super::inventory::Inventory;
use super::multi_pass;
use super::plan::{self, Want};
use super::poll::Poll;
use super::refusals::{RETRY, Refusals};
use super::session::Session;
use super::watch::Refused;
use crate::model::Absence;
use crate::worker::moment::Moment;

impl<D: Dcgm> Session<'_, D> {
    /// Watches everything that is wanted; nothing is watched before.
    pub(super) fn watch_all(&mut self, now: Moment) -> Answer<()> {
        self.refusals = Refusals { retry: now.mono.after(RETRY), ..Refusals::default() };
        for want in plan::wants(self.task.groups, &self.found) {
            if want.profiling.is_some() && self.profiling.paused.is_some() {
                self.withhold(&want);
            } else {
                self.watch_want(&want, now)?;
            }
        }
        // A field of a kind of device that is not here: said on each GPU, so that nothing is silently missing.
        for field in plan::homeless(self.task.groups, &self.found) {
            for (gpu, _) in &self.found.gpus {
                if let Some(target) = self.found.targets.get(&Entity::gpu(*gpu)) {
                    self.refusals.without(target, field, Absence::NotFound);
                }
            }
        }
        if let Some(report) = self.profiling_report() {
            self.caller.link.send(report);
        }
        Ok(())
    }

    /// Watches one want.
    pub(super) fn watch_want(&mut self, want: &Want, now: Moment) -> Answer<()> {
        let hw_id = want.profiling.map(|gpu| self.found.hw_id(gpu)).unwrap_or_default();
        let mut fields = want.fields.clone();
        let mut refused = Vec::new();
        if let Some(gpu) = want.profiling
            && fields.len() > 1
        {
            // Refused as a whole, but each alone is fine: the metric groups tell which go together.
            let whole = self.watcher.one(&want.entities, &fields, want.every, &hw_id);
            match whole {
                Ok(unit) => {
                    self.add_poll(unit, want.profiling, now);
                    return Ok(());
                }
                Err(ReturnCode::PROFILING_MULTI_PASS) => {
                    let groups = self
                        .caller
                        .call("dcgmProfGetSupportedMetricGroups", &hw_id, |d| d.metric_groups(gpu));
                    let (kept, left) = multi_pass::choose(&fields, &super::inventory::unless_gone(groups)?);
                    let code = ReturnCode::PROFILING_MULTI_PASS;
                    for &entity in &want.entities {
                        refused.extend(left.iter().map(|&field| Refused { entity, field, code }));
                    }
                    fields = kept;
                }
                Err(code) if super::engine::is_gone(code) => return Err(code),
                Err(_) => {}
            }
        }
        let (units, mut more) = self.watcher.watch(&want.entities, &fields, want.every, &hw_id)?;
        for unit in units {
            self.add_poll(unit, want.profiling, now);
        }
        refused.append(&mut more);
        self.refusals.add(&refused, want, &self.found);
        Ok(())
    }

    /// Watches fields that are no profiling fields.
    pub(super) fn watch_plain(
        &mut self,
        entities: &[Entity],
        fields: &[u16],
        every: Duration,
        now: Moment,
    ) -> Answer<()> {
        let want = Want { entities: entities.to_vec(), fields: fields.to_vec(), every, profiling: None };
        self.watch_want(&want, now)
    }

    fn add_poll(&mut self, unit: super::watch::Unit<D>, profiling: Option<u32>, now: Moment) {
        self.polls.push(Poll::new(unit, profiling, &self.found, &self.memory.slots, now.mono));
    }

    /// Profiling is paused by not being watched.
    pub(super) fn withhold(&mut self, want: &Want) {
        for entity in &want.entities {
            if let Some(target) = self.found.targets.get(entity) {
                for &field in &want.fields {
                    self.refusals.without(target, field, Absence::Paused);
                }
            }
        }
    }
}

impl Inventory {
    /// The name of a GPU; empty where it has none.
    pub(super) fn hw_id(&self, gpu: u32) -> String {
        self.targets.get(&Entity::gpu(gpu)).map(|target| target.hw_id.to_string()).unwrap_or_default()
    }
}
