//! Measured values.
//!
//! In: C arguments. Out: NVML's codes and numbers in NVML's units. What can go wrong: see `door`.

use gpu_scenario::catalog;

use crate::door::{
    Handle, INVALID_ARGUMENT, NOT_SUPPORTED, VERSION_MISMATCH, long, on_device, put, value, version_word,
    whole,
};

const MIB: f64 = 1_048_576.0;

/// Memory, first form. Unit: bytes.
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// Memory, second form. Unit: bytes.
#[repr(C)]
struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// Share of the time. Unit: percent.
#[repr(C)]
struct Utilization {
    gpu: u32,
    memory: u32,
}

/// A field value of NVML.
#[repr(C)]
pub(crate) struct FieldValue {
    field: u32,
    scope: u32,
    timestamp_us: i64,
    latency_us: i64,
    kind: u32,
    code: u32,
    value: u64,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Handle, into: *mut Memory) -> u32 {
    let found = on_device("nvmlDeviceGetMemoryInfo", device, |world, now, device| {
        let bytes = |field| long(world, now, device, field, MIB);
        // the first form counts what is reserved as used
        Ok(Memory { total: bytes(250)?, free: bytes(251)?, used: bytes(252)? + bytes(253)? })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, into: *mut MemoryV2) -> u32 {
    let found = on_device("nvmlDeviceGetMemoryInfo_v2", device, |world, now, device| {
        let word = version_word::<MemoryV2>(2);
        // SAFETY: the caller's promise: a versioned struct
        if unsafe { into.as_ref() }.ok_or(INVALID_ARGUMENT)?.version != word {
            return Err(VERSION_MISMATCH);
        }
        let bytes = |field| long(world, now, device, field, MIB);
        Ok(MemoryV2 {
            version: word,
            total: bytes(250)?,
            reserved: bytes(253)?,
            free: bytes(251)?,
            used: bytes(252)?,
        })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetBAR1MemoryInfo(device: Handle, into: *mut Memory) -> u32 {
    let found = on_device("nvmlDeviceGetBAR1MemoryInfo", device, |world, now, device| {
        let bytes = |field| long(world, now, device, field, MIB);
        Ok(Memory { total: bytes(90)?, free: bytes(93)?, used: bytes(92)? })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Handle, into: *mut Utilization) -> u32 {
    let found = on_device("nvmlDeviceGetUtilizationRates", device, |world, now, device| {
        device.whole()?;
        Ok(Utilization {
            gpu: whole(world, now, device, 203, 1.0)?,
            memory: whole(world, now, device, 204, 1.0)?,
        })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

/// A call that gives the number of a field, only of a whole GPU.
macro_rules! numbers {
    ($($name:ident: $kind:ty = $read:ident($field:literal, $scale:literal)),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: Handle, into: *mut $kind) -> u32 {
            let found = on_device(stringify!($name), device, |world, now, device| {
                device.whole()?;
                $read(world, now, device, $field, $scale)
            });
            // SAFETY: the caller's promise
            unsafe { put(into, found) }
        }
    )*};
}
numbers! {
    nvmlDeviceGetPowerUsage: u32 = whole(155, 1000.0),
    nvmlDeviceGetPowerManagementLimit: u32 = whole(160, 1000.0),
    nvmlDeviceGetPowerManagementDefaultLimit: u32 = whole(163, 1000.0),
    nvmlDeviceGetEnforcedPowerLimit: u32 = whole(164, 1000.0),
    nvmlDeviceGetTotalEnergyConsumption: u64 = long(156, 1.0),
    nvmlDeviceGetPcieReplayCounter: u32 = whole(202, 1.0),
    nvmlDeviceGetMaxPcieLinkGeneration: u32 = whole(235, 1.0),
    nvmlDeviceGetMaxPcieLinkWidth: u32 = whole(236, 1.0),
    nvmlDeviceGetCurrPcieLinkGeneration: u32 = whole(237, 1.0),
    nvmlDeviceGetCurrPcieLinkWidth: u32 = whole(238, 1.0),
    nvmlDeviceGetCurrentClocksEventReasons: u64 = long(112, 1.0),
    nvmlDeviceGetCurrentClocksThrottleReasons: u64 = long(112, 1.0),
    nvmlDeviceGetPersistenceMode: u32 = whole(66, 1.0),
    nvmlDeviceGetPerformanceState: u32 = whole(190, 1.0),
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerManagementLimitConstraints(
    device: Handle,
    least: *mut u32,
    most: *mut u32,
) -> u32 {
    let limit = |field| {
        on_device("nvmlDeviceGetPowerManagementLimitConstraints", device, |world, now, device| {
            device.whole()?;
            whole(world, now, device, field, 1000.0)
        })
    };
    // SAFETY: the caller's promise
    match unsafe { put(least, limit(161)) } {
        0 => {
            // SAFETY: the caller's promise
            unsafe { put(most, limit(162)) }
        }
        code => code,
    }
}

/// A call that chooses among fields by a number of its own.
macro_rules! chosen {
    ($($name:ident($choice:ident: $kind:ty) = $read:ident($fields:expr, $scale:expr)),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: Handle, $choice: u32, into: *mut $kind) -> u32 {
            let found = on_device(stringify!($name), device, |world, now, device| {
                device.whole()?;
                let fields: &[u16] = &$fields;
                let field = fields.get($choice as usize).copied().ok_or(NOT_SUPPORTED)?;
                $read(world, now, device, field, $scale)
            });
            // SAFETY: the caller's promise
            unsafe { put(into, found) }
        }
    )*};
}
chosen! {
    nvmlDeviceGetTemperature(sensor: u32) = whole([150], 1.0),
    nvmlDeviceGetTemperatureThreshold(threshold: u32) = whole([159, 158], 1.0),
    nvmlDeviceGetClockInfo(clock: u32) = whole([100, 100, 101, 102], 1.0),
    nvmlDeviceGetMaxClockInfo(clock: u32) = whole([113, 113, 114, 115], 1.0),
    // what DCGM counts in bytes/s, NVML tells in KB/s; 0 is sending, 1 receiving
    nvmlDeviceGetPcieThroughput(counter: u32) = whole([1009, 1010], 1.0 / 1024.0),
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Handle,
    error: u32,
    counter: u32,
    into: *mut u64,
) -> u32 {
    let found = on_device("nvmlDeviceGetTotalEccErrors", device, |world, now, device| {
        let field = match (error, counter) {
            (0, 0) => 310,
            (1, 0) => 311,
            (0, 1) => 312,
            (1, 1) => 313,
            _ => return Err(INVALID_ARGUMENT),
        };
        long(world, now, device, field, 1.0)
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEccMode(device: Handle, current: *mut u32, pending: *mut u32) -> u32 {
    let mode = |field| {
        on_device("nvmlDeviceGetEccMode", device, |world, now, device| whole(world, now, device, field, 1.0))
    };
    // SAFETY: the caller's promise
    match unsafe { put(current, mode(300)) } {
        0 => {
            // SAFETY: the caller's promise
            unsafe { put(pending, mode(301)) }
        }
        code => code,
    }
}

/// Encoder and decoder: share of the time, and over how long.
macro_rules! engines {
    ($($name:ident = $field:literal),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: Handle, into: *mut u32, period_us: *mut u32) -> u32 {
            let found = on_device(stringify!($name), device, |world, now, device| {
                device.whole()?;
                whole(world, now, device, $field, 1.0)
            });
            // SAFETY: the caller's promise
            match unsafe { put(into, found) } {
                0 => {
                    // SAFETY: the caller's promise
                    unsafe { put(period_us, Ok(167_000)) }
                }
                code => code,
            }
        }
    )*};
}
engines! { nvmlDeviceGetEncoderUtilization = 206, nvmlDeviceGetDecoderUtilization = 207 }

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(device: Handle, count: i32, values: *mut FieldValue) -> u32 {
    let Ok(count) = usize::try_from(count) else { return INVALID_ARGUMENT };
    if values.is_null() || count == 0 {
        return INVALID_ARGUMENT;
    }
    let result = on_device("nvmlDeviceGetFieldValues", device, |world, now, device| {
        // SAFETY: the caller's promise: so many values
        for place in unsafe { std::slice::from_raw_parts_mut(values, count) } {
            let row = catalog::rows().iter().find(|row| row.nvml == Some(place.field));
            let read = row.ok_or(NOT_SUPPORTED).and_then(|row| value(world, now, device, row.id));
            let read = read.and_then(|value| value.number().ok_or(NOT_SUPPORTED));
            place.timestamp_us = now;
            place.latency_us = 0;
            // 230, what to do with the GPU, is an unsigned int; counters are unsigned long long
            place.kind = if place.field == 230 { 1 } else { 3 };
            place.code = read.err().unwrap_or(0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "casts of floats clip"
            )]
            let number = read.unwrap_or(0.0) as u64;
            place.value = number;
        }
        Ok(())
    });
    result.err().unwrap_or(0)
}
