//! DCGM's health checks.
//!
//! In: a group and an interval. Out: incidents. What can go wrong: see [`Engine`]; the texts are the engine's
//! and may name a wrong GPU, the entity is right. A lost GPU is no incident. Counters reach a check only with
//! the check's own sampling. Source: `dcgm_structs.h`, `dcgmHealthSystems_t`, `dcgmHealthWatchResults_t`.

use std::ffi::c_void;
use std::time::Duration;

use super::{Engine, Group, check};
use crate::abi::health::{HealthSet, HealthV4, HealthV5, RawIncident};
use crate::abi::{self, Handle, Versioned};
use crate::entity::{Entity, EntityGroup};
use crate::error::Error;

/// How long samples of a check are kept, s: the engine's own default.
const KEEP_S: f64 = 600.0;

/// Subsystems as bits.
#[expect(missing_docs, reason = "names of the vendor")]
pub mod systems {
    pub const PCIE: u32 = 0x1;
    pub const NVLINK: u32 = 0x2;
    pub const PMU: u32 = 0x4;
    pub const MCU: u32 = 0x8;
    pub const MEM: u32 = 0x10;
    pub const SM: u32 = 0x20;
    pub const INFOROM: u32 = 0x40;
    pub const THERMAL: u32 = 0x80;
    pub const POWER: u32 = 0x100;
    pub const DRIVER: u32 = 0x200;
    pub const NVSWITCH_NONFATAL: u32 = 0x400;
    pub const NVSWITCH_FATAL: u32 = 0x800;
    /// All, also those of newer engines.
    pub const ALL: u32 = 0xffff_ffff;
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// In order.
    Pass,
    /// Something to look at.
    Warn,
    /// Broken.
    Fail,
}

impl Level {
    /// 0 pass, 10 warn, 20 fail; a number between is the worse of both.
    pub fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Pass,
            1..=10 => Self::Warn,
            _ => Self::Fail,
        }
    }
}

/// Something that a check found. It stays in later checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// Subsystems, see [`systems`].
    pub systems: u32,
    /// How bad it is.
    pub level: Level,
    /// What it is about; None for a kind of entity that we do not know.
    pub entity: Option<Entity>,
    /// DCGM's number of the error; 101 an XID, 120 fallen off the bus.
    pub code: u32,
    /// The engine's words, for people only.
    pub text: String,
}

impl Engine<'_> {
    /// Starts the check of all subsystems for a group, sampled at an interval.
    ///
    /// # Errors
    /// [`Error::Argument`] for an interval of zero; [`Error::Call`]: `MODULE_NOT_LOADED`.
    pub fn health_set(&self, group: Group, interval: Duration) -> Result<(), Error> {
        let function = "dcgmHealthSet_v2";
        let set = self.library.symbols.health_set()?;
        let Ok(interval_us @ 1..) = i64::try_from(interval.as_micros()) else {
            return Err(Error::Argument { function, what: "the interval must be above zero".into() });
        };
        let mut how = abi::stamped::<HealthSet>();
        how.group = self.group_id(group, function)?;
        how.systems = systems::ALL;
        how.interval_us = interval_us;
        how.keep_s = KEEP_S.max(2.0 * interval.as_secs_f64());
        // SAFETY: the structure is ours for the time of the call and carries its version.
        check(function, unsafe { set(self.handle, &raw mut *how) })
    }

    /// What the checks of a group have found; nothing means that all is in order, as far as the engine knows.
    ///
    /// # Errors
    /// [`Error::Call`]: `MODULE_NOT_LOADED`, or `NOT_CONFIGURED` when the group is gone.
    pub fn health_check(&self, group: Group) -> Result<Vec<Incident>, Error> {
        let group = self.group_id(group, "dcgmHealthCheck")?;
        if self.library.level().at_least(4, 0) {
            let raw = self.health_by::<HealthV5>(group)?;
            Ok(incidents(raw.count, &raw.incidents))
        } else {
            let raw = self.health_by::<HealthV4>(group)?;
            Ok(incidents(raw.count, &raw.incidents))
        }
    }

    fn health_by<T: Versioned>(&self, group: Handle) -> Result<Box<T>, Error> {
        let ask = self.library.symbols.health_check()?;
        let mut raw = abi::stamped::<T>();
        // SAFETY: the structure is ours for the time of the call and carries its version and size.
        check("dcgmHealthCheck", unsafe { ask(self.handle, group, (&raw mut *raw).cast::<c_void>()) })?;
        Ok(raw)
    }
}

fn incidents(count: u32, raw: &[RawIncident]) -> Vec<Incident> {
    let of = |raw: &RawIncident| Incident {
        systems: raw.system,
        level: Level::from_raw(raw.level),
        entity: EntityGroup::from_raw(raw.entity.group).map(|group| Entity::new(group, raw.entity.id)),
        code: raw.error.code,
        text: abi::text(&raw.error.text),
    };
    raw.iter().take(count as usize).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incidents_are_read_and_their_number_is_cut() {
        let mut raw = abi::stamped::<HealthV5>();
        let first = &mut raw.incidents[0];
        (first.system, first.level, first.error.code) = (systems::PCIE, 20, 120);
        (first.entity.group, first.entity.id) = (1, 3);
        first.error.text[0] = b'x'.cast_signed();
        let want = Incident {
            systems: 1,
            level: Level::Fail,
            entity: Some(Entity::gpu(3)),
            code: 120,
            text: "x".into(),
        };
        assert_eq!(incidents(1, &raw.incidents), [want]);
        assert_eq!(incidents(u32::MAX, &raw.incidents).len(), 1024);
        assert_eq!(incidents(0, &raw.incidents), []);
    }

    #[test]
    fn levels_are_numbers() {
        for (raw, level) in [(0, Level::Pass), (10, Level::Warn), (15, Level::Fail), (20, Level::Fail)] {
            assert_eq!(Level::from_raw(raw), level, "{raw}");
        }
    }
}
