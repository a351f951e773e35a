//! DCGM's health checks, by subsystem.
//!
//! In: incidents. Out: one report per GPU and switch, healthy ones too. What can go wrong: an incident's text may name
//! a GPU that is not there; only its entity counts. The health module may be missing: no report at all.

use std::time::Duration;

use super::engine::{Answer, Caller, Dcgm, Entity, EntityGroup, Incident};
use super::inventory::{Inventory, unless_gone};
use super::state;
use super::watch::Watcher;
use crate::model::MonoNs;
use crate::model::signal::Subsystem;
use crate::wire::report::{Health as Report, Kind};
use crate::worker::moment::Moment;

/// The checks of one connection.
#[derive(Debug)]
pub(super) struct Health<D: Dcgm> {
    group: D::Group,
    /// What is in the group.
    entities: Vec<Entity>,
    every: Duration,
    pub(super) due: MonoNs,
}

impl<D: Dcgm> Health<D> {
    /// Asks the engine to sample what the checks need. `None` where there is nothing to check.
    ///
    /// # Errors
    /// The engine refuses, such as without its health module.
    pub(super) fn watch(
        watcher: &mut Watcher<'_, D>,
        found: &Inventory,
        every: Duration,
        now: MonoNs,
    ) -> Answer<Option<Self>> {
        let is_checked = |e: &&Entity| matches!(e.group, EntityGroup::Gpu | EntityGroup::Switch);
        // One GPU that does not answer would have the whole group refused.
        let answers = |e: &&Entity| found.answers(e);
        let checked = found.targets.keys().filter(is_checked).filter(answers);
        let mut entities: Vec<Entity> = checked.copied().collect();
        entities.truncate(watcher.caller.local().group_limit());
        if entities.is_empty() || every.is_zero() {
            return Ok(None);
        }
        let group = watcher.group(&entities)?;
        if let Err(code) = watcher.caller.call("dcgmHealthSet_v2", "", |d| d.set_health(group, every)) {
            unless_gone(watcher.caller.call("dcgmGroupDestroy", "", |d| d.destroy_group(group)))?;
            return Err(code);
        }
        Ok(Some(Self { group, entities, every, due: now.after(every.min(Duration::from_secs(1))) }))
    }

    /// Checks and reports.
    ///
    /// # Errors
    /// The check was refused.
    pub(super) fn check(
        &mut self,
        caller: &Caller<'_, D>,
        found: &Inventory,
        sees: &dyn Fn(u32) -> bool,
        now: Moment,
    ) -> Answer<()> {
        self.due = now.mono.after(self.every);
        let mut incidents = caller.call("dcgmHealthCheck", "", |d| d.check_health(self.group))?;
        for incident in &mut incidents {
            // What is wrong with an instance or a link is wrong with its GPU.
            let gpu = found.targets.get(&incident.entity).and_then(|target| target.gpu);
            incident.entity = gpu.map_or(incident.entity, Entity::gpu);
        }
        let stray =
            incidents.iter().filter(|i| i.level > 0 && !found.targets.contains_key(&i.entity)).count();
        if stray > 0 {
            caller.link.send(state::stray_incidents(stray));
        }
        for entity in &self.entities {
            let Some(target) = found.targets.get(entity) else { continue };
            let levels = levels(&incidents, *entity);
            // The check finds nothing wrong with what gives it nothing to check.
            let is_known = found.answers(entity) && target.gpu.is_none_or(sees);
            if is_known || levels.iter().any(|level| *level > 0) {
                let report = Report { key: target.key, read_ns: now.mono.0, levels };
                caller.link.send(Kind::Health(report));
            }
        }
        Ok(())
    }

    /// Forgets the group, and its watches with it.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn end(self, caller: &Caller<'_, D>) -> Answer<()> {
        unless_gone(caller.call("dcgmGroupDestroy", "", |d| d.destroy_group(self.group)))
    }
}

/// The worst level of each subsystem, in the order of [`Subsystem::ALL`].
fn levels(incidents: &[Incident], entity: Entity) -> Vec<u32> {
    let mut levels = vec![0; Subsystem::ALL.len()];
    let single = levels.len() - 1;
    for incident in incidents.iter().filter(|incident| incident.entity == entity) {
        let level = match incident.level {
            0 => 0,
            1..20 => 1,
            _ => 2,
        };
        let one = incident.systems.trailing_zeros() as usize;
        // Most XIDs name all subsystems: that is one fact of its own, not twelve.
        let place = if incident.systems.count_ones() == 1 && one < single { one } else { single };
        if let Some(worst) = levels.get_mut(place) {
            *worst = level.max(*worst);
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incident_counts_for_its_entity_and_subsystem() {
        let gpu = Entity::gpu(1);
        let check = |incidents: &[(u32, u32, Entity)], want: &[(Subsystem, u32)]| {
            let incidents: Vec<Incident> = incidents
                .iter()
                .map(|&(systems, level, entity)| Incident { systems, level, entity })
                .collect();
            let got = levels(&incidents, gpu);
            let bad: Vec<(Subsystem, u32)> =
                Subsystem::ALL.iter().copied().zip(got).filter(|(_, level)| *level > 0).collect();
            assert_eq!(bad, want);
        };
        check(&[], &[]);
        check(
            &[(0x2, 10, gpu), (0x2, 20, gpu), (0x10, 10, gpu)],
            &[(Subsystem::NvLink, 2), (Subsystem::Memory, 1)],
        );
        check(&[(0xffff_ffff, 20, gpu)], &[(Subsystem::All, 2)]);
        check(&[(0x3, 10, gpu), (0x8000_0000, 20, gpu)], &[(Subsystem::All, 2)]);
        check(&[(0x2, 20, Entity::gpu(2))], &[]);
        check(&[(0x2, 0, gpu), (0x800, 20, gpu)], &[(Subsystem::NvSwitchFatal, 2)]);
    }
}
