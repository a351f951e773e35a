//! Groups of entities, groups of fields, and watches.
//!
//! In: requests. Out: codes. What can go wrong: limits, names that are taken, ids of an engine that is gone; a watch
//! that fails for one entity and field undoes the whole call.

use gpu_scenario::World;
use gpu_scenario::fault::Fault;

use super::series::{Series, Watcher};
use super::{Engine, Entity, all_gpus, key, row};
use crate::codes::{
    BAD_PARAM, DUPLICATE_KEY, GPU_IS_LOST, MAX_LIMIT, NO_DATA, NOT_CONFIGURED, NOT_SUPPORTED, OK,
};

/// Id of the ready-made group of all GPUs.
pub(crate) const ALL_GPUS: usize = 0x7fff_ffff;
/// Id of the ready-made group of all switches.
pub(crate) const ALL_SWITCHES: usize = 0x7fff_fffe;
const GROUPS_MAX: usize = 62;
const FIELD_GROUPS_MAX: usize = 61;
const FIELDS_MAX: usize = 128;

/// Field groups that each engine has.
pub(crate) const BUILT_IN: &[(usize, &str, &[u16])] = &[
    (1, "DCGM_INTERNAL_30SEC", &[300]),
    (2, "DCGM_INTERNAL_HOURLY", &[501, 509, 510, 511, 512, 513]),
    (
        3,
        "DCGM_INTERNAL_JOB",
        &[
            205, 155, 156, 200, 201, 202, 1501, 203, 204, 311, 100, 101, 230, 221, 220, 240, 241, 242, 210,
            211, 390, 391, 392, 84, 241, 240, 409, 419, 429, 439,
        ],
    ),
];

pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) entities: Vec<Entity>,
    /// Handle of the connection that made it.
    pub(crate) owner: usize,
}

pub(crate) struct FieldGroup {
    pub(crate) name: String,
    pub(crate) fields: Vec<u16>,
    pub(crate) owner: usize,
}

/// A watch call.
#[derive(Clone, Copy)]
pub(crate) struct WatchCall {
    pub(crate) group: usize,
    pub(crate) field_group: usize,
    /// Unit: µs.
    pub(crate) interval_us: i64,
    /// Unit: s.
    pub(crate) keep_s: f64,
    pub(crate) max_samples: i32,
}

impl Engine {
    pub(crate) fn create_group(
        &mut self,
        world: &World,
        now_us: i64,
        owner: usize,
        kind: u32,
        name: &str,
    ) -> Result<usize, i32> {
        let entities = match kind {
            0 => self.supported(world, now_us).into_iter().map(|gpu| (1, gpu)).collect(),
            1 => Vec::new(),
            2 => switches(world),
            3 => instances(world, now_us, 4),
            4 => instances(world, now_us, 5),
            5 => {
                let gpus = self.supported(world, now_us).into_iter().map(|gpu| (1, gpu));
                let parts = [switches(world), instances(world, now_us, 4), instances(world, now_us, 5)];
                gpus.chain(parts.into_iter().flatten()).collect()
            }
            _ => return Err(BAD_PARAM),
        };
        if GROUPS_MAX <= self.groups.len() {
            return Err(MAX_LIMIT);
        }
        let id = self.next_group;
        self.next_group += 1;
        self.groups.insert(id, Group { name: name.to_owned(), entities, owner });
        Ok(id)
    }

    pub(crate) fn destroy_group(&mut self, id: usize) -> i32 {
        self.drop_watchers(|watcher| watcher.group == id);
        if self.groups.remove(&id).is_some() { OK } else { NOT_CONFIGURED }
    }

    pub(crate) fn add_entity(&mut self, world: &World, now_us: i64, id: usize, entity: Entity) -> i32 {
        if entity.0 == 1 && self.knows_lost(world, entity.1, now_us) {
            return GPU_IS_LOST;
        }
        let limit = if world.library().0 < 4 { 64 } else { 1024 };
        let exists = world.exists(entity, now_us);
        match self.groups.get_mut(&id) {
            None => NOT_CONFIGURED,
            Some(group) if !exists || group.entities.contains(&entity) => {
                let _ = group;
                BAD_PARAM
            }
            Some(group) if limit <= group.entities.len() => MAX_LIMIT,
            Some(group) => {
                group.entities.push(entity);
                OK
            }
        }
    }

    pub(crate) fn remove_entity(&mut self, id: usize, entity: Entity) -> i32 {
        let Some(group) = self.groups.get_mut(&id) else { return NOT_CONFIGURED };
        let before = group.entities.len();
        group.entities.retain(|other| *other != entity);
        if group.entities.len() < before { OK } else { BAD_PARAM }
    }

    /// Name and entities of a group.
    pub(crate) fn group(&self, world: &World, now_us: i64, id: usize) -> Result<(String, Vec<Entity>), i32> {
        let all_gpus = || self.supported(world, now_us).into_iter().map(|gpu| (1, gpu)).collect();
        match id {
            ALL_GPUS | 0 => Ok(("DCGM_ALL_SUPPORTED_GPUS".into(), all_gpus())),
            ALL_SWITCHES | 1 => Ok(("DCGM_ALL_SUPPORTED_NVSWITCHES".into(), switches(world))),
            id => match self.groups.get(&id) {
                Some(group) => Ok((group.name.clone(), group.entities.clone())),
                None => Err(NOT_CONFIGURED),
            },
        }
    }

