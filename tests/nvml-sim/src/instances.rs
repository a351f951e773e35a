//! MIG.
//!
//! In: C arguments. Out: NVML's codes, handles, profiles. What can go wrong: an instance that is gone is 6; a GPU
//! without MIG is 3.

use gpu_scenario::World;
use gpu_scenario::node::Mig;

use crate::door::{
    Device, Handle, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, VERSION_MISMATCH, chars, on_device, put,
    version_word,
};

/// Bit of a GPU instance's handle.
const INSTANCE: usize = 1 << 40;

/// What an instance has.
#[repr(C)]
struct Attributes {
    multiprocessors: u32,
    shared_copy_engines: u32,
    shared_decoders: u32,
    shared_encoders: u32,
    shared_jpeg: u32,
    shared_ofa: u32,
    gpu_instance_slices: u32,
    compute_instance_slices: u32,
    memory_mib: u64,
}

/// A profile of GPU instances, first form.
#[repr(C)]
struct Profile {
    id: u32,
    is_p2p_supported: u32,
    slices: u32,
    instances: u32,
    multiprocessors: u32,
    copy_engines: u32,
    decoders: u32,
    encoders: u32,
    jpeg: u32,
    ofa: u32,
    memory_mib: u64,
}

/// A profile of GPU instances with its name.
#[repr(C)]
struct ProfileV2 {
    version: u32,
    id: u32,
    is_p2p_supported: u32,
    slices: u32,
    instances: u32,
    multiprocessors: u32,
    copy_engines: u32,
    decoders: u32,
    encoders: u32,
    jpeg: u32,
    ofa: u32,
    memory_mib: u64,
    name: [u8; 96],
}

