//! Init, shutdown, embedded engine, connections, versions, modules, driver.
//!
//! In: C arguments. Out: C return codes. What can go wrong: see `client`.

use std::ffi::c_char;

use gpu_scenario::{Version, simulator};

use crate::abi::engine::{
    ConnectV1, ConnectV2, ConnectV3, EngineHealth, ModuleStatus, ModuleStatuses, StartV1, StartV2, StartV3,
    VersionInfo,
};
use crate::abi::{put_text, version_word};
use crate::client::{self, code, request};
use crate::codes::{self, BAD_PARAM, VER_MISMATCH};
use crate::pointers::{out, text, versioned, word};

const MANUAL: u32 = 2;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmInit() -> i32 {
    client::init()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmShutdown() -> i32 {
    client::shutdown()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn errorString(code: i32) -> *const c_char {
    codes::text(code).map_or(std::ptr::null(), std::ffi::CStr::as_ptr)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmStartEmbedded(mode: u32, handle: *mut usize) -> i32 {
    let start = || {
        // SAFETY: the caller's promise
        let handle = unsafe { out(handle) }?;
        if let Some(new) = client::start("dcgmStartEmbedded", mode == MANUAL)? {
            *handle = new;
        }
        Ok(())
    };
    code(start())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmStartEmbedded_v2(params: *mut StartV1) -> i32 {
    let start = || {
        // SAFETY: the caller's promise: a versioned struct
        let found = unsafe { word(params.cast()) }?;
        let third = found == version_word::<StartV3>(3) && client::has(Version(4, 3, 0)).is_ok();
        if !third && ![version_word::<StartV1>(1), version_word::<StartV2>(2)].contains(&found) {
            return Err(VER_MISMATCH);
        }
        // SAFETY: the three forms begin alike, up to the handle; the first is the smallest
        let params = unsafe { out(params) }?;
        if let Some(new) = client::start("dcgmStartEmbedded_v2", params.opMode == MANUAL)? {
            params.dcgmHandle = new;
        }
        Ok(())
    };
    code(start())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmStopEmbedded(handle: usize) -> i32 {
    code(client::stop(handle))
}

unsafe fn connect(
    call: &str,
    address: *const c_char,
    timeout_ms: u32,
    persists: bool,
    handle: *mut usize,
) -> i32 {
    // SAFETY: the callers' promise
    match unsafe { (text(address), out(handle)) } {
        (Ok(_), Ok(handle)) => {
            let (code, new) = client::connect(call, timeout_ms, persists);
            if new != 0 {
                *handle = new;
            }
            code
        }
        _ => BAD_PARAM,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmConnect(address: *const c_char, handle: *mut usize) -> i32 {
    // SAFETY: the caller's promise
    unsafe { connect("dcgmConnect", address, 0, false, handle) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmConnect_v2(
    address: *const c_char,
    params: *mut ConnectV2,
    handle: *mut usize,
) -> i32 {
    // SAFETY: the caller's promise: a versioned struct
    let (timeout_ms, persists) = match unsafe { word(params.cast()) } {
        Err(code) => return code,
        Ok(word) if word == version_word::<ConnectV1>(1) => {
            // SAFETY: its version word says so
            let params = unsafe { params.cast::<ConnectV1>().read() };
            (0, params.persistAfterDisconnect != 0)
        }
        Ok(word) if word == version_word::<ConnectV2>(2) => {
            // SAFETY: its version word says so
            let params = unsafe { params.read() };
            (params.timeoutMs, params.persistAfterDisconnect != 0)
        }
        Ok(_) => return VER_MISMATCH,
    };
    // SAFETY: the caller's promise
    unsafe { connect("dcgmConnect_v2", address, timeout_ms, persists, handle) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmConnect_v3(
    address: *const c_char,
    params: *mut ConnectV3,
    handle: *mut usize,
) -> i32 {
    if simulator().with(|world, _| world.library() < Version(4, 5, 0)) {
        return codes::FUNCTION_NOT_FOUND;
    }
    // SAFETY: the caller's promise
    match unsafe { versioned(params, &[version_word::<ConnectV3>(1)]) } {
        Err(code) => code,
        Ok(params) => {
            let (timeout_ms, persists) = (params.timeoutMs, params.persistAfterDisconnect != 0);
            // SAFETY: the caller's promise
            unsafe { connect("dcgmConnect_v3", address, timeout_ms, persists, handle) }
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmDisconnect(handle: usize) -> i32 {
    client::disconnect(handle)
}

fn build_text(version: Version) -> String {
    format!(
        "version:{version};arch:x86_64;buildtype:Release;buildid:;builddate:2026-01-01;commit:{};branch:master;\
         buildplatform:Linux;;crc:{}",
        "0".repeat(40),
        "0".repeat(32)
    )
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmVersionInfo(info: *mut VersionInfo) -> i32 {
    let fill = || {
        client::enter("dcgmVersionInfo", None, false)?;
        // SAFETY: the caller's promise
        let info = unsafe { versioned(info, &[version_word::<VersionInfo>(2)]) }?;
        put_text(&mut info.rawBuildInfoString, &build_text(simulator().with(|world, _| world.library())));
        Ok(())
    };
    code(fill())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmHostengineVersionInfo(handle: usize, info: *mut VersionInfo) -> i32 {
    code(request("dcgmHostengineVersionInfo", None, handle, |_, world, _| {
        // SAFETY: the caller's promise
        let info = unsafe { versioned(info, &[version_word::<VersionInfo>(2)]) }?;
        put_text(&mut info.rawBuildInfoString, &build_text(world.engine_version()));
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmHostengineIsHealthy(handle: usize, health: *mut EngineHealth) -> i32 {
    code(request("dcgmHostengineIsHealthy", None, handle, |_, _, _| {
        // SAFETY: the caller's promise
        let health = unsafe { versioned(health, &[version_word::<EngineHealth>(1)]) }?;
        health.overallHealth = 0;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmModuleGetStatuses(handle: usize, list: *mut ModuleStatuses) -> i32 {
    code(request("dcgmModuleGetStatuses", None, handle, |engine, world, now_us| {
        // SAFETY: the caller's promise
        let list = unsafe { versioned(list, &[version_word::<ModuleStatuses>(1)]) }?;
        let profiling_module =
            world.gpus().iter().any(|gpu| gpu.profiling == Some(gpu_scenario::node::Profiling::Module));
        let paused = world.paused(now_us);
        let state = |module: u32| match module {
            0 | 1 => 3,
            4 if engine.health_loaded => 3,
            8 if engine.profiling_failed => 2,
            8 if profiling_module && (engine.paused || world.paused(now_us)) => 5,
            8 if profiling_module => 3,
            9 if world.scenario().cpus.is_empty() => 2,
            9 => 3,
            _ => 0,
        };
        let last = match world.library() {
            version if version < Version(3, 3, 0) => 8,
            version if version < Version(4, 3, 0) => 9,
            _ => 10,
        };
        list.numStatuses = last + 1;
        for (module, place) in (0..=last).zip(&mut list.statuses) {
            // a pause reaches each module that is loaded, but not the core
            let status = if state(module) == 3 && module != 0 && paused { 5 } else { state(module) };
            *place = ModuleStatus { id: module, status };
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmAttachDriver(handle: usize) -> i32 {
    set_driver("dcgmAttachDriver", handle, false)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmDetachDriver(handle: usize) -> i32 {
    set_driver("dcgmDetachDriver", handle, true)
}

fn set_driver(call: &str, handle: usize, detached: bool) -> i32 {
    code(client::has(Version(4, 5, 0)).and_then(|()| {
        request(call, None, handle, |engine, world, now| {
            engine.set_detached(detached);
            engine.catch_up(world, now);
            let scenario = world.scenario();
            Ok(world.seconds(now) + if detached { scenario.detach_s } else { scenario.attach_s })
        })
        .map(|end| {
            if !simulator().time_is_set() {
                simulator().wait_while(|world, now| world.seconds(now) < end);
            }
        })
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn dcgmUpdateAllFields(handle: usize, _wait: i32) -> i32 {
    code(request("dcgmUpdateAllFields", None, handle, |engine, world, now| {
        engine.update_all(world, now);
        Ok(())
    }))
}
