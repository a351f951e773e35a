//! The engine behind the library: groups, watches, samples, events.
//!
//! In: the node and the time, handed over with each request; nothing runs in between: whatever was due since the last
//! request is made up for, at the times at which the engine would have done it. Out: codes and values.
//! What can go wrong: what the recorded engine answers, by code.

pub(crate) mod events;
pub(crate) mod groups;
pub(crate) mod health;
pub(crate) mod read;
pub(crate) mod series;

use std::collections::{BTreeMap, HashMap};

use gpu_scenario::World;
use gpu_scenario::catalog::{self, FieldRow};

use groups::{FieldGroup, Group};
use health::Watch;
use series::Series;

/// An entity: group and id, as numbers of the vendor.
pub(crate) type Entity = (u32, u32);

/// One engine, from its start to its end.
#[derive(Default)]
pub(crate) struct Engine {
    /// When it started. Unit: µs since 1970.
    pub(crate) since_us: i64,
    /// Samples only when told to.
    pub(crate) manual: bool,
    pub(crate) groups: BTreeMap<usize, Group>,
    pub(crate) field_groups: BTreeMap<usize, FieldGroup>,
    next_group: usize,
    next_field_group: usize,
    pub(crate) series: HashMap<(Entity, u16), Series>,
    health: BTreeMap<usize, Watch>,
    /// XIDs that the engine has taken in: time, entity, GPU, code.
    taken: Vec<(i64, Entity, u32, u32)>,
    events: events::Cursor,
    /// Set by dcgmDetachDriver.
    detached_by_call: bool,
    was_detached: bool,
    /// When the last attaching was through. Unit: µs since 1970.
    attached_us: i64,
    /// Set by dcgmProfPause.
    pub(crate) paused: bool,
    pub(crate) profiling_failed: bool,
    pub(crate) health_loaded: bool,
}

impl Engine {
    pub(crate) fn new(since_us: i64) -> Self {
        let mut engine = Self { since_us, next_group: 2, next_field_group: 4, ..Self::default() };
        for (id, name, fields) in groups::BUILT_IN {
            let group = FieldGroup { name: (*name).to_owned(), fields: fields.to_vec(), owner: 0 };
            engine.field_groups.insert(*id, group);
        }
        engine
    }

    /// Does what was due up to `now_us`.
    pub(crate) fn catch_up(&mut self, world: &World, now_us: i64) {
        self.take_events(world, now_us);
        let detached = self.is_detached(world, now_us);
        let changed = detached != self.was_detached;
        self.was_detached = detached;
        let scenario = world.scenario();
        let takes_s = if detached { scenario.detach_s } else { scenario.attach_s };
        #[expect(clippy::cast_possible_truncation, reason = "casts of floats clip")]
        let through_us = now_us.saturating_add((takes_s * 1e6) as i64);
        if changed && !detached {
            self.attached_us = through_us;
        }
        let around = series::Around {
            world,
            detached,
            attached_us: self.attached_us,
            paused: self.paused,
            dead_from: self.driver_dead_from(world),
            since_us: self.since_us,
        };
        for series in self.series.values_mut() {
            if changed {
                series.driver_changed(through_us, detached);
            }
            if !self.manual {
                series.catch_up(&around, now_us);
            }
        }
    }

    /// `dcgmUpdateAllFields`: in manual mode, takes what is due.
    pub(crate) fn update_all(&mut self, world: &World, now_us: i64) {
        let manual = std::mem::replace(&mut self.manual, false);
        self.catch_up(world, now_us);
        self.manual = manual;
    }

    pub(crate) fn is_detached(&self, world: &World, now_us: i64) -> bool {
        self.detached_by_call || world.detached(now_us)
    }

    pub(crate) fn set_detached(&mut self, detached: bool) {
        self.detached_by_call = detached;
    }

    /// From when on the engine makes no more driver calls: the first tick after XID 119 in the kernel log, or after its
    /// own start when the line stood there already. Unit: µs since 1970.
    pub(crate) fn driver_dead_from(&self, world: &World) -> Option<i64> {
        let logged = world.moment(world.first_logged(119)?);
        if logged <= self.since_us { Some(self.since_us + 1_000_000) } else { Some(logged) }
    }

    /// Whether the engine makes no more driver calls.
    pub(crate) fn driver_is_dead(&self, world: &World, now_us: i64) -> bool {
        self.driver_dead_from(world).is_some_and(|from| from <= now_us)
    }

    /// Whether a GPU is known to be lost: the engine looks once a second.
    pub(crate) fn knows_lost(&self, world: &World, gpu: u32, now_us: i64) -> bool {
        let phase = (now_us - self.since_us).rem_euclid(1_000_000);
        world.lost(gpu, now_us - phase)
    }

    pub(crate) fn supported(&self, world: &World, now_us: i64) -> Vec<u32> {
        if self.is_detached(world, now_us) {
            return Vec::new();
        }
        all_gpus(world).into_iter().filter(|gpu| !self.knows_lost(world, *gpu, now_us)).collect()
    }
}

pub(crate) fn all_gpus(world: &World) -> Vec<u32> {
    (0..u32::try_from(world.gpus().len()).unwrap_or(0)).collect()
}

/// The row of a field as this engine and library know it.
pub(crate) fn row(world: &World, id: u16) -> Option<&'static FieldRow> {
    catalog::by_id(id, world.library())
}

/// Where samples of a field are kept: those of global fields once.
pub(crate) fn key(entity: Entity, row: &FieldRow) -> (Entity, u16) {
    let global = row.level == catalog::Level::Global;
    (if global { (0, 0) } else { entity }, row.id)
}
