//! The way of each call: handles, codes, and what goes out by pointer.
//!
//! In: C arguments. Out: values, or NVML's code. What can go wrong: not initialised, a handle that is none, a GPU that
//! is lost, whatever the scenario asks for.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicUsize, Ordering};

use gpu_scenario::answer::{Sentinel, Value};
use gpu_scenario::catalog::{self, FieldRow};
use gpu_scenario::{Go, World, simulator};

pub(crate) const UNINITIALIZED: u32 = 1;
pub(crate) const INVALID_ARGUMENT: u32 = 2;
pub(crate) const NOT_SUPPORTED: u32 = 3;
pub(crate) const NO_PERMISSION: u32 = 4;
pub(crate) const NOT_FOUND: u32 = 6;
pub(crate) const INSUFFICIENT_SIZE: u32 = 7;
pub(crate) const DRIVER_NOT_LOADED: u32 = 9;
pub(crate) const TIMEOUT: u32 = 10;
pub(crate) const GPU_IS_LOST: u32 = 15;
pub(crate) const VERSION_MISMATCH: u32 = 25;
const UNKNOWN: u32 = 999;

/// How often NVML was initialised.
pub(crate) static USERS: AtomicUsize = AtomicUsize::new(0);

/// A handle of the client: the GPU's number + 1, and × 256 the place of a MIG instance + 1.
pub(crate) type Handle = usize;

/// What a handle leads to.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    pub(crate) gpu: u32,
    /// Place of the MIG instance on it.
    pub(crate) place: Option<u32>,
}

impl Device {
    pub(crate) fn handle(self) -> Handle {
        self.gpu as usize + 1 + self.place.map_or(0, |place| (place as usize + 1) << 8)
    }

    fn of(handle: Handle) -> Option<Self> {
        let gpu = u32::try_from((handle & 0xff).checked_sub(1)?).ok()?;
        let place = u32::try_from(handle >> 8).ok()?.checked_sub(1);
        Some(Self { gpu, place })
    }

    /// The entity whose fields it shows.
    pub(crate) fn entity(self) -> (u32, u32) {
        self.place.map_or((1, self.gpu), |place| (5, self.gpu * 7 + place))
    }

    /// The GPU itself; -: what only a whole GPU has.
    pub(crate) fn whole(self) -> Result<u32, u32> {
        if self.place.is_none() { Ok(self.gpu) } else { Err(NOT_SUPPORTED) }
    }
}

/// What the scenario has in store for a call.
pub(crate) fn enter(call: &str, gpu: Option<u32>) -> Result<(), u32> {
    match simulator().enter(call, gpu, false) {
        Go::On => Ok(()),
        Go::Fails(code) => Err(u32::try_from(code).unwrap_or(UNKNOWN)),
        Go::TimedOut | Go::Gone => Err(TIMEOUT),
        Go::Crashes => std::process::abort(),
    }
}

/// A call about the node.
pub(crate) fn on_node<T>(call: &str, serve: impl FnOnce(&World, i64) -> Result<T, u32>) -> Result<T, u32> {
    enter(call, None)?;
    if USERS.load(Ordering::SeqCst) == 0 {
        return Err(UNINITIALIZED);
    }
    simulator().with(serve)
}

/// A call about a device.
pub(crate) fn on_device<T>(
    call: &str,
    handle: Handle,
    serve: impl FnOnce(&World, i64, Device) -> Result<T, u32>,
) -> Result<T, u32> {
    let device = Device::of(handle).ok_or(INVALID_ARGUMENT)?;
    enter(call, Some(device.gpu))?;
    if USERS.load(Ordering::SeqCst) == 0 {
        return Err(UNINITIALIZED);
    }
    simulator().with(|world, now| {
        if !world.exists(device.entity(), now) {
            return Err(if world.gpu(device.gpu).is_some() { NOT_FOUND } else { INVALID_ARGUMENT });
        }
        if world.lost(device.gpu, now) || world.detached(now) {
            return Err(GPU_IS_LOST);
        }
        serve(world, now, device)
    })
}

fn row(id: u16) -> Result<&'static FieldRow, u32> {
    catalog::rows().iter().find(|row| row.id == id).ok_or(UNKNOWN)
}

