//! Groups of entities, groups of fields, and watches: what the engine samples for us.
//!
//! In: entities, field ids, intervals. Out: handles that mean something to this engine only. What can go
//! wrong: see [`Engine`]; the engine takes an interval of zero, a name twice in another client's way, or too
//! many fields in silence or with a bare code, so these are refused here in words. Source: `dcgm_agent.h`,
//! `dcgm_structs.h`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::connect::c_string;
use super::{Engine, check};
use crate::abi::group::{GroupInfoV2, GroupInfoV3};
use crate::abi::{self, Handle, Versioned};
use crate::entity::{Entity, EntityGroup};
use crate::error::Error;
use crate::return_code::ReturnCode;

/// Most fields of a field group, `DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP`.
pub(super) const FIELDS_MAX: usize = 128;
/// Longest name that the engine keeps whole.
const NAME_MAX: usize = 200;
/// An empty group. Source: `dcgmGroupType_t`.
const EMPTY: u32 = 1;
/// How often another name is tried when one is taken.
const NAMES_TRIED: usize = 8;

/// A group of entities of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    id: Handle,
    engine: u64,
}

/// A group of fields of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldGroup {
    id: Handle,
    engine: u64,
}

/// Makes names of field groups unique: the engine knows those of all its clients.
static COUNTER: AtomicU32 = AtomicU32::new(0);

impl Engine<'_> {
    /// Most entities of a group: 1024 from 4.0, 64 before.
    pub fn entities_max(&self) -> usize {
        let oldest = self.level().min(self.library.level());
        if oldest.at_least(4, 0) { 1024 } else { 64 }
    }

    /// Makes a group. An engine has room for 62 of all its clients together.
    ///
    /// # Errors
    /// [`Error::Argument`] for more than [`Engine::entities_max`] entities; [`Error::Call`], when one of them
    /// is refused too: then there is no group.
    pub fn group(&self, name: &str, entities: &[Entity]) -> Result<Group, Error> {
        let function = "dcgmGroupCreate";
        let most = self.entities_max();
        if most < entities.len() {
            let what = format!("{} entities, limit {most}: make several groups", entities.len());
            return Err(Error::Argument { function, what });
        }
        let name = c_string(function, name_of(name, "").as_bytes())?;
        let mut id = 0;
        // SAFETY: the name and the id are ours for the time of the call.
        check(function, unsafe {
            (self.library.symbols.group_create)(self.handle, EMPTY, name.as_ptr(), &raw mut id)
        })?;
        self.owned().groups.push(id);
        let group = Group { id, engine: self.serial };
        for entity in entities {
            if let Err(error) = self.add_entity(group, *entity) {
                // The entity's refusal is the news; a group that cannot be taken back goes with the
                // connection.
                let _ = self.destroy_group(group);
                return Err(error);
            }
        }
        Ok(group)
    }

    /// Adds an entity.
    ///
    /// # Errors
    /// [`Error::Call`]: `BADPARAM` for one that is unknown or already in, `GPU_IS_LOST` for a lost or
    /// detached GPU.
    pub fn add_entity(&self, group: Group, entity: Entity) -> Result<(), Error> {
        let id = self.id(group.id, group.engine, "dcgmGroupAddEntity")?;
        // SAFETY: plain numbers.
        check("dcgmGroupAddEntity", unsafe {
            (self.library.symbols.group_add)(self.handle, id, entity.group.raw(), entity.id)
        })
    }

    /// A group's members. Those of kinds that we do not know are left out.
    ///
    /// # Errors
    /// [`Error::Call`]: `NOT_CONFIGURED` when the group is gone.
    pub fn members(&self, group: Group) -> Result<Vec<Entity>, Error> {
        let id = self.id(group.id, group.engine, "dcgmGroupGetInfo")?;
        if self.library.level().at_least(4, 0) {
            let raw = self.group_info::<GroupInfoV3>(id)?;
            Ok(members(raw.count, &raw.entities))
        } else {
            let raw = self.group_info::<GroupInfoV2>(id)?;
            Ok(members(raw.count, &raw.entities))
        }
    }

    fn group_info<T: Versioned>(&self, id: Handle) -> Result<Box<T>, Error> {
        let ask = self.library.symbols.group_info()?;
        let mut raw = abi::stamped::<T>();
        // SAFETY: the structure is ours for the time of the call and carries its version and size.
        check("dcgmGroupGetInfo", unsafe { ask(self.handle, id, (&raw mut *raw).cast()) })?;
        Ok(raw)
    }

    /// Ends a group. Its watches end too.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn destroy_group(&self, group: Group) -> Result<(), Error> {
        let id = self.id(group.id, group.engine, "dcgmGroupDestroy")?;
        {
            let mut owned = self.owned();
            owned.groups.retain(|known| *known != id);
            owned.watches.retain(|(of, _)| *of != id);
        }
        // SAFETY: plain numbers.
        check("dcgmGroupDestroy", unsafe { (self.library.symbols.group_destroy)(self.handle, id) })
    }

    /// Makes a group of fields. The name gets this process's number and a counter. An engine has room for 61
    /// of all its clients together.
    ///
    /// # Errors
    /// [`Error::Argument`] for none or more than 128 fields; [`Error::Call`]: `BADPARAM` when the engine does
    /// not know one of them.
    pub fn field_group(&self, name: &str, fields: &[u16]) -> Result<FieldGroup, Error> {
        let function = "dcgmFieldGroupCreate";
        if fields.is_empty() || FIELDS_MAX < fields.len() {
            let what = format!("{} fields, must be 1 to {FIELDS_MAX}: make several groups", fields.len());
            return Err(Error::Argument { function, what });
        }
        let count = i32::try_from(fields.len()).unwrap_or(i32::MAX);
        let mut last = Ok(());
        for _ in 0..NAMES_TRIED {
            let unique = format!("-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
            let name = c_string(function, name_of(name, &unique).as_bytes())?;
            let mut id = 0;
            // SAFETY: name, ids and their count, and the new id are ours for the time of the call.
            last = check(function, unsafe {
                let create = self.library.symbols.field_group_create;
                create(self.handle, count, fields.as_ptr(), name.as_ptr(), &raw mut id)
            });
            match &last {
                Ok(()) => {
                    self.owned().field_groups.push(id);
                    return Ok(FieldGroup { id, engine: self.serial });
                }
                // Another client has the name, such as a container with the same process number.
                Err(error) if error.code() == Some(ReturnCode::DUPLICATE_KEY) => {}
                Err(_) => break,
            }
        }
        last.and(Err(Error::Call { function, code: ReturnCode::DUPLICATE_KEY }))
    }

    /// Ends a group of fields.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn destroy_field_group(&self, fields: FieldGroup) -> Result<(), Error> {
        let id = self.id(fields.id, fields.engine, "dcgmFieldGroupDestroy")?;
        {
            let mut owned = self.owned();
            owned.field_groups.retain(|known| *known != id);
            owned.watches.retain(|(_, of)| *of != id);
        }
        // SAFETY: plain numbers.
        check("dcgmFieldGroupDestroy", unsafe { (self.library.symbols.field_group_destroy)(self.handle, id) })
    }

    /// Has fields of entities sampled. Samples are kept for `keep`, cut to whole seconds and at least one; a
    /// `max_samples` above 0 only ever lengthens that. Returns after the first cycle, so values can be read
    /// at once. Other clients' watches of the same field may shorten the interval.
    ///
    /// # Errors
    /// [`Error::Argument`] for an interval of zero, which the engine would take; [`Error::Call`]: one refused
    /// field of one entity undoes all watches of this call.
    pub fn watch(
        &self,
        group: Group,
        fields: FieldGroup,
        interval: Duration,
        keep: Duration,
        max_samples: i32,
    ) -> Result<(), Error> {
        let function = "dcgmWatchFields";
        let refuse = |what: &str| Err(Error::Argument { function, what: what.into() });
        let (of, what) =
            (self.id(group.id, group.engine, function)?, self.id(fields.id, fields.engine, function)?);
        let Ok(interval_us @ 1..) = i64::try_from(interval.as_micros()) else {
            return refuse("the interval must be at least a microsecond, and less than 290,000 years");
        };
        if max_samples < 0 {
            return refuse("the number of samples must not be negative");
        }
        // SAFETY: plain numbers.
        check(function, unsafe {
            (self.library.symbols.watch)(self.handle, of, what, interval_us, keep.as_secs_f64(), max_samples)
        })?;
        let mut owned = self.owned();
        if !owned.watches.contains(&(of, what)) {
            owned.watches.push((of, what));
        }
        Ok(())
    }

    /// Ends a watch. What was sampled stays readable with its old time.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn unwatch(&self, group: Group, fields: FieldGroup) -> Result<(), Error> {
        let function = "dcgmUnwatchFields";
        let (of, what) =
            (self.id(group.id, group.engine, function)?, self.id(fields.id, fields.engine, function)?);
        self.owned().watches.retain(|watch| *watch != (of, what));
        // SAFETY: plain numbers.
        check(function, unsafe { (self.library.symbols.unwatch)(self.handle, of, what) })
    }

    /// The engine's number of one of its groups; ids of an older engine may mean another group to this one.
    pub(super) fn id(&self, id: Handle, engine: u64, function: &'static str) -> Result<Handle, Error> {
        if engine == self.serial { Ok(id) } else { Err(Error::Stale { function }) }
    }

    pub(super) fn ids(
        &self,
        group: Group,
        fields: FieldGroup,
        function: &'static str,
    ) -> Result<(Handle, Handle), Error> {
        Ok((self.id(group.id, group.engine, function)?, self.id(fields.id, fields.engine, function)?))
    }

    pub(super) fn group_id(&self, group: Group, function: &'static str) -> Result<Handle, Error> {
        self.id(group.id, group.engine, function)
    }
}

