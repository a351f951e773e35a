//! The real engine: dcgm-ffi behind the core's traits.
//!
//! In: calls of the core. Out: what libdcgm answers. What can go wrong: a function that this libdcgm lacks answers as
//! an engine that does not know it. Links cannot be named with releases 4.0 to 4.2; then there are none.

use std::time::Duration;

use dcgm_ffi::link::{self, Link};
use dcgm_ffi::{Address, Engine, Error, FieldGroup, GpuStatus, Group, Level, Library, LinkState};

use super::choose::Choice;
use super::engine::{
    Answer, Attributes, Dcgm, Each, Entity, EntityGroup, GpuState, Incident, MetricGroup, MigEntity,
    ModuleStatus, ReturnCode, Topology,
};
use super::serve::Connect;
use crate::worker::cpu_list;

/// One try to connect; an engine on this node answers within milliseconds.
const CONNECT: Duration = Duration::from_millis(250);

/// An engine, and the library that it was reached through.
pub(super) struct Reached<'a> {
    library: &'a Library,
    engine: Engine<'a>,
}

impl Connect for Library {
    type Engine<'a> = Reached<'a>;

    fn version(&self) -> String {
        Self::version(self).map(|version| version.to_string()).unwrap_or_default()
    }

    fn path(&self) -> String {
        Self::path(self)
    }

    fn level_of(&self, field: u16) -> Option<EntityGroup> {
        let meta = self.field(field)?;
        if meta.global { Some(EntityGroup::None) } else { meta.entity_level }
    }

    fn connect(&self, choice: &Choice) -> Result<Reached<'_>, String> {
        let words = |e: Error| e.to_string();
        match choice {
            Choice::Embedded => {
                let engine = self.start_embedded().map_err(words)?;
                Ok(Reached { library: self, engine })
            }
            Choice::Host(text) => {
                let address = Address::parse(text).map_err(words)?;
                if let Address::Unix(path) = &address
                    && !path.exists()
                {
                    return Err(format!("{} is not there", path.display()));
                }
                let engine = Self::connect(self, &address, CONNECT).map_err(words)?;
                Ok(Reached { library: self, engine })
            }
        }
    }
}

/// The code of a failure.
fn code(error: Error) -> ReturnCode {
    error.code().unwrap_or(match error {
        Error::Symbol { .. } => ReturnCode::FUNCTION_NOT_FOUND,
        _ => ReturnCode::BAD_PARAM,
    })
}

