//! A scripted engine for the tests of the core.
//!
//! In: a [`World`]. Out: answers of the form NVIDIA's engine was recorded to give: a refused pair undoes the whole
//! watch, a blank comes with status 0, ids mean nothing to the next engine. What can go wrong: it is asked for what a
//! test did not script; then it answers "not supported".

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::engine::{
    Absent, Answer, Attributes, Dcgm, Each, Entity, FieldValue, GpuState, Incident, MetricGroup, MigEntity,
    ModuleState, ModuleStatus, ReturnCode, Topology, Value,
};
use crate::model::MonoNs;
use crate::worker::moment::Moment;

/// Start of every test, on the wall clock.
pub(super) const EPOCH_US: i64 = 1_700_000_000_000_000;

/// A value as a script gives it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Says {
    Int(i64),
    Double(f64),
    Text(String),
    Binary,
    Blank,
    Code(ReturnCode),
    /// The value with a time of its own, in µs of the wall clock.
    At(i64, i64),
}

type ValueRule = Box<dyn Fn(Entity, u16, &[u16], i64) -> Says>;
type WatchRule = Box<dyn Fn(&[Entity], &[u16]) -> Result<(), ReturnCode>>;

/// What the engine has.
pub(super) struct World {
    pub(super) gpus: BTreeMap<u32, (GpuState, Attributes)>,
    pub(super) mig: Vec<MigEntity>,
    pub(super) switches: Vec<u32>,
    pub(super) links: Vec<(Entity, u32, Entity)>,
    pub(super) cpus: Vec<(u32, Vec<u32>)>,
    /// Value of (entity, field) in a field group, at a wall time.
    pub(super) value: ValueRule,
    pub(super) watch: WatchRule,
    /// XIDs in the engine's store: when it learnt of it, entity, number, time of the sample.
    pub(super) xids: Vec<(i64, Entity, i64, i64)>,
    pub(super) incidents: Vec<Incident>,
    pub(super) metric_groups: Vec<MetricGroup>,
    pub(super) pause: Answer<()>,
    pub(super) paused_elsewhere: bool,
    pub(super) first_latest: Answer<()>,
    pub(super) unknown: HashSet<u16>,
    pub(super) dead: bool,
    pub(super) well: bool,
    /// Lists, readings and checks are refused with this.
    pub(super) refuses: HashMap<&'static str, ReturnCode>,
}

struct Watch {
    since_us: i64,
    every_us: i64,
}

/// The engine.
pub(super) struct Fake {
    pub(super) now: Cell<Moment>,
    pub(super) world: RefCell<World>,
    groups: RefCell<HashMap<u64, Vec<Entity>>>,
    fields: RefCell<HashMap<u64, (String, Vec<u16>)>>,
    watches: RefCell<HashMap<(u64, u64), ()>>,
    /// One for each pair, whatever the groups: a second watch replaces the first, and ending either ends both.
    pairs: RefCell<HashMap<(Entity, u16), Watch>>,
    /// Its profiling module is paused.
    pub(super) paused: Cell<bool>,
    next: Cell<u64>,
    pub(super) watch_calls: Cell<u32>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    /// Some GPUs, whose every field counts seconds.
    pub(super) fn new(gpus: u32) -> Self {
        let gpu = |id: u32| {
            let attributes = Attributes {
                uuid: Some(format!("GPU-{id}")),
                pci: Some(format!("00000000:1{id}:00.0")),
                name: Some("NVIDIA H100".into()),
                serial: Some(format!("165{id}")),
                driver: Some("570.86.15".into()),
            };
            (id, (GpuState::Ok, attributes))
        };
        let world = World {
            gpus: (0..gpus).map(gpu).collect(),
            mig: Vec::new(),
            switches: Vec::new(),
            links: Vec::new(),
            cpus: Vec::new(),
            value: Box::new(|entity, field, _, us| match field {
                54 => Says::Text(format!("MIG-{}", entity.id)),
                50 => Says::Text("1g.10gb".into()),
                52 | 55 => Says::Int(entity.id.into()),
                _ => Says::Int((us - EPOCH_US) / 1_000_000),
            }),
            watch: Box::new(|_, _| Ok(())),
            xids: Vec::new(),
            incidents: Vec::new(),
            metric_groups: Vec::new(),
            pause: Ok(()),
            paused_elsewhere: false,
            first_latest: Ok(()),
            unknown: HashSet::new(),
            dead: false,
            well: true,
            refuses: HashMap::new(),
        };
        Self {
            now: Cell::new(Moment { mono: MonoNs(1_000_000_000_000), wall_us: EPOCH_US }),
            world: RefCell::new(world),
            groups: RefCell::default(),
            fields: RefCell::default(),
            watches: RefCell::default(),
            pairs: RefCell::default(),
            paused: Cell::new(false),
            // Ids of field groups begin at 4.
            next: Cell::new(4),
            watch_calls: Cell::new(0),
        }
    }