/// A name with an ending, cut where the engine would.
fn name_of(name: &str, ending: &str) -> String {
    let mut end = name.len().min(NAME_MAX - ending.len().min(NAME_MAX));
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ending}", name.get(..end).unwrap_or_default())
}

fn members(count: u32, pairs: &[abi::group::Pair]) -> Vec<Entity> {
    let entity = |pair: &abi::group::Pair| Some(Entity::new(EntityGroup::from_raw(pair.group)?, pair.id));
    pairs.iter().take(count as usize).filter_map(entity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_a_character() {
        assert_eq!(name_of("performance", "-7-0"), "performance-7-0");
        let long = name_of(&"ü".repeat(300), "-7");
        assert_eq!((long.len(), long.ends_with("ü-7")), (200, true));
    }

    #[test]
    fn members_of_unknown_kinds_are_left_out() {
        let mut raw = abi::stamped::<GroupInfoV2>();
        raw.count = 3;
        for (pair, (group, id)) in raw.entities.iter_mut().zip([(1, 0), (42, 1), (4, 7)]) {
            (pair.group, pair.id) = (group, id);
        }
        let want = [Entity::gpu(0), Entity::new(EntityGroup::GpuInstance, 7)];
        assert_eq!(members(raw.count, &raw.entities), want);
        assert_eq!(members(u32::MAX, &raw.entities).len(), 63, "a count beyond the structure is cut");
    }
}
