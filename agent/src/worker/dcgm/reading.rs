//! The part of a session that reads: values, and events, health and XIDs, each with its own trouble.
//!
//! In: what is watched, and the time. Out: reports. What can go wrong: a reading is refused. What belongs to another
//! engine is watched anew, at once and then less and less often; a pair that the engine does not keep is taken out, so
//! that it takes no other with it, and tried again with the other refusals.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bind::Bind;
use super::engine::{Answer, Dcgm, Entity, EntityGroup, FieldValue, ReturnCode, Value, is_gone};
use super::health::Health;
use super::inventory::{Target, unless_gone};
use super::plan::{Want, XID};
use super::readings::of_code;
use super::refusals::RETRY;
use super::session::Session;
use super::state;
use super::trouble::{self, Trouble, is_of_another_engine};
use super::watch::Refused;
use super::xid::Xids;
use crate::worker::moment::Moment;

/// A watch that lasted this long has nothing to do with the ones before.
const LASTED: Duration = Duration::from_secs(60);

/// The troubles of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Troubles {
    xids: Trouble,
    bind: Trouble,
    health: Trouble,
}

impl<D: Dcgm> Session<'_, D> {
    /// Reads what is due.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn read_polls(&mut self, clock: &dyn Fn() -> Moment) -> Answer<()> {
        let mut anew = Vec::new();
        let (found, profiling) = (&self.found, &mut self.profiling);
        let paused = profiling.is_paused();
        for (place, poll) in self.polls.iter_mut().enumerate() {
            let now = clock();
            if now.mono < poll.due {
                continue;
            }
            let of_profiling = poll.profiling;
            let renamed = &mut self.renamed;
            let each = &mut |entity: Entity, target: &Target, value: &FieldValue<'_>| {
                *renamed |= is_renamed(entity, target, value);
                match (of_profiling, target.gpu) {
                    (Some(gpu), _) => profiling.value(gpu, target.key, value, now.mono),
                    (None, Some(gpu)) => profiling.other(gpu, value),
                    (None, None) => {}
                }
            };
            let read = poll.read(&self.caller, found, paused, clock, each);
            let age = now.mono.since(poll.since).unwrap_or_default();
            let is_time = age >= trouble::wait(poll.anew);
            match read {
                Ok(outcome) => {
                    if outcome.unwatched && is_time {
                        anew.push(place);
                    } else if !outcome.unwatched && age >= LASTED {
                        poll.anew = 0;
                    }
                    if outcome.changed || self.renamed {
                        self.look_due = now.mono;
                    }
                }
                Err(code) if is_gone(code) => return Err(code),
                Err(code) => {
                    poll.absent(self.caller.link, found, of_code(code), now);
                    if is_of_another_engine(code) && is_time {
                        anew.push(place);
                    }
                }
            }
        }
        for place in anew.into_iter().rev() {
            self.watch_anew(place, clock())?;
        }
        Ok(())
    }

    /// Watches a unit again, in place of what the engine forgot; from the third time on without what it always forgets.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn watch_anew(&mut self, place: usize, now: Moment) -> Answer<()> {
        let mut poll = self.polls.remove(place);
        poll.remember(&mut self.memory.slots);
        let out = if poll.anew >= 2 { std::mem::take(&mut poll.forgotten) } else { Vec::new() };
        let (anew, every, profiling) = (poll.anew.saturating_add(1), poll.unit.every, poll.profiling);
        let missed = poll.missed;
        let mut sets: BTreeMap<Vec<u16>, Vec<Entity>> = BTreeMap::new();
        for &entity in &poll.unit.entities {
            let stays = |field: &u16| !out.contains(&(entity, *field));
            let fields = poll.unit.fields.iter().copied().filter(stays).collect();
            sets.entry(fields).or_default().push(entity);
        }
        self.watcher.end(poll.unit)?;
        let at = self.polls.len();
        for (fields, entities) in sets.into_iter().filter(|(fields, _)| !fields.is_empty()) {
            self.watch_want(&Want { entities, fields, every, profiling }, now)?;
        }
        self.polls.iter_mut().skip(at).for_each(|poll| (poll.anew, poll.missed) = (anew, missed));
        if !out.is_empty() {
            let code = ReturnCode::NOT_WATCHED;
            let refused: Vec<Refused> =
                out.into_iter().map(|(entity, field)| Refused { entity, field, code }).collect();
            let want = Want { entities: Vec::new(), fields: Vec::new(), every, profiling };
            self.refusals.add(&refused, &want, &self.found);
        }
        Ok(())
    }

    /// Tries again what was refused.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn retry(&mut self, now: Moment) -> Answer<()> {
        self.refusals.retry = now.mono.after(RETRY);
        for want in self.refusals.take_retries(self.profiling.paused.is_some()) {
            self.watch_want(&want, now)?;
        }
        Ok(())
    }

    /// Reads the events that are due.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn read_events(&mut self, clock: &dyn Fn() -> Moment) -> Answer<()> {
        self.tend_xids(clock())?;
        self.tend_bind(clock())?;
        self.tend_health(clock())
    }

    fn tend_xids(&mut self, now: Moment) -> Answer<()> {
        let trouble = &mut self.troubles.xids;
        if let Some(xids) = &mut self.xids {
            if now.mono < xids.due {
                return Ok(());
            }
            match xids.read(&self.caller, &self.found, &mut self.memory.told, now) {
                Ok(()) => {
                    trouble.over();
                    return Ok(());
                }
                Err(code) if is_gone(code) => return Err(code),
                Err(code) => {
                    let anew = trouble.met("dcgmGetValuesSince_v2", code, self.caller.link, now.mono);
                    if !anew || !is_of_another_engine(code) {
                        return Ok(());
                    }
                }
            }
        } else if !trouble.is_due(now.mono) {
            return Ok(());
        }
        self.xids.take().map_or(Ok(()), |xids| xids.end(&self.watcher))?;
        self.watch_xids(now)
    }

    /// Watches XIDs, where they are wanted.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn watch_xids(&mut self, now: Moment) -> Answer<()> {
        let is_wanted = self.task.groups.iter().any(|g| g.fields.iter().any(|f| f.id == XID));
        if is_wanted {
            let (xids, refused) = Xids::watch(&mut self.watcher, &self.found, now.mono)?;
            self.xids = xids;
            if let Some(code) = refused {
                self.troubles.xids.met("dcgmWatchFields", code, self.caller.link, now.mono);
            }
        }
        Ok(())
    }

    fn tend_bind(&mut self, now: Moment) -> Answer<()> {
        let trouble = &mut self.troubles.bind;
        if let Some(bind) = &mut self.bind {
            if now.mono < bind.due {
                return Ok(());
            }
            match bind.read(&self.caller, now) {
                Ok(()) => {
                    trouble.over();
                    return Ok(());
                }
                Err(code) if is_gone(code) => return Err(code),
                Err(code) => {
                    let anew = trouble.met("dcgmGetLatestValues_v2", code, self.caller.link, now.mono);
                    if !anew || !is_of_another_engine(code) {
                        return Ok(());
                    }
                }
            }
        } else {
            return Ok(());
        }
        self.bind.take().map_or(Ok(()), |bind| self.watcher.end(bind.into_unit()))?;
        self.watch_bind(now)
    }

    /// Watches the bind event.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn watch_bind(&mut self, now: Moment) -> Answer<()> {
        self.bind = Bind::watch(&mut self.watcher, &self.found, self.opened_us, now.mono)?;
        Ok(())
    }

    fn tend_health(&mut self, now: Moment) -> Answer<()> {
        let trouble = &mut self.troubles.health;
        if let Some(health) = &mut self.health {
            if now.mono < health.due {
                return Ok(());
            }
            let polls = &self.polls;
            let sees = |gpu: u32| {
                let mut told = polls.iter().filter_map(|poll| poll.sees(gpu)).peekable();
                told.peek().is_none() || told.any(|sees| sees)
            };
            match health.check(&self.caller, &self.found, &sees, now) {
                Ok(()) => {
                    trouble.over();
                    return self.ask_how_it_is();
                }
                Err(code) if is_gone(code) => return Err(code),
                Err(code) => {
                    let anew = trouble.met("dcgmHealthCheck", code, self.caller.link, now.mono);
                    if !anew || !is_of_another_engine(code) {
                        return Ok(());
                    }
                }
            }
        } else if !trouble.is_due(now.mono) {
            return Ok(());
        }
        self.health.take().map_or(Ok(()), |health| health.end(&self.caller))?;
        self.watch_health(now)
    }

    /// Asks for health checks.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn watch_health(&mut self, now: Moment) -> Answer<()> {
        match Health::watch(&mut self.watcher, &self.found, self.task.health_every, now.mono) {
            Ok(health) => self.health = health,
            Err(code) if is_gone(code) => return Err(code),
            Err(code) => {
                self.troubles.health.met("dcgmHealthSet_v2", code, self.caller.link, now.mono);
            }
        }
        Ok(())
    }

    /// The engine's word on itself, said when it changes for the worse.
    fn ask_how_it_is(&mut self) -> Answer<()> {
        let told = self.caller.call("dcgmHostengineIsHealthy", "", D::is_healthy);
        let is_ill = unless_gone(told.map(|well| !well))?;
        if is_ill && !self.is_ill {
            self.caller.link.send(state::unhealthy());
        }
        self.is_ill = is_ill;
        Ok(())
    }
}

/// A MIG device has another name than it had: the GPU was parted anew under the same ids.
fn is_renamed(entity: Entity, target: &Target, value: &FieldValue<'_>) -> bool {
    let Ok(Value::Text(uuid)) = value.value else { return false };
    entity.group == EntityGroup::ComputeInstance
        && (value.field, value.status) == (54, ReturnCode::OK)
        && uuid.starts_with("MIG-")
        && uuid != &*target.hw_id
}
