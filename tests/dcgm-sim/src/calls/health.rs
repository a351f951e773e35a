//! Health and profiling.
//!
//! In: C arguments. Out: C return codes and structs. What can go wrong: see `engine::health`.

use gpu_scenario::node::Profiling;

use crate::abi::values::{
    HealthResponseV4, HealthResponseV5, HealthSetParams, IncidentInfo, MetricGroup, MetricGroups, Pair,
};
use crate::abi::{put_text, version_word};
use crate::client::{code, request};
use crate::codes::{BAD_PARAM, MODULE_NOT_LOADED, NOT_SUPPORTED, PROFILING_NOT_SUPPORTED, VER_MISMATCH};
use crate::engine::health::Found;
use crate::pointers::{out, versioned, word};

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmHealthSet(handle: usize, group: usize, systems: u32) -> i32 {
    code(request("dcgmHealthSet", None, handle, |engine, world, now| {
        engine.health_set(world, now, group, systems, 0)
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmHealthSet_v2(handle: usize, params: *mut HealthSetParams) -> i32 {
    code(request("dcgmHealthSet_v2", None, handle, |engine, world, now| {
        // SAFETY: the caller's promise
        let params = unsafe { versioned(params, &[version_word::<HealthSetParams>(2)]) }?;
        engine.health_set(world, now, params.groupId, params.systems, params.updateInterval)
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmHealthGet(handle: usize, group: usize, systems: *mut u32) -> i32 {
    code(request("dcgmHealthGet", None, handle, |engine, world, now| {
        // SAFETY: the caller's promise
        *unsafe { out(systems) }? = engine.health_systems(world, now, group)?;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmHealthCheck(
    handle: usize,
    group: usize,
    response: *mut HealthResponseV5,
) -> i32 {
    code(request("dcgmHealthCheck", None, handle, |engine, world, now| {
        // SAFETY: the caller's promise: a versioned struct
        let found = unsafe { word(response.cast()) }?;
        let old = world.library().0 < 4;
        let wanted =
            if old { version_word::<HealthResponseV4>(4) } else { version_word::<HealthResponseV5>(5) };
        if found != wanted {
            return Err(VER_MISMATCH);
        }
        let incidents = engine.health_check(world, now, group)?;
        let overall = incidents.iter().map(|incident| incident.level).max().unwrap_or(0);
        if old {
            // SAFETY: its version word says so
            let response = unsafe { out(response.cast::<HealthResponseV4>()) }?;
            response.overallHealth = overall;
            response.incidentCount = fill(&mut response.incidents, &incidents);
        } else {
            // SAFETY: its version word says so
            let response = unsafe { out(response) }?;
            response.overallHealth = overall;
            response.incidentCount = fill(&mut response.incidents, &incidents);
        }
        Ok(())
    }))
}

fn fill(into: &mut [IncidentInfo], found: &[Found]) -> u32 {
    let mut count = 0;
    for (place, incident) in into.iter_mut().zip(found) {
        place.system = incident.system;
        place.health = incident.level;
        place.error.code = incident.code;
        put_text(&mut place.error.msg, &incident.text);
        place.entityInfo = Pair { entityGroupId: incident.entity.0, entityId: incident.entity.1 };
        count += 1;
    }
    count
}

/// Profiling fields by major number, as GPM offers them: first to last.
const BY_GPM: [&[(u16, u16)]; 3] = [&[(1001, 1034)], &[(1040, 1083), (1532, 1533)], &[(1084, 1096)]];
/// As the profiling module offers them: major, minor, first to last. Not recorded: the module was absent.
const BY_MODULE: [(u16, u16, u16, u16); 4] =
    [(0, 0, 1001, 1005), (1, 0, 1006, 1006), (1, 1, 1007, 1008), (2, 0, 1009, 1012)];

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmProfGetSupportedMetricGroups(
    handle: usize,
    groups: *mut MetricGroups,
) -> i32 {
    code(request("dcgmProfGetSupportedMetricGroups", None, handle, |engine, world, _| {
        // SAFETY: the caller's promise
        let groups = unsafe { versioned(groups, &[version_word::<MetricGroups>(3)]) }?;
        let known = |id: u16| crate::engine::row(world, id).is_some();
        let fields = |ranges: &[(u16, u16)]| {
            ranges.iter().flat_map(|(first, last)| *first..=*last).filter(|id| known(*id)).collect::<Vec<_>>()
        };
        let found: Vec<(u16, u16, Vec<u16>)> = match world.gpu(groups.gpuId).ok_or(BAD_PARAM)?.profiling {
            Some(Profiling::Gpm) => {
                let majors = BY_GPM.iter().zip(0..);
                majors.map(|(ranges, major)| (major, 0, fields(ranges))).collect()
            }
            Some(Profiling::Module) => {
                let groups = BY_MODULE.iter();
                groups
                    .map(|(major, minor, first, last)| (*major, *minor, fields(&[(*first, *last)])))
                    .collect()
            }
            Some(Profiling::Missing) => {
                engine.profiling_failed = true;
                return Err(MODULE_NOT_LOADED);
            }
            _ => return Err(PROFILING_NOT_SUPPORTED),
        };
        groups.numMetricGroups = 0;
        for (place, (major, minor, fields)) in groups.metricGroups.iter_mut().zip(found) {
            *place = MetricGroup { majorId: major, minorId: minor, numFieldIds: 0, fieldIds: [0; 64] };
            for (into, field) in place.fieldIds.iter_mut().zip(fields) {
                *into = field;
                place.numFieldIds += 1;
            }
            groups.numMetricGroups += 1;
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmProfPause(handle: usize) -> i32 {
    set_paused("dcgmProfPause", handle, true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmProfResume(handle: usize) -> i32 {
    set_paused("dcgmProfResume", handle, false)
}

/// Goes to the profiling module: without it -6 where GPM serves, -33 elsewhere.
fn set_paused(call: &str, handle: usize, paused: bool) -> i32 {
    code(request(call, None, handle, |engine, world, _| {
        let served = |by: Profiling| world.gpus().iter().any(|gpu| gpu.profiling == Some(by));
        if !served(Profiling::Module) {
            return Err(if served(Profiling::Gpm) { NOT_SUPPORTED } else { MODULE_NOT_LOADED });
        }
        engine.paused = paused;
        Ok(())
    }))
}