    /// Moves both clocks.
    pub(super) fn pass(&self, time: Duration) {
        let now = self.now.get();
        let us = i64::try_from(time.as_micros()).unwrap();
        self.now.set(Moment { mono: now.mono.after(time), wall_us: now.wall_us + us });
    }

    pub(super) fn seconds(&self) -> i64 {
        (self.now.get().wall_us - EPOCH_US) / 1_000_000
    }

    /// Watched field sets, in order.
    pub(super) fn watched(&self) -> Vec<(Vec<Entity>, Vec<u16>)> {
        let (groups, fields) = (self.groups.borrow(), self.fields.borrow());
        let watches = self.watches.borrow();
        let mut all: Vec<_> = watches.keys().map(|(g, f)| (groups[g].clone(), fields[f].1.clone())).collect();
        all.sort();
        all
    }

    /// Groups and field groups that are left.
    pub(super) fn left(&self) -> usize {
        self.groups.borrow().len() + self.fields.borrow().len() + self.watches.borrow().len()
    }

    fn alive(&self) -> Answer<std::cell::Ref<'_, World>> {
        let world = self.world.borrow();
        if world.dead { Err(ReturnCode::CONNECTION_NOT_VALID) } else { Ok(world) }
    }

    /// As [`Self::alive`], unless a script refuses this.
    fn grants(&self, what: &str) -> Answer<std::cell::Ref<'_, World>> {
        let world = self.alive()?;
        world.refuses.get(what).map_or(Ok(()), |code| Err(*code))?;
        Ok(world)
    }

    fn id(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    fn deliver(each: Each<'_>, entity: Entity, field: u16, ts_us: i64, says: &Says) {
        let ok = ReturnCode::OK;
        let (status, ts_us, value) = match says {
            Says::Int(n) => (ok, ts_us, Ok(Value::Int(*n))),
            Says::Double(x) => (ok, ts_us, Ok(Value::Double(*x))),
            Says::Text(text) => (ok, ts_us, Ok(Value::Text(text))),
            Says::Binary => (ok, ts_us, Ok(Value::Binary)),
            Says::Blank => (ok, ts_us, Err(Absent::Blank)),
            Says::Code(code) => (*code, 0, Err(Absent::Blank)),
            Says::At(us, n) => (ok, *us, Ok(Value::Int(*n))),
        };
        each(entity, &FieldValue { field, status, ts_us, value });
    }
}

impl Dcgm for Fake {
    type Group = u64;
    type Fields = u64;

    fn is_healthy(&self) -> Answer<bool> {
        Ok(self.alive()?.well)
    }

    fn dropped_values(&self) -> u64 {
        0
    }

    fn version(&self) -> Answer<String> {
        self.alive().map(|_| "4.6.0".to_owned())
    }

    fn group_limit(&self) -> usize {
        64
    }

    fn knows(&self, field: u16) -> bool {
        !self.world.borrow().unknown.contains(&field)
    }

    fn gpus(&self) -> Answer<Vec<u32>> {
        Ok(self.grants("gpus")?.gpus.keys().copied().collect())
    }

    fn gpu_state(&self, gpu: u32) -> Answer<GpuState> {
        self.alive()?.gpus.get(&gpu).map(|g| g.0).ok_or(ReturnCode::BAD_PARAM)
    }

    fn attributes(&self, gpu: u32) -> Answer<Attributes> {
        self.alive()?.gpus.get(&gpu).map(|g| g.1.clone()).ok_or(ReturnCode::BAD_PARAM)
    }

    fn architecture(&self, _: u32) -> Option<String> {
        Some("hopper".into())
    }

    fn switches(&self) -> Answer<Vec<u32>> {
        Ok(self.grants("switches")?.switches.clone())
    }

    fn mig(&self) -> Answer<Vec<MigEntity>> {
        Ok(self.grants("mig")?.mig.clone())
    }

    fn links(&self) -> Answer<Vec<(Entity, u32, Entity)>> {
        Ok(self.grants("links")?.links.clone())
    }

    fn cpus(&self) -> Answer<Vec<(u32, Vec<u32>)>> {
        Ok(self.grants("cpus")?.cpus.clone())
    }

    fn topology(&self, gpu: u32) -> Answer<Topology> {
        let others = self.alive()?.gpus.keys().filter(|id| **id != gpu).map(|id| (*id, 18)).collect();
        Ok(Topology { affinity: Some("0-31".into()), peers: others })
    }

    fn group(&self, _: &str, entities: &[Entity]) -> Answer<u64> {
        let world = self.alive()?;
        for entity in entities {
            if world.gpus.get(&entity.id).is_some_and(|g| g.0 == GpuState::Lost)
                && *entity == Entity::gpu(entity.id)
            {
                return Err(ReturnCode::GPU_IS_LOST);
            }
        }
        let id = self.id();
        self.groups.borrow_mut().insert(id, entities.to_vec());
        Ok(id)
    }

    fn destroy_group(&self, group: u64) -> Answer<()> {
        self.alive()?;
        self.groups.borrow_mut().remove(&group).map(|_| ()).ok_or(ReturnCode::NOT_CONFIGURED)
    }

