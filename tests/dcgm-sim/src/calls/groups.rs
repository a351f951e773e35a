//! Groups, field groups, watches.
//!
//! In: C arguments. Out: C return codes. What can go wrong: see `engine::groups`.

use std::ffi::c_char;

use crate::abi::values::{AllFieldGroups, FieldGroupInfo, GroupInfoV2, GroupInfoV3, Pair};
use crate::abi::{put_text, version_word};
use crate::client::{code, request};
use crate::codes::{BAD_PARAM, OK, VER_MISMATCH};
use crate::engine::groups::WatchCall;
use crate::pointers::{items, items_mut, out, text, versioned, word};

fn done(code: i32) -> Result<(), i32> {
    if code == OK { Ok(()) } else { Err(code) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGroupCreate(
    handle: usize,
    kind: u32,
    name: *const c_char,
    group: *mut usize,
) -> i32 {
    code(request("dcgmGroupCreate", None, handle, |engine, world, now| {
        // SAFETY: the caller's promise
        let (name, group) = unsafe { (text(name)?, out(group)?) };
        *group = engine.create_group(world, now, handle, kind, &name)?;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmGroupDestroy(handle: usize, group: usize) -> i32 {
    code(request("dcgmGroupDestroy", None, handle, |engine, _, _| done(engine.destroy_group(group))))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmGroupAddDevice(handle: usize, group: usize, gpu: u32) -> i32 {
    add("dcgmGroupAddDevice", handle, group, (1, gpu))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmGroupAddEntity(handle: usize, group: usize, kind: u32, id: u32) -> i32 {
    add("dcgmGroupAddEntity", handle, group, (kind, id))
}

fn add(call: &str, handle: usize, group: usize, entity: (u32, u32)) -> i32 {
    code(request(call, None, handle, |engine, world, now| done(engine.add_entity(world, now, group, entity))))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmGroupRemoveEntity(handle: usize, group: usize, kind: u32, id: u32) -> i32 {
    code(request("dcgmGroupRemoveEntity", None, handle, |engine, _, _| {
        done(engine.remove_entity(group, (kind, id)))
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGroupGetInfo(handle: usize, group: usize, info: *mut GroupInfoV3) -> i32 {
    code(request("dcgmGroupGetInfo", None, handle, |engine, world, now| {
        // SAFETY: the caller's promise: a versioned struct
        let found = unsafe { word(info.cast()) }?;
        let old = world.library().0 < 4;
        let wanted = if old { version_word::<GroupInfoV2>(2) } else { version_word::<GroupInfoV3>(3) };
        if found != wanted {
            return Err(VER_MISMATCH);
        }
        let (name, entities) = engine.group(world, now, group)?;
        let pairs = entities.iter().map(|(kind, id)| Pair { entityGroupId: *kind, entityId: *id });
        let count = u32::try_from(entities.len()).unwrap_or(u32::MAX);
        if old {
            // SAFETY: its version word says so
            let info = unsafe { out(info.cast::<GroupInfoV2>()) }?;
            (info.count, _) = (count.min(64), put_text(&mut info.groupName, &name));
            info.entityList.iter_mut().zip(pairs).for_each(|(place, pair)| *place = pair);
        } else {
            // SAFETY: its version word says so
            let info = unsafe { out(info) }?;
            (info.count, _) = (count.min(1024), put_text(&mut info.groupName, &name));
            info.entityList.iter_mut().zip(pairs).for_each(|(place, pair)| *place = pair);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGroupGetAllIds(handle: usize, ids: *mut usize, count: *mut u32) -> i32 {
    code(request("dcgmGroupGetAllIds", None, handle, |engine, _, _| {
        // SAFETY: the caller's promise: room for 64
        let (ids, count) = unsafe { (items_mut(ids, 64)?, out(count)?) };
        let all = [0, 1].into_iter().chain(engine.groups.keys().copied());
        *count = 0;
        for (place, id) in ids.iter_mut().zip(all) {
            *place = id;
            *count += 1;
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmFieldGroupCreate(
    handle: usize,
    count: i32,
    fields: *const u16,
    name: *const c_char,
    group: *mut usize,
) -> i32 {
    code(request("dcgmFieldGroupCreate", None, handle, |engine, world, _| {
        let count = usize::try_from(count).map_err(|_| BAD_PARAM)?;
        // SAFETY: the caller's promise
        let (fields, name, group) = unsafe { (items(fields, count)?, text(name)?, out(group)?) };
        *group = engine.create_field_group(world, handle, &name, fields)?;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmFieldGroupDestroy(handle: usize, group: usize) -> i32 {
    code(request("dcgmFieldGroupDestroy", None, handle, |engine, _, _| {
        done(engine.destroy_field_group(group))
    }))
}

fn fill(into: &mut FieldGroupInfo, id: usize, name: &str, fields: &[u16]) {
    into.fieldGroupId = id;
    put_text(&mut into.fieldGroupName, name);
    into.numFieldIds = u32::try_from(fields.len()).unwrap_or(0).min(128);
    into.fieldIds.iter_mut().zip(fields).for_each(|(place, field)| *place = *field);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmFieldGroupGetInfo(handle: usize, info: *mut FieldGroupInfo) -> i32 {
    code(request("dcgmFieldGroupGetInfo", None, handle, |engine, _, _| {
        // SAFETY: the caller's promise
        let info = unsafe { versioned(info, &[version_word::<FieldGroupInfo>(1)]) }?;
        let id = info.fieldGroupId;
        let group = engine.field_groups.get(&id).ok_or(crate::codes::NO_DATA)?;
        fill(info, id, &group.name, &group.fields);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmFieldGroupGetAll(handle: usize, all: *mut AllFieldGroups) -> i32 {
    code(request("dcgmFieldGroupGetAll", None, handle, |engine, _, _| {
        // SAFETY: the caller's promise
        let all = unsafe { versioned(all, &[version_word::<AllFieldGroups>(1)]) }?;
        all.count = 0;
        for (place, (id, group)) in all.groups.iter_mut().zip(&engine.field_groups) {
            place.version = version_word::<FieldGroupInfo>(1);
            fill(place, *id, &group.name, &group.fields);
            all.count += 1;
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmWatchFields(
    handle: usize,
    group: usize,
    field_group: usize,
    interval_us: i64,
    keep_s: f64,
    max_samples: i32,
) -> i32 {
    code(request("dcgmWatchFields", None, handle, |engine, world, now| {
        let call = WatchCall { group, field_group, interval_us, keep_s, max_samples };
        done(engine.watch(world, now, handle, &call))
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmUnwatchFields(handle: usize, group: usize, field_group: usize) -> i32 {
    code(request("dcgmUnwatchFields", None, handle, |engine, world, now| {
        done(engine.unwatch(world, now, group, field_group))
    }))
}
