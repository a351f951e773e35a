//! Processes on a device.
//!
//! In: C arguments. Out: NVML's codes and lists. What can go wrong: too little room is 7, the count says the need.

use gpu_scenario::node::{Context, Process};

use crate::door::{Device, Handle, NOT_FOUND, on_device, put_list};

/// No number: the driver does not know.
const UNKNOWN: u64 = u64::MAX;
const NO_INSTANCE: u32 = u32::MAX;

/// A process, as the third form of the calls tells it.
#[repr(C)]
struct ProcessInfo {
    pid: u32,
    memory: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// A process' share of the time. Unit: percent; time stamp: µs.
#[repr(C)]
struct Sample {
    pid: u32,
    timestamp_us: u64,
    sm: u32,
    memory: u32,
    encoder: u32,
    decoder: u32,
}

/// Processes of a device: of an instance only those on it.
fn of(world: &gpu_scenario::World, now: i64, device: Device) -> Vec<Process> {
    let gi = device
        .place
        .and_then(|place| world.instance(device.entity(), now).map(|mig| mig.gi.unwrap_or(place + 1)));
    let all = world.processes(device.gpu, now).into_iter();
    all.filter(|process| gi.is_none() || process.gi == gi).collect()
}

/// A call that lists the processes of one kind.
macro_rules! lists {
    ($($name:ident = $context:ident),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: Handle, count: *mut u32, into: *mut ProcessInfo) -> u32 {
            let found = on_device(stringify!($name), device, |world, now, device| {
                let all = of(world, now, device).into_iter();
                let wanted = all.filter(|process| process.context == Context::$context);
                Ok(wanted.map(|process| ProcessInfo {
                    pid: process.pid,
                    memory: process.memory_mib.map_or(UNKNOWN, |mib| mib.saturating_mul(1 << 20)),
                    gpu_instance: process.gi.unwrap_or(NO_INSTANCE),
                    compute_instance: if process.gi.is_some() { 0 } else { NO_INSTANCE },
                }).collect())
            });
            // SAFETY: the caller's promise
            unsafe { put_list(into, count, found) }
        }
    )*};
}
lists! {
    nvmlDeviceGetComputeRunningProcesses_v3 = Compute,
    nvmlDeviceGetGraphicsRunningProcesses_v3 = Graphics,
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = Mps,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: Handle,
    into: *mut Sample,
    count: *mut u32,
    since_us: u64,
) -> u32 {
    let found = on_device("nvmlDeviceGetProcessUtilization", device, |world, now, device| {
        device.whole()?;
        // one sample a second
        let timestamp_us = u64::try_from(now - now.rem_euclid(1_000_000)).unwrap_or(0);
        let all = of(world, now, device);
        if timestamp_us <= since_us || all.is_empty() {
            return Err(NOT_FOUND);
        }
        let sample = |process: Process| Sample {
            pid: process.pid,
            timestamp_us,
            sm: process.sm,
            memory: process.mem,
            encoder: 0,
            decoder: 0,
        };
        Ok(all.into_iter().map(sample).collect())
    });
    // SAFETY: the caller's promise
    unsafe { put_list(into, count, found) }
}
