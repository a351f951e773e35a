//! Reading what the engine has sampled.
//!
//! In: groups, or entities and fields. Out: values, handed to a closure after the library has returned. What
//! can go wrong: see [`Engine`]; an engine older than the library shows here first, see
//! [`Error::EngineTooOld`]. Values are never asked of the driver directly (the LIVE flag): engines 4.0 to 4.6
//! die of it for profiling fields. Source: `dcgm_agent.h`.

use std::ffi::c_void;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::groups::FIELDS_MAX;
use super::{Engine, FieldGroup, Group, check};
use crate::abi::field::FieldValueV2;
use crate::abi::{self, group::Pair};
use crate::entity::Entity;
use crate::error::Error;
use crate::readings::{FieldValue, Readings, on_values};
use crate::return_code::ReturnCode;

/// Values of one request of [`Engine::latest_of`]: each has 4 kB.
const VALUES_AT_ONCE: usize = 256;

impl Engine<'_> {
    /// Has the engine sample all that is due. It does so by itself; this is for a value at once.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn update_all(&self, wait: bool) -> Result<(), Error> {
        let update = self.library.symbols.update_all()?;
        // SAFETY: plain numbers.
        check("dcgmUpdateAllFields", unsafe { update(self.handle, wait.into()) })
    }

    /// The latest value of each field of each entity: one request. A global field comes once per entity.
    /// Values do not expire: after a stall they are old, with a good status; compare their time with the
    /// interval.
    ///
    /// ```no_run
    /// # use dcgm_ffi::{Entity, Engine, Error};
    /// # use std::time::Duration;
    /// # fn read(engine: &Engine<'_>) -> Result<(), Error> {
    /// let gpus = engine.group("gpus", &[Entity::gpu(0)])?;
    /// let fields = engine.field_group("performance", &[150, 155])?;
    /// engine.watch(gpus, fields, Duration::from_secs(1), Duration::from_secs(30), 0)?;
    /// engine.latest(gpus, fields, &mut |entity, value| match value.value {
    ///     Ok(present) => println!("{entity}: field {} is {present:?}", value.field),
    ///     Err(absent) => println!("{entity}: field {} has no value: {absent:?}", value.field),
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`]: `GROUP_IS_EMPTY` for a group without entities. [`Error::EngineTooOld`].
    pub fn latest(
        &self,
        group: Group,
        fields: FieldGroup,
        f: &mut dyn FnMut(Entity, &FieldValue<'_>),
    ) -> Result<(), Error> {
        let function = "dcgmGetLatestValues_v2";
        let (group, fields) = self.ids(group, fields, function)?;
        let mut readings = self.buffer();
        let user = (&raw mut readings).cast::<c_void>();
        // SAFETY: the callback runs inside this call, in this thread, and alone uses the buffer meanwhile.
        let code = unsafe { (self.library.symbols.latest)(self.handle, group, fields, on_values, user) };
        let read = self.read(function, code);
        self.hand_on(read, readings, f)
    }

    /// All samples from `since_us` on (microseconds since 1970 by the engine's clock; 0: all that are kept).
    /// Returns what to ask from next time: the engine's now, a microsecond on. One request per entity and
    /// field: for events only. Each pair without a new sample comes too, as [`crate::Absent::NoData`].
    /// Samples from the kernel's log come up to a second late, so ask with an overlap.
    ///
    /// # Errors
    /// [`Error::Call`]: `NOT_WATCHED` if one pair was never watched; then `since_us` stays good.
    /// [`Error::EngineTooOld`].
    pub fn since(
        &self,
        group: Group,
        fields: FieldGroup,
        since_us: i64,
        f: &mut dyn FnMut(Entity, &FieldValue<'_>),
    ) -> Result<i64, Error> {
        let function = "dcgmGetValuesSince_v2";
        let since = self.library.symbols.since()?;
        let (group, fields) = self.ids(group, fields, function)?;
        let mut next = since_us;
        let mut readings = self.buffer();
        let user = (&raw mut readings).cast::<c_void>();
        // SAFETY: as above; the next time is ours for the time of the call.
        let code = unsafe { since(self.handle, group, fields, since_us, &raw mut next, on_values, user) };
        let read = self.read(function, code);
        self.hand_on(read, readings, f)?;
        Ok(next)
    }

    /// The latest values of fields of entities that something watches, without a group. Also for the node
    /// itself ([`crate::EntityGroup::None`], 0), which cannot be put into a group. Larger requests are split.
    ///
    /// # Errors
    /// [`Error::Call`], [`Error::EngineTooOld`]; parts that were read before have been handed on then.
    pub fn latest_of(
        &self,
        entities: &[Entity],
        fields: &[u16],
        f: &mut dyn FnMut(Entity, &FieldValue<'_>),
    ) -> Result<(), Error> {
        let function = "dcgmEntitiesGetLatestValues";
        let ask = self.library.symbols.latest_of()?;
        for fields in fields.chunks(FIELDS_MAX) {
            let at_once = (VALUES_AT_ONCE / fields.len().max(1)).clamp(1, self.entities_max());
            for entities in entities.chunks(at_once) {
                let pairs: Vec<Pair> =
                    entities.iter().map(|e| Pair { group: e.group.raw(), id: e.id }).collect();
                let mut values = abi::zeroed_slice::<FieldValueV2>(pairs.len() * fields.len());
                let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                // SAFETY: the arrays are ours for the time of the call, with the lengths told; values has one
                // place for each entity and field, as the prototype asks. Flags 0: from the engine's memory.
                let code = unsafe {
                    let (many, each) = (count(pairs.len()), count(fields.len()));
                    ask(self.handle, pairs.as_ptr(), many, fields.as_ptr(), each, 0, values.as_mut_ptr())
                };
                let read = self.read(function, code);
                let mut readings = self.buffer();
                if read.is_ok() {
                    values.iter().for_each(|value| readings.push(value));
                }
                self.hand_on(read, readings, f)?;
            }
        }
        Ok(())
    }

    /// An answer to a reading. Until one has succeeded, some codes say that the engine is older than the
    /// library.
    fn read(&self, function: &'static str, code: i32) -> Result<(), Error> {
        let result = check(function, code);
        if result.is_ok() {
            self.proved.store(true, Ordering::Relaxed);
        }
        too_old(result, self.proved.load(Ordering::Relaxed))
    }

    fn buffer(&self) -> Readings {
        let mut readings =
            self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        readings.clear();
        readings
    }

    /// Hands values on if the call was good, and keeps the buffer for the next one.
    fn hand_on(
        &self,
        read: Result<(), Error>,
        readings: Readings,
        f: &mut dyn FnMut(Entity, &FieldValue<'_>),
    ) -> Result<(), Error> {
        if read.is_ok() {
            self.dropped.fetch_add(readings.dropped(), Ordering::Relaxed);
            readings.each(f);
        }
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(readings);
        read
    }
}

fn too_old(result: Result<(), Error>, proved: bool) -> Result<(), Error> {
    match result {
        Err(Error::Call {
            function,
            code: code @ (ReturnCode::VER_MISMATCH | ReturnCode::GENERIC_ERROR),
        }) if !proved => Err(Error::EngineTooOld { function, code }),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_engine_shows_at_the_first_reading() {
        // -20 always says so; -12 and -3 only as long as no reading was good.
        let cases = [
            (0, false, "fine"),
            (-20, false, "old"),
            (-20, true, "old"),
            (-12, false, "old"),
            (-12, true, "other"),
            (-3, false, "old"),
            (-3, true, "other"),
            (-21, false, "other"),
            (-35, false, "other"),
        ];
        for (code, proved, want) in cases {
            let got = match too_old(check("f", code), proved) {
                Ok(()) => "fine",
                Err(error @ Error::EngineTooOld { .. }) => {
                    assert!(error.remedy().contains("nv-hostengine"), "{}", error.remedy());
                    assert_eq!(error.code(), Some(ReturnCode(code)));
                    "old"
                }
                Err(_) => "other",
            };
            assert_eq!(got, want, "{code} {proved}");
        }
    }
}
