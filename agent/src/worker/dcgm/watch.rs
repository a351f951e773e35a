//! Watches fields so that one refused field takes no other with it.
//!
//! In: entities and fields. Out: [`Unit`]s that are watched, and [`Refused`] pairs with the engine's code. What can go
//! wrong: the engine undoes a whole call when one pair is refused. The bad ones are then found by halving, in at most
//! [`TRIES`] calls; what is not told apart by then is refused together, for now.
//!
//! Every group and field group gets a name that no one else in the engine has had: names of field groups must be
//! unique there, and ids mean something else on the next engine.

use std::collections::BTreeMap;
use std::time::Duration;

use super::engine::{Answer, Caller, Dcgm, Entity, ReturnCode, is_gone};

/// Calls that one want may cost when it is refused.
const TRIES: u32 = 96;
/// Source: `DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP`.
const FIELDS_MAX: usize = 128;

/// Fields that are watched on entities, as one group and one field group.
#[derive(Debug)]
pub(super) struct Unit<D: Dcgm> {
    pub(super) group: D::Group,
    pub(super) handle: D::Fields,
    /// In order.
    pub(super) entities: Vec<Entity>,
    /// In order.
    pub(super) fields: Vec<u16>,
    pub(super) every: Duration,
}

/// A pair that the engine refuses to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Refused {
    pub(super) entity: Entity,
    pub(super) field: u16,
    pub(super) code: ReturnCode,
}

/// Makes watches.
#[derive(Debug)]
pub(super) struct Watcher<'a, D: Dcgm> {
    pub(super) caller: Caller<'a, D>,
    prefix: String,
    made: u64,
    tries: u32,
}

impl<'a, D: Dcgm> Watcher<'a, D> {
    /// `prefix` is of this connection only.
    pub(super) fn new(caller: Caller<'a, D>, prefix: String) -> Self {
        Self { caller, prefix, made: 0, tries: 0 }
    }