/// A GPU instance.
#[repr(C)]
struct InstanceInfo {
    device: Handle,
    id: u32,
    profile: u32,
    start: u32,
    size: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(device: Handle, current: *mut u32, pending: *mut u32) -> u32 {
    let found = on_device("nvmlDeviceGetMigMode", device, |world, now, device| {
        let gpu = world.gpu(device.whole()?).and_then(|gpu| gpu.architecture);
        let on = world.mig(device.gpu, now).is_some();
        let can = gpu.is_some_and(|architecture| 7 <= architecture as u32 && architecture as u32 != 8);
        if can || on { Ok(u32::from(on)) } else { Err(NOT_SUPPORTED) }
    });
    // SAFETY: the caller's promise
    match unsafe { put(current, found) } {
        0 => {
            // SAFETY: the caller's promise
            unsafe { put(pending, found) }
        }
        code => code,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, into: *mut u32) -> u32 {
    let found = on_device("nvmlDeviceGetMaxMigDeviceCount", device, |world, now, device| {
        Ok(if world.mig(device.whole()?, now).is_some() { 7 } else { 0 })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Handle,
    index: u32,
    into: *mut Handle,
) -> u32 {
    let found = on_device("nvmlDeviceGetMigDeviceHandleByIndex", device, |world, now, device| {
        let instances = world.mig(device.whole()?, now).ok_or(NOT_SUPPORTED)?;
        instances.get(index as usize).ok_or(NOT_FOUND)?;
        Ok(Device { gpu: device.gpu, place: Some(index) }.handle())
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceIsMigDeviceHandle(device: Handle, into: *mut u32) -> u32 {
    let found = on_device("nvmlDeviceIsMigDeviceHandle", device, |_, _, device| {
        Ok(u32::from(device.place.is_some()))
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: Handle, into: *mut Handle) -> u32 {
    let found = on_device("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device, |_, _, device| {
        device.place.ok_or(INVALID_ARGUMENT)?;
        Ok(Device { place: None, ..device }.handle())
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

fn instance(world: &World, now: i64, device: Device) -> Result<(&Mig, u32), u32> {
    let place = device.place.ok_or(NOT_SUPPORTED)?;
    let mig = world.instance(device.entity(), now).ok_or(NOT_FOUND)?;
    Ok((mig, mig.gi.unwrap_or(place + 1)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(device: Handle, into: *mut u32) -> u32 {
    let found = on_device("nvmlDeviceGetGpuInstanceId", device, |world, now, device| {
        Ok(instance(world, now, device)?.1)
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeInstanceId(device: Handle, into: *mut u32) -> u32 {
    let found = on_device("nvmlDeviceGetComputeInstanceId", device, |world, now, device| {
        Ok(instance(world, now, device)?.0.ci)
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetAttributes_v2(device: Handle, into: *mut Attributes) -> u32 {
    let found = on_device("nvmlDeviceGetAttributes_v2", device, |world, now, device| {
        let (mig, _) = instance(world, now, device)?;
        let slices = mig.slices();
        Ok(Attributes {
            multiprocessors: slices * 16,
            shared_copy_engines: slices,
            shared_decoders: slices,
            shared_encoders: 0,
            shared_jpeg: slices,
            shared_ofa: 0,
            gpu_instance_slices: slices,
            compute_instance_slices: slices,
            memory_mib: mig.memory_mib(),
        })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

/// NVML's numbers of the profiles, by slices: 1, 2, 3, 4, 7.
const SLICES: [u32; 5] = [1, 2, 3, 4, 7];

/// An instance of the GPU that has the profile of this number.
fn profile(world: &World, now: i64, device: Device, number: u32) -> Result<&Mig, u32> {
    let slices = SLICES.get(number as usize).ok_or(INVALID_ARGUMENT)?;
    let instances = world.mig(device.whole()?, now).ok_or(NOT_SUPPORTED)?;
    instances.into_iter().find(|mig| mig.slices() == *slices).ok_or(NOT_SUPPORTED)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfo(
    device: Handle,
    number: u32,
    into: *mut Profile,
) -> u32 {
    let found = on_device("nvmlDeviceGetGpuInstanceProfileInfo", device, |world, now, device| {
        let mig = profile(world, now, device, number)?;
        let slices = mig.slices();
        Ok(Profile {
            id: mig.profile_id(),
            is_p2p_supported: 0,
            slices,
            instances: 7 / slices.max(1),
            multiprocessors: slices * 16,
            copy_engines: slices,
            decoders: slices,
            encoders: 0,
            jpeg: slices,
            ofa: 0,
            memory_mib: mig.memory_mib(),
        })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: Handle,
    number: u32,
    into: *mut ProfileV2,
) -> u32 {
    let found = on_device("nvmlDeviceGetGpuInstanceProfileInfoV", device, |world, now, device| {
        let word = version_word::<ProfileV2>(2);
        // SAFETY: the caller's promise: a versioned struct
        if unsafe { into.cast::<u32>().as_ref() } != Some(&word) {
            return Err(VERSION_MISMATCH);
        }
        let mig = profile(world, now, device, number)?;
        let slices = mig.slices();
        Ok(ProfileV2 {
            version: word,
            id: mig.profile_id(),
            is_p2p_supported: 0,
            slices,
            instances: 7 / slices.max(1),
            multiprocessors: slices * 16,
            copy_engines: slices,
            decoders: slices,
            encoders: 0,
            jpeg: slices,
            ofa: 0,
            memory_mib: mig.memory_mib(),
            name: chars(&format!("MIG {}", mig.profile)),
        })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceById(device: Handle, id: u32, into: *mut Handle) -> u32 {
    let found = on_device("nvmlDeviceGetGpuInstanceById", device, |world, now, device| {
        let instances = world.mig(device.whole()?, now).ok_or(NOT_SUPPORTED)?;
        let numbered = instances.iter().zip(0_u32..).find(|(mig, place)| mig.gi.unwrap_or(place + 1) == id);
        let (_, place) = numbered.ok_or(NOT_FOUND)?;
        Ok(Device { gpu: device.gpu, place: Some(place) }.handle() | INSTANCE)
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpuInstanceGetInfo(gpu_instance: Handle, into: *mut InstanceInfo) -> u32 {
    if gpu_instance & INSTANCE == 0 {
        return INVALID_ARGUMENT;
    }
    let found = on_device("nvmlGpuInstanceGetInfo", gpu_instance & !INSTANCE, |world, now, device| {
        let (mig, id) = instance(world, now, device)?;
        let before = world.mig(device.gpu, now).unwrap_or_default();
        let start = before.iter().take(device.place.unwrap_or(0) as usize).map(|mig| mig.slices()).sum();
        let device = Device { place: None, ..device }.handle();
        Ok(InstanceInfo { device, id, profile: mig.profile_id(), start, size: mig.slices() })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}