    fn fields(&self, name: &str, fields: &[u16]) -> Answer<u64> {
        let world = self.alive()?;
        if self.fields.borrow().values().any(|(taken, _)| taken == name) {
            return Err(ReturnCode::DUPLICATE_KEY);
        }
        if fields.is_empty() || fields.len() > 128 || fields.iter().any(|f| world.unknown.contains(f)) {
            return Err(ReturnCode::BAD_PARAM);
        }
        let id = self.id();
        self.fields.borrow_mut().insert(id, (name.to_owned(), fields.to_vec()));
        Ok(id)
    }

    fn destroy_fields(&self, fields: u64) -> Answer<()> {
        self.alive()?;
        self.fields.borrow_mut().remove(&fields).map(|_| ()).ok_or(ReturnCode::NO_DATA)
    }

    fn watch(&self, g: u64, f: u64, every: Duration, _: Duration) -> Answer<()> {
        self.watch_calls.set(self.watch_calls.get() + 1);
        let world = self.alive()?;
        (world.watch)(&self.groups.borrow()[&g], &self.fields.borrow()[&f].1)?;
        let every_us = i64::try_from(every.as_micros()).unwrap();
        self.watches.borrow_mut().insert((g, f), ());
        let (groups, fields) = (self.groups.borrow(), self.fields.borrow());
        for &entity in &groups[&g] {
            for &field in &fields[&f].1 {
                let watch = Watch { since_us: self.now.get().wall_us, every_us };
                self.pairs.borrow_mut().insert((entity, field), watch);
            }
        }
        Ok(())
    }

    fn unwatch(&self, group: u64, fields: u64) -> Answer<()> {
        self.alive()?;
        self.watches.borrow_mut().remove(&(group, fields)).ok_or(ReturnCode::NOT_CONFIGURED)?;
        let (groups, all) = (self.groups.borrow(), self.fields.borrow());
        let is_of = |(entity, field): &(Entity, u16)| {
            groups[&group].contains(entity) && all[&fields].1.contains(field)
        };
        self.pairs.borrow_mut().retain(|pair, _| !is_of(pair));
        Ok(())
    }

    fn latest(&self, group: u64, fields: u64, each: Each<'_>) -> Answer<()> {
        let world = self.alive()?;
        world.first_latest?;
        let (groups, all) = (self.groups.borrow(), self.fields.borrow());
        let pairs = self.pairs.borrow();
        let entities = groups.get(&group).ok_or(ReturnCode::NOT_CONFIGURED)?;
        let (_, fields_of) = all.get(&fields).ok_or(ReturnCode::NO_DATA)?;
        for &entity in entities {
            for &field in fields_of {
                let says = match pairs.get(&(entity, field)) {
                    None => (0, Says::Code(ReturnCode::NOT_WATCHED)),
                    Some(watch) => {
                        let age = (self.now.get().wall_us - watch.since_us).rem_euclid(watch.every_us);
                        let ts_us = self.now.get().wall_us - age;
                        (ts_us, (world.value)(entity, field, fields_of, ts_us))
                    }
                };
                Self::deliver(each, entity, field, says.0, &says.1);
            }
        }
        Ok(())
    }

    fn since(&self, group: u64, _: u64, since_us: i64, each: Each<'_>) -> Answer<i64> {
        let world = self.grants("since")?;
        let now_us = self.now.get().wall_us;
        for &entity in self.groups.borrow().get(&group).ok_or(ReturnCode::NOT_CONFIGURED)? {
            let mut any = false;
            for (known_us, of, number, at) in &world.xids {
                if *of == entity && *known_us <= now_us && *at >= since_us {
                    any = true;
                    Self::deliver(each, entity, 230, *at, &Says::Int(*number));
                }
            }
            if !any {
                Self::deliver(each, entity, 230, 0, &Says::Code(ReturnCode::NO_DATA));
            }
        }
        Ok(now_us + 1)
    }

    fn set_health(&self, group: u64, _: Duration) -> Answer<()> {
        self.grants("set_health")?;
        self.groups.borrow().get(&group).map(|_| ()).ok_or(ReturnCode::NOT_CONFIGURED)
    }

    fn check_health(&self, group: u64) -> Answer<Vec<Incident>> {
        let world = self.grants("check_health")?;
        self.groups.borrow().get(&group).ok_or(ReturnCode::NOT_CONFIGURED)?;
        Ok(world.incidents.clone())
    }

    fn metric_groups(&self, _: u32) -> Answer<Vec<MetricGroup>> {
        Ok(self.alive()?.metric_groups.clone())
    }

    fn modules(&self) -> Answer<Vec<ModuleStatus>> {
        let state = if self.alive()?.paused_elsewhere { ModuleState::Paused } else { ModuleState::Loaded };
        Ok(vec![ModuleStatus { id: 8, name: "profiling", state }])
    }

    fn pause(&self) -> Answer<()> {
        self.alive()?.pause?;
        self.paused.set(true);
        Ok(())
    }

    fn resume(&self) -> Answer<()> {
        self.alive()?.pause?;
        self.paused.set(false);
        Ok(())
    }
}
