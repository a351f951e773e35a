//! Reads a watched unit once per interval, soon after the engine sampled it.
//!
//! In: the latest values of a [`Unit`]. Out: one batch of news per device and part, and an [`Outcome`] for who decides
//! what to do about a unit that gives nothing. What can go wrong: the engine answers for an entity that was not asked
//! for; it is left out.

use std::collections::HashMap;
use std::time::Duration;

use super::engine::{Answer, Caller, Dcgm, Entity, FieldValue, GpuState, ReturnCode};
use super::inventory::{Inventory, Target, origin};
use super::readings::{Circumstances, Slot};
use super::watch::Unit;
use crate::model::{Absence, MonoNs, Part};
use crate::wire::report::{self, Kind, Samples};
use crate::worker::link::Link;
use crate::worker::moment::Moment;

/// A sample becomes readable this long after its time.
const SETTLE: Duration = Duration::from_millis(30);

/// Memory of what was told, by who gives it: outlives the watch.
pub(super) type Slots = HashMap<(u32, Part, Entity, u16), Slot>;

/// A unit and what is known of its values.
#[derive(Debug)]
pub(super) struct Poll<D: Dcgm> {
    pub(super) unit: Unit<D>,
    pub(super) profiling: Option<u32>,
    /// When it is to be read next.
    pub(super) due: MonoNs,
    /// When it was watched.
    pub(super) since: MonoNs,
    /// Reads in a row with a fresh sample of every field and a value of none.
    pub(super) blank_reads: u32,
    /// It had a value.
    pub(super) worked: bool,
    /// Time of reads in a row without a new value.
    pub(super) missed: Duration,
    /// How often it was watched anew without success.
    pub(super) anew: u32,
    /// Pairs that the last read found not watched.
    pub(super) forgotten: Vec<(Entity, u16)>,
    /// Which pair of halves it is one of, while a conflict is looked for.
    pub(super) pair: Option<u32>,
    /// All blank, but there was no conflict: not to be split before then, and how long to wait the next time.
    pub(super) whole_until: Option<MonoNs>,
    targets: Vec<Target>,
    /// By entity, then field.
    slots: Vec<Slot>,
    /// News by entity; the lists become messages.
    news: Vec<Vec<report::Value>>,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// A new value.
    pub(super) fresh: bool,
    /// Nothing but blanks, of two fields or more.
    pub(super) all_blank: bool,
    /// Something is not watched any more.
    pub(super) unwatched: bool,
    /// A device is gone or lost: the lists are to be read again at once.
    pub(super) changed: bool,
}

impl<D: Dcgm> Poll<D> {
    /// Begins to read a unit; `slots` remembers what was told before.
    pub(super) fn new(
        unit: Unit<D>,
        profiling: Option<u32>,
        found: &Inventory,
        slots: &Slots,
        now: MonoNs,
    ) -> Self {
        let target = |entity: &Entity| found.targets.get(entity).cloned();
        let targets: Vec<Target> = unit.entities.iter().filter_map(target).collect();
        let mut known = Vec::with_capacity(targets.len() * unit.fields.len());
        for (entity, target) in unit.entities.iter().zip(&targets) {
            for &field in &unit.fields {
                let was = slots.get(&(target.key, target.part, *entity, field));
                known.push(was.copied().unwrap_or_default().watched_anew());
            }
        }
        Self {
            news: targets.iter().map(|_| Vec::new()).collect(),
            slots: known,
            targets,
            unit,
            profiling,
            due: now.after(SETTLE),
            since: now,
            blank_reads: 0,
            worked: false,
            missed: Duration::ZERO,
            anew: 0,
            forgotten: Vec::new(),
            pair: None,
            whole_until: None,
        }
    }

    /// Puts what was told where the next watch finds it.
    pub(super) fn remember(&self, slots: &mut Slots) {
        let mut known = self.slots.iter();
        for (entity, target) in self.unit.entities.iter().zip(&self.targets) {
            for (&field, slot) in self.unit.fields.iter().zip(known.by_ref()) {
                slots.insert((target.key, target.part, *entity, field), *slot);
            }
        }
    }

    /// Whether anything of a GPU has a value: `None` where nothing of it is read here, or all has a reason to be absent.
    pub(super) fn sees(&self, gpu: u32) -> Option<bool> {
        let width = self.unit.fields.len().max(1);
        let of_gpu = self.targets.iter().zip(self.slots.chunks(width)).filter(|(t, _)| t.gpu == Some(gpu));
        let mut dark = None;
        for slot in of_gpu.flat_map(|(_, slots)| slots) {
            if slot.is_lit() {
                return Some(true);
            }
            if slot.is_dark() {
                dark = Some(false);
            }
        }
        dark
    }