/// The value of a DCGM field on a device.
pub(crate) fn value(world: &World, now: i64, device: Device, field: u16) -> Result<Value, u32> {
    let answer = world.read(device.entity(), row(field)?, now).ok_or(NOT_FOUND)?;
    match answer.status {
        0 => {}
        -17 => return Err(NO_PERMISSION),
        -14 => return Err(NOT_FOUND),
        -11 => return Err(TIMEOUT),
        -18 => return Err(GPU_IS_LOST),
        _ => return Err(NOT_SUPPORTED),
    }
    match answer.value {
        Value::Absent(Sentinel::NotFound) => Err(NOT_FOUND),
        Value::Absent(Sentinel::NotPermitted) => Err(NO_PERMISSION),
        Value::Absent(_) => Err(NOT_SUPPORTED),
        value => Ok(value),
    }
}

/// The number of a DCGM field on a device.
pub(crate) fn number(world: &World, now: i64, device: Device, field: u16) -> Result<f64, u32> {
    value(world, now, device, field)?.number().ok_or(NOT_SUPPORTED)
}

/// As [`number`], as an `unsigned int` times `scale`.
pub(crate) fn whole(world: &World, now: i64, device: Device, field: u16, scale: f64) -> Result<u32, u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats clip")]
    let whole = (number(world, now, device, field)? * scale) as u32;
    Ok(whole)
}

/// As [`number`], as an `unsigned long long` times `scale`.
pub(crate) fn long(world: &World, now: i64, device: Device, field: u16, scale: f64) -> Result<u64, u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats clip")]
    let long = (number(world, now, device, field)? * scale) as u64;
    Ok(long)
}

/// Writes a result and gives the code.
///
/// # Safety
/// `into` is null or valid for a write.
pub(crate) unsafe fn put<T>(into: *mut T, result: Result<T, u32>) -> u32 {
    if into.is_null() {
        return INVALID_ARGUMENT;
    }
    match result {
        Ok(value) => {
            // SAFETY: the caller's promise
            unsafe { into.write(value) };
            0
        }
        Err(code) => code,
    }
}

/// Writes a text with its NUL and gives the code.
///
/// # Safety
/// `into` is null or valid for writes of `room` bytes.
pub(crate) unsafe fn put_text(into: *mut c_char, room: u32, result: Result<String, u32>) -> u32 {
    let text = match result {
        Err(code) => return code,
        Ok(_) if into.is_null() => return INVALID_ARGUMENT,
        Ok(text) if room as usize <= text.len() => return INSUFFICIENT_SIZE,
        Ok(text) => text,
    };
    // SAFETY: the caller's promise; the text and its NUL fit
    unsafe {
        into.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        into.add(text.len()).write(0);
    }
    0
}

/// A text of the caller.
///
/// # Safety
/// Null, or a text that ends in NUL.
pub(crate) unsafe fn text(pointer: *const c_char) -> Result<String, u32> {
    if pointer.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise
    Ok(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Fills the caller's array: with too little room the count says the need. Gives the code.
///
/// # Safety
/// `count` is null or valid; `into` is null or valid for as many as the count says.
pub(crate) unsafe fn put_list<T>(into: *mut T, count: *mut u32, result: Result<Vec<T>, u32>) -> u32 {
    // SAFETY: the caller's promise
    let Some(count) = (unsafe { count.as_mut() }) else { return INVALID_ARGUMENT };
    let found = match result {
        Ok(found) => found,
        Err(code) => return code,
    };
    let room = *count as usize;
    *count = u32::try_from(found.len()).unwrap_or(u32::MAX);
    if found.is_empty() {
        return 0;
    }
    if into.is_null() || room < found.len() {
        return INSUFFICIENT_SIZE;
    }
    for (place, item) in found.into_iter().enumerate() {
        // SAFETY: the caller's promise; there is room
        unsafe { into.add(place).write(item) };
    }
    0
}

/// Copies a text into an array of characters, cut to fit.
pub(crate) fn chars<const N: usize>(text: &str) -> [u8; N] {
    let mut into = [0; N];
    let length = text.len().min(N - 1);
    into[..length].copy_from_slice(&text.as_bytes()[..length]);
    into
}

/// Version word of a struct.
pub(crate) const fn version_word<T>(version: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "small structs")]
    let size = size_of::<T>() as u32;
    size | version << 24
}
