//! Values: latest, since a time, of single entities.
//!
//! In: C arguments. Out: C return codes, and values by callback or array. What can go wrong: see `engine::read`.

use std::ffi::c_void;

use gpu_scenario::World;
use gpu_scenario::answer::{Kind, Sentinel, Value};

use crate::abi::values::{FieldValueV1, FieldValueV2, Pair, Payload};
use crate::abi::version_word;
use crate::client::{code, crash, has_subcommand, request};
use crate::codes::{BAD_PARAM, GROUP_IS_EMPTY};
use crate::engine::read::Delivered;
use crate::engine::{Engine, row};
use crate::pointers::{items, items_mut, out};

/// The client's callback: entity group, entity, values, how many, its own pointer.
type Callback = unsafe extern "C" fn(u32, u32, *mut FieldValueV1, i32, *mut c_void) -> i32;

const FIELDS_MAX: usize = 128;
const LIVE: u32 = 1;
/// Base of the double's sentinels, 2^47.
const DOUBLE_BLANK: f64 = 140_737_488_355_328.0;
/// Base of the integer's sentinels.
pub(crate) const INT_BLANK: i64 = 0x7fff_ffff_ffff_fff0;

/// The type's code and the bytes of a value.
fn encoded(delivered: &Delivered, into: &mut Payload) -> u16 {
    into.0.fill(0);
    let kind = delivered.answer.kind;
    let text = |sentinel: Sentinel| match sentinel {
        Sentinel::Blank => "<<<NULL>>>",
        Sentinel::NotFound => "<<<NOT_FOUND>>>",
        Sentinel::NotSupported => "<<<NOT_SUPPORTED>>>",
        Sentinel::NotPermitted => "<<<NOT_PERM>>>",
    };
    let mut put = |bytes: &[u8]| {
        let length = bytes.len().min(255);
        into.0[..length].copy_from_slice(&bytes[..length]);
    };
    match (kind, &delivered.answer.value) {
        (_, Value::Int(value)) => put(&value.to_ne_bytes()),
        (_, Value::Double(value)) => put(&value.to_ne_bytes()),
        (_, Value::Text(value)) => put(value.as_bytes()),
        (_, Value::Bytes(length)) => into.0[..(*length).min(4096)].fill(1),
        (Kind::Int, Value::Absent(sentinel)) => put(&(INT_BLANK + *sentinel as i64).to_ne_bytes()),
        (Kind::Double, Value::Absent(sentinel)) => {
            put(&(DOUBLE_BLANK + f64::from(*sentinel as u8)).to_ne_bytes());
        }
        (Kind::Text, Value::Absent(sentinel)) => put(text(*sentinel).as_bytes()),
        (Kind::Bytes, Value::Absent(_)) => {}
    }
    u16::from(match kind {
        Kind::Int => b'i',
        Kind::Double => b'd',
        Kind::Text => b's',
        Kind::Bytes => b'b',
    })
}

fn empty_v1() -> Box<FieldValueV1> {
    Box::new(FieldValueV1 {
        version: version_word::<FieldValueV1>(1),
        fieldId: 0,
        fieldType: 0,
        status: 0,
        ts: 0,
        value: Payload([0; 4096]),
    })
}

fn fill_v1(delivered: &Delivered, into: &mut FieldValueV1) {
    into.version = version_word::<FieldValueV1>(1);
    into.fieldId = delivered.field;
    into.status = delivered.answer.status;
    into.ts = delivered.ts_us;
    into.fieldType = encoded(delivered, &mut into.value);
}

