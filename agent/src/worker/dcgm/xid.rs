//! XIDs (field 230): each event once.
//!
//! In: values since the previous reading, with an overlap. Out: events, each with its own time. What can go wrong:
//! the engine adds a kernel-log event late and with an older time, so a reading that only goes on from the last one
//! would lose it; and it records 79, 119 and 120 twice, once from NVML and once from the kernel log, up to a second
//! apart. The overlap finds the first, a window joins the second. The engine takes one NVML event a second, of whatever
//! GPU: in a burst the record of NVML is as many seconds later as there are events before it, and so wide is the window.
//!
//! A new engine reads the whole kernel log again and tells what is hours old. What is not younger than the newest
//! event that was told before the connection was made anew is not told again; what is new to us keeps its old time,
//! by which a reader sees that it is old. Blanks and the engine's "no data" entries are no events.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::engine::{Absent, Answer, Caller, Dcgm, Entity, EntityGroup, FieldValue, ReturnCode, Value};
use super::inventory::Inventory;
use super::plan::{self, XID};
use super::poll;
use super::watch::{Unit, Watcher};
use crate::model::MonoNs;
use crate::wire::report::{self, Content, Kind};
use crate::worker::moment::Moment;

/// How often they are read.
const EVERY: Duration = Duration::from_secs(1);
/// How often those of instances are, where there are many: each costs an entry in each answer.
const EVERY_OF_MANY: Duration = Duration::from_secs(5);
const MANY: usize = 32;
/// How far back each reading looks again.
const OVERLAP_US: i64 = 5_000_000;
/// Both records of one fault lie within this. Measured: 972 ms.
const TWICE_US: i64 = 1_500_000;
/// One NVML event is taken in this time.
const DRAIN_US: i64 = 1_000_000;
/// No burst that one GPU survives lasts longer.
const BURST_US: i64 = 60_000_000;
/// Recorded from NVML and from the kernel log. Source: measured, and the engine's default list.
const TWO_WAYS: [i64; 3] = [79, 119, 120];
/// Events remembered to tell each once; at one event per second and entity far more than an overlap can hold.
const REMEMBERED: usize = 8_192;

/// What was told, by device; outlives the connection.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// (time, value) of events by key.
    events: HashMap<u32, BTreeSet<(i64, i64)>>,
    /// By key: the time of the newest event that was forgotten. Nothing up to there is news.
    floors: HashMap<u32, i64>,
    count: usize,
}

impl Told {
    /// Whether an event is news; if so it is remembered.
    pub(super) fn is_news(&mut self, key: u32, value: i64, at_us: i64) -> bool {
        if self.floors.get(&key).is_some_and(|floor| at_us <= *floor) {
            return false;
        }
        let near = (at_us.saturating_sub(BURST_US), i64::MIN)..=(at_us.saturating_add(BURST_US), i64::MAX);
        let mut same = self
            .events
            .get(&key)
            .into_iter()
            .flat_map(|e| e.range(near.clone()))
            .filter(|(_, told)| *told == value);
        if same.any(|(at, _)| *at == at_us || self.is_the_other_record(value, *at, at_us)) {
            return false;
        }
        self.events.entry(key).or_default().insert((at_us, value));
        self.count += 1;
        if self.count > REMEMBERED {
            self.forget();
        }
        true
    }

    /// Whether records of one number on one device, at two times, are of one fault, told from NVML and the kernel log.
    fn is_the_other_record(&self, value: i64, a_us: i64, b_us: i64) -> bool {
        let (first, last) = (a_us.min(b_us), a_us.max(b_us));
        let apart = last.saturating_sub(first);
        if !TWO_WAYS.contains(&value) || apart > BURST_US {
            return false;
        }
        let before =
            |events: &BTreeSet<(i64, i64)>| events.range((first + 1, i64::MIN)..(last, i64::MIN)).count();
        let queued: usize = self.events.values().map(before).sum();
        apart <= TWICE_US.saturating_add(i64::try_from(queued).unwrap_or(0).saturating_mul(DRAIN_US))
    }

    /// Forgets the older half of the fullest device.
    fn forget(&mut self) {
        let Some((key, events)) = self.events.iter_mut().max_by_key(|(_, events)| events.len()) else {
            return;
        };
        for _ in 0..events.len().div_ceil(2) {
            if let Some((at, _)) = events.pop_first() {
                self.floors.insert(*key, at);
            }
            self.count = self.count.saturating_sub(1);
        }
    }
}

