//! Init, shutdown, versions, error texts.
//!
//! In: C arguments. Out: NVML's codes. What can go wrong: without a driver, init is 9.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use gpu_scenario::simulator;

use crate::door::{DRIVER_NOT_LOADED, UNINITIALIZED, USERS, enter, on_node, put, put_text};

fn init(call: &str) -> u32 {
    if let Err(code) = enter(call, None) {
        return code;
    }
    if !simulator().with(|world, _| world.has_driver()) {
        return DRIVER_NOT_LOADED;
    }
    USERS.fetch_add(1, Ordering::SeqCst);
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> u32 {
    init("nvmlInit_v2")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: u32) -> u32 {
    init("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> u32 {
    if let Err(code) = enter("nvmlShutdown", None) {
        return code;
    }
    let less = USERS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |users| users.checked_sub(1));
    if less.is_ok() { 0 } else { UNINITIALIZED }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    let text = match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        25 => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(into: *mut c_char, room: u32) -> u32 {
    let found = on_node("nvmlSystemGetDriverVersion", |world, _| Ok(world.scenario().driver.clone()));
    // SAFETY: the caller's promise
    unsafe { put_text(into, room, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(into: *mut c_char, room: u32) -> u32 {
    let found = on_node("nvmlSystemGetNVMLVersion", |world, _| Ok(world.scenario().nvml.clone()));
    // SAFETY: the caller's promise
    unsafe { put_text(into, room, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(into: *mut i32) -> u32 {
    let found = on_node("nvmlSystemGetCudaDriverVersion_v2", |world, _| Ok(world.scenario().cuda));
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(into: *mut i32) -> u32 {
    let found = on_node("nvmlSystemGetCudaDriverVersion", |world, _| Ok(world.scenario().cuda));
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}
