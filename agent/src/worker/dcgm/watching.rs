//! From wants to polls: the part of a session that watches.
//!
//! In: [`Want`]s. Out: polls that are read from now on, and refusals. What can go wrong: see [`super::watch`].

use std::time::Duration;

use super::engine::{Answer, Dcgm, Entity, ReturnCode};
use super::inventory::{Inventory, unless_gone};
use super::plan::{self, Want};
use super::poll::Poll;
use super::profiling::Verdict;
use super::refusals::{RETRY, Refusals};
use super::session::Session;
use super::watch::Refused;
use super::{multi_pass, state};
use crate::model::{Absence, Part};
use crate::worker::moment::Moment;

impl<D: Dcgm> Session<'_, D> {
    /// Watches everything that is wanted; nothing is watched before.
    pub(super) fn watch_all(&mut self, now: Moment) -> Answer<()> {
        self.refusals = Refusals { retry: now.mono.after(RETRY), ..Refusals::default() };
        for want in plan::wants(self.task.groups, &self.found) {
            if want.profiling.is_some() && self.profiling.paused {
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
                    let (kept, left) = multi_pass::choose(&fields, &unless_gone(groups)?);
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
    fn withhold(&mut self, want: &Want) {
        for entity in &want.entities {
            if let Some(target) = self.found.targets.get(entity) {
                for &field in &want.fields {
                    self.refusals.without(target, field, Absence::Paused);
                }
            }
        }
    }

    /// Pauses profiling so that another profiler has the hardware. Answers whether it was done, and how.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn pause(&mut self, now: Moment) -> Answer<(bool, String)> {
        match self.caller.call("dcgmProfPause", "", D::pause) {
            Ok(()) => {
                self.profiling.paused = true;
                self.caller.link.send(state::paused());
                Ok((true, "profiling is paused by the engine, for all its clients".to_owned()))
            }
            // An engine that reads profiling through NVML has no module to pause: what is not watched is not read.
            Err(ReturnCode::NOT_SUPPORTED | ReturnCode::MODULE_NOT_LOADED) => {
                self.profiling.paused = true;
                let mut place = self.polls.len();
                while place > 0 {
                    place -= 1;
                    if self.polls.get(place).is_some_and(|poll| poll.profiling.is_some()) {
                        let poll = self.polls.remove(place);
                        poll.remember(&mut self.memory.slots);
                        let want = Want {
                            entities: poll.unit.entities.clone(),
                            fields: poll.unit.fields.clone(),
                            every: poll.unit.every,
                            profiling: poll.profiling,
                        };
                        self.watcher.end(poll.unit)?;
                        self.withhold(&want);
                    }
                }
                self.refusals.tell(self.caller.link, now);
                self.caller.link.send(state::paused());
                Ok((
                    true,
                    "profiling fields are no longer watched; the engine has nothing to pause".to_owned(),
                ))
            }
            Err(code) if super::engine::is_gone(code) => Err(code),
            Err(code) => Ok((false, format!("the engine does not pause profiling: {}", state::code(code)))),
        }
    }

    /// Goes on with profiling.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn resume(&mut self, now: Moment) -> Answer<(bool, String)> {
        if !self.profiling.paused {
            return Ok((true, "profiling was not paused".to_owned()));
        }
        let unwatched = self.refusals.list.iter().any(|r| r.absence == Absence::Paused);
        if !unwatched {
            match self.caller.call("dcgmProfResume", "", D::resume) {
                Ok(()) => {}
                Err(code) if super::engine::is_gone(code) => return Err(code),
                Err(code) => {
                    return Ok((
                        false,
                        format!("the engine does not resume profiling: {}", state::code(code)),
                    ));
                }
            }
        }
        self.profiling.paused = false;
        self.profiling.forget_all();
        self.refusals.list.retain(|r| r.absence != Absence::Paused);
        if unwatched {
            for want in plan::wants(self.task.groups, &self.found) {
                if want.profiling.is_some() {
                    self.watch_want(&want, now)?;
                }
            }
        }
        if let Some(report) = self.profiling_report() {
            self.caller.link.send(report);
        }
        let how = if unwatched { "profiling fields are watched again" } else { "the engine profiles again" };
        Ok((true, how.to_owned()))
    }

    /// Says which GPUs' profiling stands still or works again, and watches anew what is stuck.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn judge_profiling(&mut self, now: Moment) -> Answer<()> {
        for (gpu, every) in self.profiled() {
            let Some(verdict) = self.profiling.verdict(gpu, every, now.mono) else { continue };
            let hw_id = self.found.hw_id(gpu);
            match verdict {
                Verdict::Mended if self.profiling.any_stuck() => {}
                Verdict::Mended => {
                    self.profiling.elsewhere = false;
                    self.caller.link.send(state::profiling_up(&hw_id));
                }
                Verdict::Stuck | Verdict::StillStuck => {
                    // Another client, or a diagnosis, may have paused it: then it is not stuck, and is left alone.
                    let paused = self.caller.call("dcgmModuleGetStatuses", "", D::is_paused);
                    self.profiling.elsewhere = unless_gone(paused)?;
                    if self.profiling.elsewhere {
                        self.caller.link.send(state::paused_elsewhere());
                        continue;
                    }
                    self.caller.link.send(state::stuck(&hw_id));
                    let mut place = self.polls.len();
                    while place > 0 {
                        place -= 1;
                        if self.polls.get(place).is_some_and(|poll| poll.profiling == Some(gpu)) {
                            self.watch_anew(place, now)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// GPUs whose profiling fields are read, with the longest interval.
    fn profiled(&self) -> Vec<(u32, Duration)> {
        let mut gpus: Vec<(u32, Duration)> = Vec::new();
        for poll in &self.polls {
            let Some(gpu) = poll.profiling else { continue };
            match gpus.iter_mut().find(|(id, _)| *id == gpu) {
                Some((_, every)) => *every = poll.unit.every.max(*every),
                None => gpus.push((gpu, poll.unit.every)),
            }
        }
        gpus
    }

    /// Whether profiling works, or why it works nowhere; nothing where it is not wanted.
    fn profiling_report(&self) -> Option<crate::wire::report::Kind> {
        if self.profiling.paused {
            return Some(state::paused());
        }
        if self.polls.iter().any(|poll| poll.profiling.is_some()) {
            return Some(state::profiling_up(""));
        }
        let is_profiling = |field: u16| {
            let of = |g: &plan::Group| g.fields.iter().any(|f| f.id == field && f.profiling);
            self.task.groups.iter().any(of)
        };
        let why =
            self.refusals.list.iter().find(|r| r.target.part == Part::Whole && is_profiling(r.field))?;
        Some(state::no_profiling(why.absence))
    }
}

impl Inventory {
    /// The name of a GPU; empty where it has none.
    pub(super) fn hw_id(&self, gpu: u32) -> String {
        self.targets.get(&Entity::gpu(gpu)).map(|target| target.hw_id.to_string()).unwrap_or_default()
    }
}