/// The watches of one connection.
#[derive(Debug)]
pub(super) struct Xids<D: Dcgm> {
    parts: Vec<Watched<D>>,
    pub(super) due: MonoNs,
}

/// As many entities as fit into one group.
#[derive(Debug)]
struct Watched<D: Dcgm> {
    unit: Unit<D>,
    since_us: i64,
    due: MonoNs,
}

impl<D: Dcgm> Xids<D> {
    /// Watches XIDs on every GPU, GPU instance and compute instance; `None` where there is nothing to watch them on. And
    /// the code of what was refused.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn watch(
        watcher: &mut Watcher<'_, D>,
        found: &Inventory,
        now: MonoNs,
    ) -> Answer<(Option<Self>, Option<ReturnCode>)> {
        let field = plan::Watched { id: XID, level: EntityGroup::ComputeInstance, profiling: false };
        let all = plan::entities(field, found, None);
        let (gpus, mut instances): (Vec<Entity>, Vec<Entity>) =
            all.into_iter().partition(|entity| entity.group == EntityGroup::Gpu);
        // The event names a GPU instance where it knows no compute instance.
        instances
            .extend(found.instances.iter().map(|i| i.entity).filter(|e| e.group == EntityGroup::GpuInstance));
        let every = if instances.len() > MANY { EVERY_OF_MANY } else { EVERY };
        let (mut parts, mut code) = (Vec::new(), None);
        for (entities, every) in [(gpus, EVERY), (instances, every)] {
            if !entities.is_empty() {
                let (units, refused) = watcher.watch(&entities, &[XID], every, "")?;
                parts.extend(units.into_iter().map(|unit| Watched { unit, since_us: 0, due: now }));
                code = code.or(refused.first().map(|pair| pair.code));
            }
        }
        Ok(((!parts.is_empty()).then_some(Self { parts, due: now }), code))
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
        let mut refused = None;
        for part in self.parts.iter_mut().filter(|part| now.mono >= part.due) {
            part.due = now.mono.after(part.unit.every);
            let (unit, since) = (&part.unit, part.since_us);
            let next = caller.call("dcgmGetValuesSince_v2", "", |d| {
                d.since(unit.group, unit.handle, since, &mut |entity, value| {
                    if let Some((number, at)) = event(value) {
                        events.push((entity, number, at));
                    }
                })
            });
            match next {
                // The engine's clock: the answer's time, not ours, even where it was set back.
                Ok(next) => part.since_us = next.saturating_sub(OVERLAP_US),
                Err(code) => refused = Some(code),
            }
        }
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
        refused.map_or(Ok(()), Err)
    }

    /// Ends the watches.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn end(self, watcher: &Watcher<'_, D>) -> Answer<()> {
        self.parts.into_iter().try_for_each(|part| watcher.end(part.unit))
    }
}

fn event(value: &FieldValue<'_>) -> Option<(i64, i64)> {
    let present: Result<&Value<'_>, &Absent> = value.value.as_ref();
    match (value.status, present) {
        (ReturnCode::OK, Ok(Value::Int(number))) if value.ts_us > 0 => Some((*number, value.ts_us)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_does_not_come_again() {
        let mut told = Told::default();
        let events = || 1..=i64::try_from(REMEMBERED).unwrap() + 1;
        assert!(events().all(|at| told.is_news(1, 31, at)));
        assert!(told.count <= REMEMBERED, "bounded");
        assert!(events().all(|at| !told.is_news(1, 31, at)));
        assert!(told.is_news(2, 31, 1), "of another device");
    }

    #[test]
    fn a_burst_widens_the_window_of_both_records() {
        #[track_caller]
        fn check(events: &[(u32, i64, i64)], want: &[bool]) {
            let mut told = Told::default();
            let news: Vec<bool> =
                events.iter().map(|(key, value, ms)| told.is_news(*key, *value, *ms * 1_000)).collect();
            assert_eq!(news, want, "{events:?}");
        }
        check(&[(1, 79, 100), (1, 79, 1_072)], &[true, false]);
        check(&[(1, 79, 100), (1, 79, 3_072)], &[true, true]);
        let burst = [(1, 79, 100), (2, 31, 1_050), (2, 43, 2_050), (1, 79, 3_050)];
        check(&burst, &[true, true, true, false]);
        check(&[(1, 31, 100), (2, 43, 200), (1, 31, 900)], &[true, true, true]);
        check(&[(1, 79, 100), (2, 31, 1_050), (1, 79, 9_000)], &[true, true, true]);
        check(&[(1, 31, 100), (1, 31, 100)], &[true, false]);
    }
}