/// Hands values to the client one by one; whether it wanted all of them.
unsafe fn hand_over(all: &[Delivered], callback: Callback, user: *mut c_void) -> bool {
    let mut value = empty_v1();
    all.iter().all(|delivered| {
        fill_v1(delivered, &mut value);
        // SAFETY: the client's function, with a value that lives during the call and the client's own pointer
        unsafe { callback(delivered.entity.0, delivered.entity.1, &raw mut *value, 1, user) == 0 }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetLatestValues_v2(
    handle: usize,
    group: usize,
    field_group: usize,
    callback: Option<Callback>,
    user: *mut c_void,
) -> i32 {
    let found = request("dcgmGetLatestValues_v2", None, handle, |engine, world, now| {
        has_subcommand(world)?;
        let entities = engine.members(world, now, group)?;
        let fields = engine.fields(field_group)?;
        if entities.is_empty() {
            return Err(GROUP_IS_EMPTY);
        }
        let pairs = entities.iter().flat_map(|entity| fields.iter().map(move |field| (*entity, *field)));
        Ok(pairs.filter_map(|(entity, field)| engine.latest(world, now, entity, field)).collect::<Vec<_>>())
    });
    match (found, callback) {
        (Err(code), _) => code,
        (Ok(_), None) => BAD_PARAM,
        (Ok(found), Some(callback)) => {
            // SAFETY: the client's promise about its callback; no lock is held here
            unsafe { hand_over(&found, callback, user) };
            0
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetValuesSince_v2(
    handle: usize,
    group: usize,
    field_group: usize,
    since_us: i64,
    next_us: *mut i64,
    callback: Option<Callback>,
    user: *mut c_void,
) -> i32 {
    let mut failed = None;
    let found = request("dcgmGetValuesSince_v2", None, handle, |engine, world, now| {
        let entities = engine.members(world, now, group)?;
        let fields = engine.fields(field_group)?;
        let mut found = Vec::new();
        for entity in &entities {
            for field in &fields {
                match engine.since(world, now, (*entity, *field), since_us) {
                    Ok(values) => found.extend(values),
                    Err(code) => {
                        // what came before it is delivered, the call fails
                        failed = Some(code);
                        return Ok((found, now));
                    }
                }
            }
        }
        Ok((found, now))
    });
    match (found, callback) {
        (Err(code), _) => code,
        (Ok(_), None) => BAD_PARAM,
        (Ok((found, now)), Some(callback)) => {
            // SAFETY: the client's promise about its callback; no lock is held here
            let wanted_all = unsafe { hand_over(&found, callback, user) };
            // SAFETY: the caller's promise
            match unsafe { out(next_us) } {
                Ok(next) if wanted_all && failed.is_none() => *next = now + 1,
                _ => {}
            }
            failed.unwrap_or(0)
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmEntityGetLatestValues(
    handle: usize,
    kind: u32,
    id: i32,
    fields: *const u16,
    count: u32,
    values: *mut FieldValueV1,
) -> i32 {
    code(request("dcgmEntityGetLatestValues", None, handle, |engine, world, now| {
        has_subcommand(world)?;
        let count = count as usize;
        // SAFETY: the caller's promise
        let (fields, values) = unsafe { (items(fields, count)?, items_mut(values, count)?) };
        let entity = (kind, u32::try_from(id).map_err(|_| BAD_PARAM)?);
        for (field, value) in fields.iter().zip(values) {
            fill_v1(&engine.latest(world, now, entity, *field).ok_or(BAD_PARAM)?, value);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmEntitiesGetLatestValues(
    handle: usize,
    entities: *const Pair,
    entity_count: u32,
    fields: *const u16,
    field_count: u32,
    flags: u32,
    values: *mut FieldValueV2,
) -> i32 {
    let (entity_count, field_count) = (entity_count as usize, field_count as usize);
    let mut dies = false;
    let result = request("dcgmEntitiesGetLatestValues", None, handle, |engine, world, now| {
        has_subcommand(world)?;
        let limit = if world.library().0 < 4 { 64 } else { 1024 };
        if limit < entity_count || FIELDS_MAX < field_count {
            return Err(BAD_PARAM);
        }
        // SAFETY: the caller's promise: entity_count × field_count values
        let (entities, fields, values) = unsafe {
            (
                items(entities, entity_count)?,
                items(fields, field_count)?,
                items_mut(values, entity_count * field_count)?,
            )
        };
        let entities: Vec<(u32, u32)> =
            entities.iter().map(|pair| (pair.entityGroupId, pair.entityId)).collect();
        let found = if flags & LIVE == 0 {
            stored(engine, world, now, &entities, fields)?
        } else {
            let profiling = fields.iter().filter_map(|id| row(world, *id)).any(|row| row.is_profiling());
            if profiling && world.scenario().live_profiling_crashes {
                dies = true;
                return Ok(());
            }
            engine.live(world, now, &entities, fields)?
        };
        for (delivered, value) in found.iter().zip(values) {
            value.version = version_word::<FieldValueV2>(2);
            (value.entityGroupId, value.entityId) = delivered.entity;
            value.fieldId = delivered.field;
            value.status = delivered.answer.status;
            value.unused = 0;
            value.ts = delivered.ts_us;
            value.fieldType = encoded(delivered, &mut value.value);
        }
        Ok(())
    });
    if dies {
        // the real engine dereferences a null pointer here: in embedded mode in this very process
        crash();
    }
    code(result)
}

fn stored(
    engine: &Engine,
    world: &World,
    now: i64,
    entities: &[(u32, u32)],
    fields: &[u16],
) -> Result<Vec<Delivered>, i32> {
    let pairs = entities.iter().flat_map(|entity| fields.iter().map(move |field| (*entity, *field)));
    pairs.map(|(entity, field)| engine.latest(world, now, entity, field).ok_or(BAD_PARAM)).collect()
}