    /// Reads it, sends the news, and sets the time of the next read.
    ///
    /// # Errors
    /// The whole read was refused.
    pub(super) fn read(
        &mut self,
        caller: &Caller<'_, D>,
        found: &Inventory,
        paused: bool,
        now: impl Fn() -> Moment,
        each: &mut dyn FnMut(Entity, &Target, &FieldValue<'_>),
    ) -> Answer<Outcome> {
        let at = now();
        // A read that is refused is tried again an interval later.
        self.due = at.mono.after(self.unit.every);
        let Self { unit, targets, slots, news, profiling, forgotten, .. } = self;
        forgotten.clear();
        let mut is = Circumstances {
            now: at,
            every: unit.every,
            since: self.since,
            state: GpuState::Ok,
            paused: paused && profiling.is_some(),
            conflict: self.pair.is_some(),
        };
        let mut seen = Seen::default();
        let mut last: Option<(Entity, usize)> = None;
        let hw_id = if targets.len() == 1 { targets.first().map(|t| t.hw_id.clone()) } else { None };
        caller.call("dcgmGetLatestValues_v2", hw_id.as_deref().unwrap_or_default(), |d| {
            d.latest(unit.group, unit.handle, &mut |entity, value| {
                // Values come entity by entity.
                let place = match last {
                    Some((was, place)) if was == entity => place,
                    _ => {
                        let Ok(place) = unit.entities.binary_search(&entity) else { return };
                        let gpu = targets.get(place).and_then(|t| t.gpu);
                        is.state = found.state(gpu);
                        last = Some((entity, place));
                        place
                    }
                };
                let Ok(column) = unit.fields.binary_search(&value.field) else { return };
                let Some(slot) = slots.get_mut(place * unit.fields.len() + column) else { return };
                let newer = slot.is_newer(value.ts_us);
                if let Some(target) = targets.get(place).filter(|_| newer) {
                    each(entity, target, value);
                }
                let (gap, told) = (slot.gap(value), slot.judge(value, &is));
                seen.note(value, newer);
                if value.status == ReturnCode::NOT_WATCHED {
                    forgotten.push((entity, value.field));
                }
                if let Some(news) = news.get_mut(place) {
                    news.extend(gap.into_iter().chain(told));
                }
            })
        })?;
        self.send(caller.link, at);
        self.schedule(at, seen.newest_us);
        self.worked |= seen.values > 0;
        let outcome = seen.outcome();
        self.missed = match outcome.fresh {
            true => Duration::ZERO,
            false => self.missed.saturating_add(self.unit.every),
        };
        let young = at.mono.since(self.since).unwrap_or_default() < unit_age(self.unit.every);
        self.blank_reads = match outcome.all_blank {
            true if !young => self.blank_reads.saturating_add(1),
            true => self.blank_reads,
            false => 0,
        };
        Ok(outcome)
    }

    /// Tells one absence for all values: the read itself was refused.
    pub(super) fn absent(&mut self, link: &Link, found: &Inventory, absence: Absence, at: Moment) {
        let width = self.unit.fields.len().max(1);
        for (place, slots) in self.slots.chunks_mut(width).enumerate() {
            let is = Circumstances {
                now: at,
                every: self.unit.every,
                since: self.since,
                state: found.state(self.targets.get(place).and_then(|t| t.gpu)),
                paused: false,
                conflict: false,
            };
            let values = self.unit.fields.iter().zip(slots);
            let told = values.filter_map(|(field, slot)| slot.absent(*field, absence, &is));
            if let Some(news) = self.news.get_mut(place) {
                news.extend(told);
            }
        }
        self.send(link, at);
    }

    fn send(&mut self, link: &Link, at: Moment) {
        for (target, news) in self.targets.iter().zip(&mut self.news) {
            if news.is_empty() {
                continue;
            }
            let next = Vec::with_capacity(news.len());
            link.send(Kind::Samples(samples(target, at.mono, std::mem::replace(news, next))));
        }
    }

    /// The next sample is expected an interval after the newest; it is read as soon as it is there.
    fn schedule(&mut self, at: Moment, newest_us: i64) {
        let every = self.unit.every;
        let age = u64::try_from(at.age_ns(newest_us)).map(Duration::from_nanos);
        let wait = match age {
            Ok(age) if newest_us > 0 && age < every => (every - age).saturating_add(SETTLE),
            _ => every,
        };
        // Never much more often than the interval, whatever the engine's clock says.
        self.due = at.mono.after(wait.max(every / 2));
    }
}

/// The age at which a unit without values is worth a look: the first sample is blank for some fields.
fn unit_age(every: Duration) -> Duration {
    every.saturating_add(SETTLE)
}

/// A message for one device or part.
pub(super) fn samples(target: &Target, read: MonoNs, values: Vec<report::Value>) -> Samples {
    let (part, part_number) = match target.part {
        Part::Whole | Part::Port(_) => (0, 0),
        Part::Link(number) => (1, number),
        Part::Core(number) => (2, number),
    };
    Samples { origin: origin(), key: target.key, part, part_number, read_ns: read.0, values }
}

#[derive(Default)]
struct Seen {
    values: u32,
    blanks: u32,
    fresh: bool,
    unwatched: bool,
    changed: bool,
    newest_us: i64,
}

impl Seen {
    fn note(&mut self, value: &FieldValue<'_>, newer: bool) {
        self.newest_us = self.newest_us.max(value.ts_us);
        match (value.status, &value.value) {
            (ReturnCode::OK, Ok(_)) => {
                self.values += 1;
                self.fresh |= newer;
            }
            (ReturnCode::OK, Err(super::engine::Absent::Blank)) => self.blanks += 1,
            (ReturnCode::NOT_WATCHED, _) => self.unwatched = true,
            (
                ReturnCode::GPU_IS_LOST
                | ReturnCode::INSTANCE_NOT_FOUND
                | ReturnCode::COMPUTE_INSTANCE_NOT_FOUND,
                _,
            ) => self.changed = true,
            _ => {}
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            fresh: self.fresh,
            all_blank: self.values == 0 && self.blanks > 0,
            unwatched: self.unwatched,
            changed: self.changed,
        }
    }
}
