//! Health watches and checks.
//!
//! In: the systems to watch, the XIDs taken in, the scenario's incidents. Out: incidents, by entity. XIDs are reported
//! at once and for good; counters only at the engine's own samples (30 s), which is when the scenario's incidents show.
//! What can go wrong: an unknown group is -5.

use gpu_scenario::World;

use super::{Engine, Entity};
use crate::codes::NOT_CONFIGURED;

/// A health watch of a group.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    systems: u32,
    since_us: i64,
    interval_us: i64,
}

/// An incident as the check tells it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) system: u32,
    pub(crate) level: u32,
    pub(crate) code: u32,
    pub(crate) entity: Entity,
    pub(crate) text: String,
}

impl Engine {
    pub(crate) fn health_set(
        &mut self,
        world: &World,
        now_us: i64,
        group: usize,
        systems: u32,
        interval_us: i64,
    ) -> Result<(), i32> {
        self.group(world, now_us, group)?;
        self.health_loaded = true;
        let since_us = self.health.get(&group).map_or(now_us, |watch| watch.since_us);
        let interval_us = if interval_us <= 0 { 30_000_000 } else { interval_us };
        self.health.insert(group, Watch { systems, since_us, interval_us });
        Ok(())
    }

    pub(crate) fn health_systems(&self, world: &World, now_us: i64, group: usize) -> Result<u32, i32> {
        self.group(world, now_us, group)?;
        Ok(self.health.get(&group).map_or(0, |watch| watch.systems))
    }

    pub(crate) fn is_health_watched(&self, world: &World, now_us: i64, gpu: u32) -> bool {
        let holds = |group: &usize| {
            self.members(world, now_us, *group).is_ok_and(|entities| entities.contains(&(1, gpu)))
        };
        self.health.keys().any(holds)
    }

    pub(crate) fn health_check(
        &mut self,
        world: &World,
        now_us: i64,
        group: usize,
    ) -> Result<Vec<Found>, i32> {
        self.health_loaded = true;
        let entities = self.members(world, now_us, group).map_err(|_| NOT_CONFIGURED)?;
        let Some(watch) = self.health.get(&group).copied() else { return Ok(Vec::new()) };
        let sampled_us = watch.since_us + (now_us - watch.since_us) / watch.interval_us * watch.interval_us;
        let gpus: Vec<u32> = entities.iter().filter_map(|entity| world.gpu_of(*entity)).collect();
        let counters = world.incidents(sampled_us).into_iter().map(|incident| Found {
            system: incident.system,
            level: incident.level,
            code: incident.code,
            entity: (1, incident.gpu),
            text: incident.text,
        });
        let xids = self.taken.iter().map(|(_, entity, gpu, code)| of_xid(*entity, *gpu, *code));
        let mut found: Vec<Found> = counters.chain(xids).collect();
        found.retain(|found| {
            found.system & watch.systems != 0
                && world.gpu_of(found.entity).is_some_and(|gpu| gpus.contains(&gpu))
        });
        found.sort_by_key(|found| found.entity);
        found.dedup();
        Ok(found)
    }
}

/// An XID as the health check tells it: 79 has a code of its own.
fn of_xid(entity: Entity, gpu: u32, xid: u32) -> Found {
    let (code, text) = match xid {
        79 => (120, format!("GPU {gpu} has fallen off the bus (triggered by XID 79)")),
        xid => (101, format!("Detected XID {xid} for GPU {gpu} (triggered by XID {xid})")),
    };
    Found { system: u32::MAX, level: 20, code, entity, text }
}
