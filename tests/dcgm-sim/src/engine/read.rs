//! Latest values, values since a time, and live values.
//!
//! In: entities and fields. Out: values in the engine's order. What can go wrong: a field that nobody ever watched is
//! -16 (and ends a since call); a live read of an event field makes the whole call -3.

use gpu_scenario::World;
use gpu_scenario::answer::{Answer, Sentinel, Value};
use gpu_scenario::catalog::FieldRow;

use super::series::is_event;
use super::{Engine, Entity, key, row};
use crate::codes::{GENERIC_ERROR, NO_DATA, NOT_WATCHED};

/// One value as it is delivered.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) entity: Entity,
    pub(crate) field: u16,
    /// Unit: µs since 1970; 0: no sample.
    pub(crate) ts_us: i64,
    pub(crate) answer: Answer,
}

impl Delivered {
    /// Kind of value, with the field's name for tests.
    pub(crate) fn none(entity: Entity, row: &FieldRow, status: i32) -> Self {
        Self { entity, field: row.id, ts_us: 0, answer: Answer::absent(row.kind, status, Sentinel::Blank) }
    }
}

impl Engine {
    /// The newest value, whatever its age.
    pub(crate) fn latest(&self, world: &World, now_us: i64, entity: Entity, field: u16) -> Option<Delivered> {
        let row = row(world, field)?;
        let Some(series) = self.series.get(&key(entity, row)) else {
            return Some(Delivered::none(entity, row, NOT_WATCHED));
        };
        if let Some(sample) = series.samples.back() {
            let answer = sample.answer.clone();
            let ts_us = if answer.status == 0 { sample.ts_us } else { 0 };
            return Some(Delivered { entity, field, ts_us, answer });
        }
        if !series.was_watched {
            return Some(Delivered::none(entity, row, NOT_WATCHED));
        }
        let said = world.read(entity, row, now_us).map_or(NO_DATA, |answer| answer.status);
        Some(Delivered::none(entity, row, if said < 0 { said } else { NO_DATA }))
    }

    /// All values from `since_us` on; a pair without any gives one entry with its status.
    pub(crate) fn since(
        &self,
        world: &World,
        now_us: i64,
        (entity, field): (Entity, u16),
        since_us: i64,
    ) -> Result<Vec<Delivered>, i32> {
        let Some(row) = row(world, field) else { return Ok(Vec::new()) };
        let Some(series) = self.series.get(&key(entity, row)).filter(|series| series.was_watched) else {
            return Err(NOT_WATCHED);
        };
        let new =
            series.samples.iter().filter(|sample| since_us <= sample.ts_us && sample.answer.status == 0);
        let mut found: Vec<Delivered> = new
            .map(|sample| Delivered { entity, field, ts_us: sample.ts_us, answer: sample.answer.clone() })
            .collect();
        if found.is_empty() {
            let latest =
                self.latest(world, now_us, entity, field).map_or(NO_DATA, |latest| latest.answer.status);
            found.push(Delivered::none(entity, row, if latest < 0 { latest } else { NO_DATA }));
        }
        Ok(found)
    }

    /// What the driver says now, fields behind NVML's field values last.
    pub(crate) fn live(
        &self,
        world: &World,
        now_us: i64,
        entities: &[Entity],
        fields: &[u16],
    ) -> Result<Vec<Delivered>, i32> {
        let rows: Vec<&FieldRow> = fields.iter().filter_map(|id| row(world, *id)).collect();
        if rows.iter().any(|row| is_event(row)) {
            return Err(GENERIC_ERROR);
        }
        let (by_field_value, by_function): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.nvml.is_some());
        let mut found = Vec::new();
        for row in by_function.into_iter().chain(by_field_value) {
            for entity in entities {
                let dead = self.driver_is_dead(world, now_us)
                    || self.is_detached(world, now_us)
                    || world.gpu_of(*entity).is_some_and(|gpu| world.lost(gpu, now_us));
                let answer = match world.read(*entity, row, now_us) {
                    Some(answer) if !dead => answer,
                    _ => Answer { status: 0, kind: row.kind, value: Value::Absent(Sentinel::Blank) },
                };
                found.push(Delivered { entity: *entity, field: row.id, ts_us: now_us, answer });
            }
        }
        Ok(found)
    }
}