    /// Entities of a group for reads: GPUs of the ready-made group stay in it when they are lost.
    pub(crate) fn members(&self, world: &World, now_us: i64, id: usize) -> Result<Vec<Entity>, i32> {
        match id {
            ALL_GPUS | 0 => Ok(all_gpus(world).into_iter().map(|gpu| (1, gpu)).collect()),
            id => Ok(self.group(world, now_us, id)?.1),
        }
    }

    pub(crate) fn create_field_group(
        &mut self,
        world: &World,
        owner: usize,
        name: &str,
        fields: &[u16],
    ) -> Result<usize, i32> {
        let unknown = fields.iter().any(|id| row(world, *id).is_none());
        if fields.is_empty() || FIELDS_MAX < fields.len() || unknown {
            return Err(BAD_PARAM);
        }
        if self.field_groups.values().any(|group| group.name == name) {
            return Err(DUPLICATE_KEY);
        }
        if FIELD_GROUPS_MAX + BUILT_IN.len() <= self.field_groups.len() {
            return Err(MAX_LIMIT);
        }
        let id = self.next_field_group;
        self.next_field_group += 1;
        self.field_groups.insert(id, FieldGroup { name: name.to_owned(), fields: fields.to_vec(), owner });
        Ok(id)
    }

    pub(crate) fn destroy_field_group(&mut self, id: usize) -> i32 {
        self.drop_watchers(|watcher| watcher.field_group == id);
        if self.field_groups.remove(&id).is_some() { OK } else { NO_DATA }
    }

    pub(crate) fn fields(&self, id: usize) -> Result<Vec<u16>, i32> {
        self.field_groups.get(&id).map(|group| group.fields.clone()).ok_or(NO_DATA)
    }

    pub(crate) fn watch(&mut self, world: &World, now_us: i64, owner: usize, call: &WatchCall) -> i32 {
        let (entities, fields) =
            match (self.members(world, now_us, call.group), self.fields(call.field_group)) {
                (Ok(entities), Ok(fields)) => (entities, fields),
                (Err(code), _) | (_, Err(code)) => return code,
            };
        let detached = self.is_detached(world, now_us) && !matches!(call.group, ALL_GPUS | 0);
        for entity in &entities {
            if detached && entity.0 == 1 {
                return GPU_IS_LOST;
            }
            for row in fields.iter().filter_map(|id| row(world, *id)) {
                let code = world.watch_code(*entity, row, now_us);
                if code != OK {
                    self.profiling_failed |= code == crate::codes::MODULE_NOT_LOADED;
                    return code;
                }
            }
        }
        let spoiled = world.any(|fault| {
            matches!(fault, Fault::Spoil { a, b }
                if a.iter().any(|f| fields.contains(f)) && b.iter().any(|f| fields.contains(f)))
        });
        let watcher = Watcher::new(owner, call, spoiled);
        for entity in entities {
            for row in fields.iter().filter_map(|id| row(world, *id)) {
                let of = key(entity, row);
                let series = self.series.entry(of).or_insert_with(|| Series::new(of.0, entity, row));
                series.watch(watcher, now_us);
            }
        }
        self.catch_up(world, now_us);
        OK
    }

    pub(crate) fn unwatch(&mut self, world: &World, now_us: i64, group: usize, field_group: usize) -> i32 {
        if let Err(code) =
            self.group(world, now_us, group).map(|_| ()).and(self.fields(field_group).map(|_| ()))
        {
            return code;
        }
        self.drop_watchers(|watcher| (watcher.group, watcher.field_group) == (group, field_group));
        OK
    }

    /// Everything of a connection goes with it.
    pub(crate) fn drop_owner(&mut self, owner: usize) {
        self.drop_watchers(|watcher| watcher.owner == owner);
        self.groups.retain(|_, group| group.owner != owner);
        self.field_groups.retain(|_, group| group.owner != owner);
    }

    fn drop_watchers(&mut self, which: impl Fn(&Watcher) -> bool) {
        for series in self.series.values_mut() {
            series.unwatch(&which);
        }
    }

    /// Entities of an entity group, or the code.
    pub(crate) fn entities(
        &self,
        world: &World,
        now_us: i64,
        group: u32,
        supported: bool,
    ) -> Result<Vec<u32>, i32> {
        let ids = |entities: Vec<Entity>| entities.into_iter().map(|(_, id)| id).collect();
        let cpus = &world.scenario().cpus;
        match group {
            1 if supported => Ok(self.supported(world, now_us)),
            1 => Ok(all_gpus(world)),
            3 => Ok(ids(switches(world))),
            4 | 5 => Ok(ids(instances(world, now_us, group))),
            7 | 8 if cpus.is_empty() => Err(crate::codes::MODULE_NOT_LOADED),
            7 => Ok(cpus.iter().map(|cpu| cpu.id).collect()),
            8 => Ok(cpus.iter().flat_map(|cpu| cpu.cores.0..=cpu.cores.1).take(4096).collect()),
            9 => Ok(Vec::new()),
            _ => Err(NOT_SUPPORTED),
        }
    }
}

fn switches(world: &World) -> Vec<Entity> {
    world.scenario().switches.iter().map(|switch| (3, switch.id)).collect()
}

/// Instances of all GPUs: id = GPU × 7 + place.
pub(crate) fn instances(world: &World, now_us: i64, group: u32) -> Vec<Entity> {
    let of_gpu = |gpu: u32| {
        let count = world.mig(gpu, now_us).map_or(0, |instances| instances.len());
        (0..u32::try_from(count).unwrap_or(0)).map(move |place| (group, gpu * 7 + place))
    };
    all_gpus(world).into_iter().flat_map(of_gpu).collect()
}
