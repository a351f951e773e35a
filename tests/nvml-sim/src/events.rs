//! Event sets: XIDs as NVML delivers them.
//!
//! In: C arguments. Out: NVML's codes and events, in the order of the scenario. What can go wrong: nothing in time is
//! 10; a set that was freed is 2.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gpu_scenario::event::XidSource;
use gpu_scenario::simulator;

use crate::door::{Device, Handle, INVALID_ARGUMENT, TIMEOUT, enter, on_device, on_node, put};

/// Bit of an XID event.
const XID: u64 = 8;
const NO_INSTANCE: u32 = u32::MAX;

/// A set of the client.
struct Set {
    /// GPUs whose XIDs it wants.
    gpus: Vec<u32>,
    /// Events with a place below are delivered or were before its time.
    next: usize,
}

/// An event as it is delivered.
#[repr(C)]
pub(crate) struct Event {
    device: Handle,
    kind: u64,
    data: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

static SETS: Mutex<(usize, BTreeMap<usize, Set>)> = Mutex::new((1, BTreeMap::new()));

fn with_sets<T>(change: impl FnOnce(&mut (usize, BTreeMap<usize, Set>)) -> T) -> T {
    change(&mut SETS.lock().unwrap_or_else(PoisonError::into_inner))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(into: *mut usize) -> u32 {
    let found = on_node("nvmlEventSetCreate", |world, now| {
        let t = world.seconds(now);
        let next = world.xids().iter().filter(|(at, _)| *at <= t).count();
        Ok(with_sets(|(number, sets)| {
            let id = *number;
            *number += 1;
            sets.insert(id, Set { gpus: Vec::new(), next });
            id
        }))
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: usize) -> u32 {
    let gone = with_sets(|(_, sets)| sets.remove(&set));
    if gone.is_some() { 0 } else { INVALID_ARGUMENT }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: Handle, kinds: u64, set: usize) -> u32 {
    let result = on_device("nvmlDeviceRegisterEvents", device, |_, _, device| {
        let gpu = device.whole()?;
        with_sets(|(_, sets)| {
            let set = sets.get_mut(&set).ok_or(INVALID_ARGUMENT)?;
            if kinds & XID != 0 && !set.gpus.contains(&gpu) {
                set.gpus.push(gpu);
            }
            Ok(())
        })
    });
    result.err().unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(device: Handle, into: *mut u64) -> u32 {
    let found =
        on_device("nvmlDeviceGetSupportedEventTypes", device, |_, _, device| device.whole().map(|_| XID));
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(set: usize, into: *mut Event, timeout_ms: u32) -> u32 {
    if let Err(code) = enter("nvmlEventSetWait_v2", None) {
        return code;
    }
    let simulator = simulator();
    let end = simulator.now_us().saturating_add(i64::from(timeout_ms).saturating_mul(1000));
    let take = |world: &gpu_scenario::World, now: i64| {
        with_sets(|(_, sets)| {
            let Some(set) = sets.get_mut(&set) else { return Some(Err(INVALID_ARGUMENT)) };
            let all = world.xids();
            while let Some((at, xid)) = all.get(set.next).filter(|(at, _)| *at <= world.seconds(now)) {
                let _ = at;
                set.next += 1;
                if xid.source == XidSource::Nvml && set.gpus.contains(&xid.gpu) {
                    return Some(Ok(Event {
                        device: Device { gpu: xid.gpu, place: None }.handle(),
                        kind: XID,
                        data: u64::from(xid.code),
                        gpu_instance: xid.gi.unwrap_or(NO_INSTANCE),
                        compute_instance: xid.ci.unwrap_or(NO_INSTANCE),
                    }));
                }
            }
            None
        })
    };
    let found = std::cell::Cell::new(None);
    simulator.wait_while(|world, now| {
        if let Some(event) = take(world, now) {
            found.set(Some(event));
            return false;
        }
        now < end
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found.take().unwrap_or(Err(TIMEOUT))) }
}