    /// Watches what can be watched.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn watch(
        &mut self,
        entities: &[Entity],
        fields: &[u16],
        every: Duration,
        hw_id: &str,
    ) -> Answer<(Vec<Unit<D>>, Vec<Refused>)> {
        self.tries = TRIES;
        let (mut units, mut refused) = (Vec::new(), Vec::new());
        let limit = self.caller.local().group_limit().max(1);
        for entities in entities.chunks(limit) {
            // A field that the library does not know would have the whole field group refused.
            let known = |field: &u16| self.caller.local().knows(*field);
            let (known, unknown): (Vec<u16>, Vec<u16>) = fields.iter().copied().partition(known);
            refuse(entities, &unknown, ReturnCode::UNKNOWN_FIELD, &mut refused);
            for fields in known.chunks(FIELDS_MAX) {
                self.watch_group(entities, fields, every, hw_id, &mut units, &mut refused)?;
            }
        }
        Ok((units, refused))
    }

    fn watch_group(
        &mut self,
        entities: &[Entity],
        fields: &[u16],
        every: Duration,
        hw_id: &str,
        units: &mut Vec<Unit<D>>,
        refused: &mut Vec<Refused>,
    ) -> Answer<()> {
        match self.one(entities, fields, every, hw_id) {
            Ok(unit) => {
                units.push(unit);
                return Ok(());
            }
            Err(code) if is_gone(code) => return Err(code),
            // No room for another group: smaller ones need more.
            Err(ReturnCode::MAX_LIMIT) => refuse(entities, fields, ReturnCode::MAX_LIMIT, refused),
            Err(code) => {
                let mut bad = Vec::new();
                self.find_bad(entities, fields, every, hw_id, code, &mut bad)?;
                // Entities with the same good fields are watched together again.
                let mut sets: BTreeMap<Vec<u16>, Vec<Entity>> = BTreeMap::new();
                for &entity in entities {
                    let is_bad = |f: &u16| bad.iter().any(|r| r.entity == entity && r.field == *f);
                    let good: Vec<u16> = fields.iter().copied().filter(|f| !is_bad(f)).collect();
                    if !good.is_empty() {
                        sets.entry(good).or_default().push(entity);
                    }
                }
                refused.append(&mut bad);
                for (fields, entities) in sets {
                    self.apart(&entities, &fields, every, hw_id, units, refused)?;
                }
            }
        }
        Ok(())
    }

    /// Watches in as few units as the engine takes: each pair is good, but they may not go together.
    fn apart(
        &mut self,
        entities: &[Entity],
        fields: &[u16],
        every: Duration,
        hw_id: &str,
        units: &mut Vec<Unit<D>>,
        refused: &mut Vec<Refused>,
    ) -> Answer<()> {
        match self.one(entities, fields, every, hw_id) {
            Ok(unit) => units.push(unit),
            Err(code) if is_gone(code) => return Err(code),
            Err(_) if fields.len() > 1 && self.tries > 1 => {
                self.tries -= 2;
                let (a, b) = fields.split_at(fields.len().div_ceil(2));
                self.apart(entities, a, every, hw_id, units, refused)?;
                self.apart(entities, b, every, hw_id, units, refused)?;
            }
            Err(code) => refuse(entities, fields, code, refused),
        }
        Ok(())
    }

    /// Halves what was refused with `code` until the bad pairs are alone.
    fn find_bad(
        &mut self,
        entities: &[Entity],
        fields: &[u16],
        every: Duration,
        hw_id: &str,
        code: ReturnCode,
        bad: &mut Vec<Refused>,
    ) -> Answer<()> {
        // One bad entity is told apart before the fields are; otherwise a field that nobody can give would be sought
        // on each of them.
        let of_entity = code == ReturnCode::GPU_IS_LOST && entities.len() > 1;
        let split = |n: usize| n.div_ceil(2);
        let parts: Vec<(&[Entity], &[u16])> = if fields.len() > 1 && !of_entity {
            let (a, b) = fields.split_at(split(fields.len()));
            vec![(entities, a), (entities, b)]
        } else if entities.len() > 1 {
            let (a, b) = entities.split_at(split(entities.len()));
            vec![(a, fields), (b, fields)]
        } else {
            refuse(entities, fields, code, bad);
            return Ok(());
        };
        for (entities, fields) in parts {
            if self.tries == 0 {
                refuse(entities, fields, code, bad);
                continue;
            }
            self.tries -= 1;
            match self.one(entities, fields, every, hw_id) {
                Ok(unit) => self.end(unit)?,
                Err(code) if is_gone(code) => return Err(code),
                Err(code) => self.find_bad(entities, fields, every, hw_id, code, bad)?,
            }
        }
        Ok(())
    }

    /// One watch, all or nothing.
    ///
    /// # Errors
    /// Why the engine refused; nothing of it is left there.
    pub(super) fn one(
        &mut self,
        entities: &[Entity],
        fields: &[u16],
        every: Duration,
        hw_id: &str,
    ) -> Answer<Unit<D>> {
        let (mut entities, mut fields) = (entities.to_vec(), fields.to_vec());
        entities.sort_unstable();
        fields.sort_unstable();
        let group = self.group(&entities)?;
        let name = self.name();
        let handle = match self.caller.call("dcgmFieldGroupCreate", hw_id, |d| d.fields(&name, &fields)) {
            Ok(handle) => handle,
            Err(code) => {
                let _of_no_use = self.caller.call("dcgmGroupDestroy", "", |d| d.destroy_group(group));
                return Err(code);
            }
        };
        let keep = keep(every, &fields);
        let watched = self.caller.call("dcgmWatchFields", hw_id, |d| d.watch(group, handle, every, keep));
        let unit = Unit { group, handle, entities, fields, every };
        match watched {
            Ok(()) => Ok(unit),
            Err(code) => {
                self.destroy(&unit)?;
                Err(code)
            }
        }
    }

    /// A group of entities under a new name.
    ///
    /// # Errors
    /// Why the engine refused.
    pub(super) fn group(&mut self, entities: &[Entity]) -> Answer<D::Group> {
        let name = self.name();
        self.caller.call("dcgmGroupCreate", "", |d| d.group(&name, entities))
    }

    /// Ends a watch: unwatch, then the field group, then the group.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn end(&self, unit: Unit<D>) -> Answer<()> {
        let ended = self.caller.call("dcgmUnwatchFields", "", |d| d.unwatch(unit.group, unit.handle));
        super::inventory::unless_gone(ended)?;
        self.destroy(&unit)
    }

    fn destroy(&self, unit: &Unit<D>) -> Answer<()> {
        let fields = self.caller.call("dcgmFieldGroupDestroy", "", |d| d.destroy_fields(unit.handle));
        super::inventory::unless_gone(fields)?;
        let group = self.caller.call("dcgmGroupDestroy", "", |d| d.destroy_group(unit.group));
        super::inventory::unless_gone(group)
    }

    fn name(&mut self) -> String {
        self.made += 1;
        format!("{}-{}", self.prefix, self.made)
    }
}

/// How long the engine keeps samples: what the latest value needs, or a minute of events. The engine keeps whole
/// seconds, at least one.
fn keep(every: Duration, fields: &[u16]) -> Duration {
    let events = fields.iter().any(|f| super::plan::EVENTS.contains(f));
    let least = every.saturating_mul(3).max(Duration::from_secs(3));
    if events { least.max(Duration::from_secs(60)) } else { least }
}

fn refuse(entities: &[Entity], fields: &[u16], code: ReturnCode, refused: &mut Vec<Refused>) {
    for &entity in entities {
        refused.extend(fields.iter().map(|&field| Refused { entity, field, code }));
    }
}