impl Dcgm for Reached<'_> {
    type Group = Group;
    type Fields = FieldGroup;

    fn is_healthy(&self) -> Answer<bool> {
        self.engine.is_healthy().map_err(code)
    }

    fn dropped_values(&self) -> u64 {
        self.engine.dropped_values()
    }

    fn version(&self) -> Answer<String> {
        self.engine.is_healthy().map_err(code)?;
        Ok(self.engine.version().map(|version| version.to_string()).unwrap_or_default())
    }

    fn group_limit(&self) -> usize {
        self.engine.entities_max()
    }

    fn knows(&self, field: u16) -> bool {
        self.library.field(field).is_some()
    }

    fn gpus(&self) -> Answer<Vec<u32>> {
        self.engine.all_gpus().map_err(code)
    }

    fn gpu_state(&self, gpu: u32) -> Answer<GpuState> {
        Ok(match self.engine.gpu_status(gpu).map_err(code)? {
            GpuStatus::Lost | GpuStatus::Inaccessible => GpuState::Lost,
            GpuStatus::Detached => GpuState::Detached,
            // Unsupported and disabled ones answer what they can.
            _ => GpuState::Ok,
        })
    }

    fn attributes(&self, gpu: u32) -> Answer<Attributes> {
        let told = self.engine.attributes(gpu).map_err(code)?;
        Ok(Attributes {
            uuid: told.uuid,
            pci: told.pci_bus_id,
            name: told.name,
            serial: told.serial,
            driver: told.driver_version,
        })
    }

    fn architecture(&self, gpu: u32) -> Option<String> {
        let told = self.engine.architecture(gpu).ok().flatten()?;
        Some(format!("{told:?}").to_ascii_lowercase())
            .filter(|name| name.bytes().all(|b| b.is_ascii_lowercase()))
    }

    fn switches(&self) -> Answer<Vec<u32>> {
        let switches = self.engine.entities(EntityGroup::Switch).map_err(code)?;
        Ok(switches.into_iter().map(|entity| entity.id).collect())
    }

    fn mig(&self) -> Answer<Vec<MigEntity>> {
        let all = self.engine.mig_hierarchy().map_err(code)?;
        let own = |m: dcgm_ffi::MigEntity| MigEntity {
            entity: m.entity,
            parent: m.parent,
            ids: (m.gpu_instance_id, m.compute_instance_id),
            profile: m.profile_id,
            slices: m.slices,
        };
        Ok(all.into_iter().map(own).collect())
    }

    fn links(&self) -> Answer<Vec<(Entity, u32, Entity)>> {
        let told = self.engine.links().map_err(code)?;
        let Some(version) = self.engine.version().or_else(|| self.library.version()) else {
            return Ok(Vec::new());
        };
        let gpus = told.gpus.into_iter().map(|(id, links)| (Entity::gpu(id), links));
        let switches =
            told.switches.into_iter().map(|(id, links)| (Entity::new(EntityGroup::Switch, id), links));
        let mut all = Vec::new();
        for (owner, links) in gpus.chain(switches) {
            for (index, state) in (0..).zip(links) {
                if let (false, Some(entity)) =
                    (state == LinkState::NotSupported, link::make(Link { owner, index }, version))
                {
                    all.push((owner, index, entity));
                }
            }
        }
        Ok(all)
    }

    fn cpus(&self) -> Answer<Vec<(u32, Vec<u32>)>> {
        let cpus = self.engine.cpus().map_err(code)?;
        Ok(cpus.into_iter().map(|cpu| (cpu.id, cpu.cores)).collect())
    }

    fn topology(&self, gpu: u32) -> Answer<Topology> {
        let told = self.engine.topology(gpu).map_err(code)?;
        let peers = told.paths.iter().map(|path| (path.gpu, path.nvlinks())).filter(|(_, links)| *links > 0);
        Ok(Topology { affinity: cpu_list::of(&told.cpus), peers: peers.collect() })
    }

    fn group(&self, name: &str, entities: &[Entity]) -> Answer<Group> {
        self.engine.group(name, entities).map_err(code)
    }

    fn destroy_group(&self, group: Group) -> Answer<()> {
        self.engine.destroy_group(group).map_err(code)
    }

    fn fields(&self, name: &str, fields: &[u16]) -> Answer<FieldGroup> {
        self.engine.field_group(name, fields).map_err(code)
    }

    fn destroy_fields(&self, fields: FieldGroup) -> Answer<()> {
        self.engine.destroy_field_group(fields).map_err(code)
    }

    fn watch(&self, g: Group, f: FieldGroup, every: Duration, keep: Duration) -> Answer<()> {
        self.engine.watch(g, f, every, keep, 0).map_err(code)
    }

    fn unwatch(&self, group: Group, fields: FieldGroup) -> Answer<()> {
        self.engine.unwatch(group, fields).map_err(code)
    }

    fn latest(&self, group: Group, fields: FieldGroup, each: Each<'_>) -> Answer<()> {
        self.engine.latest(group, fields, each).map_err(code)
    }

    fn since(&self, group: Group, fields: FieldGroup, since_us: i64, each: Each<'_>) -> Answer<i64> {
        self.engine.since(group, fields, since_us, each).map_err(code)
    }

    fn set_health(&self, group: Group, every: Duration) -> Answer<()> {
        self.engine.health_set(group, every).map_err(code)
    }

    fn check_health(&self, group: Group) -> Answer<Vec<Incident>> {
        let incidents = self.engine.health_check(group).map_err(code)?;
        let told = incidents.into_iter().map(|incident| {
            let level = match incident.level {
                Level::Pass => 0,
                Level::Warn => 10,
                Level::Fail => 20,
            };
            // One that is about nothing we can name is about the node.
            let entity = incident.entity.unwrap_or(Entity::new(EntityGroup::None, 0));
            Incident { systems: incident.systems, level, entity }
        });
        Ok(told.collect())
    }

    fn metric_groups(&self, gpu: u32) -> Answer<Vec<MetricGroup>> {
        let groups = self.engine.profiling_groups(gpu).map_err(code)?;
        let own =
            groups.into_iter().map(|g| MetricGroup { major: g.major, minor: g.minor, fields: g.fields });
        Ok(own.collect())
    }

    fn modules(&self) -> Answer<Vec<ModuleStatus>> {
        self.engine.module_statuses().map_err(code)
    }

    fn pause(&self) -> Answer<()> {
        self.engine.pause().map_err(code)
    }

    fn resume(&self) -> Answer<()> {
        self.engine.resume().map_err(code)
    }
}
