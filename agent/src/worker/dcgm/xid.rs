//! XIDs (field 230): each event once.
//!
//! In: values since the previous reading, with an overlap. Out: events, each with its own time. What can go wrong:
//! the engine adds a kernel-log event late and with an older time, so a reading that only goes on from the last one
//! would lose it; and it records 79, 119 and 120 twice, once from NVML and once from the kernel log, up to a second
//! apart. The overlap finds the first, a window joins the second.
//!
//! A new engine reads the whole kernel log again and tells what is hours old. What is not younger than the newest
//! event that was told before the connection was made anew is not told again; what is new to us keeps its old time,
//! by which a reader sees that it is old. Blanks and the engine's "no data" entries are no events.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::engine::{Absent, Answer, Caller, Dcgm, Entity, EntityGroup, FieldValue, ReturnCode, Value};
use super::inventory::Inventory;
use super::plan::{self, Watched, XID};
use super::poll;
use super::watch::{Unit, Watcher};
use crate::model::MonoNs;
use crate::wire::report::{self, Content, Kind};
use crate::worker::moment::Moment;

/// How often they are read.
pub(super) const EVERY: Duration = Duration::from_secs(1);
/// How far back each reading looks again.
const OVERLAP_US: i64 = 5_000_000;
/// Both records of one fault lie within this. Measured: 972 ms.
const TWICE_US: i64 = 1_500_000;
/// Recorded from NVML and from the kernel log. Source: measured, and the engine's default list.
const TWO_WAYS: [i64; 3] = [79, 119, 120];
/// Events remembered to tell each once; at one event per second and entity far more than an overlap can hold.
const REMEMBERED: usize = 8_192;

/// What was told, by device; outlives the connection.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// (time, value) of events by key.
    events: HashMap<u32, BTreeSet<(i64, i64)>>,
    count: usize,
}

impl Told {
    /// Whether an event is news; if so it is remembered.
    pub(super) fn is_news(&mut self, key: u32, value: i64, at_us: i64) -> bool {
        let events = self.events.entry(key).or_default();
        let window = if TWO_WAYS.contains(&value) { TWICE_US } else { 0 };
        let near = at_us.saturating_sub(window)..=at_us.saturating_add(window);
        let seen = events.iter().any(|(at, told)| *told == value && near.contains(at));
        if seen {
            return false;
        }
        events.insert((at_us, value));
        self.count += 1;
        if self.count > REMEMBERED {
            self.forget();
        }
        true
    }

    /// Forgets the older half of the fullest device.
    fn forget(&mut self) {
        let Some(events) = self.events.values_mut().max_by_key(|events| events.len()) else { return };
        for _ in 0..events.len().div_ceil(2) {
            events.pop_first();
            self.count = self.count.saturating_sub(1);
        }
    }
}

/// The watch of one connection.
#[derive(Debug)]
pub(super) struct Xids<D: Dcgm> {
    unit: Unit<D>,
    since_us: i64,
    pub(super) due: MonoNs,
}

impl<D: Dcgm> Xids<D> {
    /// Watches XIDs on every GPU, GPU instance and compute instance; `None` where there is nothing to watch them on.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn watch(
        watcher: &mut Watcher<'_, D>,
        found: &Inventory,
        now: MonoNs,
    ) -> Answer<Option<Self>> {
        let field = Watched { id: XID, level: EntityGroup::ComputeInstance, profiling: false };
        let mut entities = plan::entities(field, found, None);
        // The event names a GPU instance where it knows no compute instance.
        entities
            .extend(found.instances.iter().map(|i| i.entity).filter(|e| e.group == EntityGroup::GpuInstance));
        let limit = watcher.caller.local().group_limit();
        entities.truncate(limit);
        if entities.is_empty() {
            return Ok(None);
        }
        let (units, _) = watcher.watch(&entities, &[XID], EVERY, "")?;
        let largest = units.into_iter().max_by_key(|unit| unit.entities.len());
        Ok(largest.map(|unit| Self { unit, since_us: 0, due: now }))
    }

    /// Reads what is new and reports it.
    ///
    /// # Errors
    /// The reading was refused; it is tried again from the same time.
    pub(super) fn read(
        &mut self,
        caller: &Caller<'_, D>,
        found: &Inventory,
        told: &mut Told,
        now: Moment,
    ) -> Answer<()> {
        self.due = now.mono.after(EVERY);
        let mut events: Vec<(Entity, i64, i64)> = Vec::new();
        let (unit, since) = (&self.unit, self.since_us);
        let next = caller.call("dcgmGetValuesSince_v2", "", |d| {
            d.since(unit.group, unit.handle, since, &mut |entity, value| {
                if let Some((number, at)) = event(value) {
                    events.push((entity, number, at));
                }
            })
        })?;
        // The engine's clock: the answer's time, not ours.
        self.since_us = next.saturating_sub(OVERLAP_US).max(self.since_us);
        events.sort_by_key(|(_, _, at)| *at);
        for (entity, number, at) in events {
            let Some(target) = found.targets.get(&entity) else { continue };
            if !told.is_news(target.key, number, at) {
                continue;
            }
            let value = report::Value {
                field: XID.into(),
                age_ns: now.age_ns(at),
                content: Some(Content::Int(number)),
                stamp_us: at,
            };
            caller.link.send(Kind::Samples(poll::samples(target, now.mono, vec![value])));
        }
        Ok(())
    }

    /// The unit, to end it.
    pub(super) fn into_unit(self) -> Unit<D> {
        self.unit
    }
}

fn event(value: &FieldValue<'_>) -> Option<(i64, i64)> {
    let present: Result<&Value<'_>, &Absent> = value.value.as_ref();
    match (value.status, present) {
        (ReturnCode::OK, Ok(Value::Int(number))) if value.ts_us > 0 => Some((*number, value.ts_us)),
        _ => None,
    }
}
