//! Which devices there are, and who they are.
//!
//! In: C arguments. Out: NVML's codes, handles, names. What can go wrong: a device that does not exist is 6 or 2.

use std::ffi::c_char;

use gpu_scenario::World;

use crate::door::{
    Device, Handle, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, chars, number, on_device, on_node, put,
    put_text, text, value,
};

/// NVML's PCI info, third form.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PciInfo {
    bus_id_legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    pci_device_id: u32,
    pci_subsystem_id: u32,
    bus_id: [u8; 32],
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(into: *mut u32) -> u32 {
    let found = on_node("nvmlDeviceGetCount_v2", |world, now| {
        Ok(u32::try_from(present(world, now).len()).unwrap_or(0))
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

/// GPUs that the driver lists.
fn present(world: &World, now: i64) -> Vec<u32> {
    let all = 0..u32::try_from(world.gpus().len()).unwrap_or(0);
    all.filter(|gpu| !world.lost(*gpu, now) && !world.detached(now)).collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, into: *mut Handle) -> u32 {
    let found = on_node("nvmlDeviceGetHandleByIndex_v2", |world, now| {
        let gpu = present(world, now).get(index as usize).copied().ok_or(INVALID_ARGUMENT)?;
        Ok(Device { gpu, place: None }.handle())
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, into: *mut Handle) -> u32 {
    let found = on_node("nvmlDeviceGetHandleByUUID", |world, now| {
        // SAFETY: the caller's promise
        let wanted = unsafe { text(uuid) }?;
        for gpu in present(world, now) {
            if world.gpu(gpu).is_some_and(|gpu| gpu.uuid.as_deref() == Some(wanted.as_str())) {
                return Ok(Device { gpu, place: None }.handle());
            }
            let instances = world.mig(gpu, now).unwrap_or_default();
            if let Some((_, place)) = instances.iter().zip(0..).find(|(mig, _)| mig.uuid == wanted) {
                return Ok(Device { gpu, place: Some(place) }.handle());
            }
        }
        Err(NOT_FOUND)
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(address: *const c_char, into: *mut Handle) -> u32 {
    let found = on_node("nvmlDeviceGetHandleByPciBusId_v2", |world, now| {
        // SAFETY: the caller's promise
        let wanted = unsafe { text(address) }?.to_uppercase();
        let is_it = |gpu: &u32| {
            let known = world.gpu(*gpu).and_then(|gpu| gpu.pci.clone()).unwrap_or_default().to_uppercase();
            // the domain has eight digits in NVML, four in the kernel
            !wanted.is_empty() && (known == wanted || known.strip_prefix("0000") == Some(wanted.as_str()))
        };
        let gpu = present(world, now).into_iter().find(is_it).ok_or(NOT_FOUND)?;
        Ok(Device { gpu, place: None }.handle())
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

/// A call that gives the text of a field.
macro_rules! texts {
    ($($name:ident = $field:literal),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: Handle, into: *mut c_char, room: u32) -> u32 {
            let found = on_device(stringify!($name), device, |world, now, device| {
                match value(world, now, device, $field)? {
                    gpu_scenario::Value::Text(text) => Ok(text),
                    _ => Err(NOT_SUPPORTED),
                }
            });
            // SAFETY: the caller's promise
            unsafe { put_text(into, room, found) }
        }
    )*};
}
texts! {
    nvmlDeviceGetUUID = 54,
    nvmlDeviceGetSerial = 53,
    nvmlDeviceGetVbiosVersion = 85,
    nvmlDeviceGetInforomImageVersion = 82,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: Handle, into: *mut c_char, room: u32) -> u32 {
    let found = on_device("nvmlDeviceGetName", device, |world, now, device| {
        let name = world.gpu(device.gpu).and_then(|gpu| gpu.name.clone()).ok_or(NOT_FOUND)?;
        let instance = world.instance(device.entity(), now);
        Ok(instance.map_or(name.clone(), |mig| format!("{name} MIG {}", mig.profile)))
    });
    // SAFETY: the caller's promise
    unsafe { put_text(into, room, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetIndex(device: Handle, into: *mut u32) -> u32 {
    let found = on_device("nvmlDeviceGetIndex", device, |world, now, device| match device.place {
        Some(place) => Ok(place),
        None => {
            let at = present(world, now).iter().position(|gpu| *gpu == device.gpu).ok_or(NOT_FOUND)?;
            u32::try_from(at).map_err(|_| NOT_FOUND)
        }
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMinorNumber(device: Handle, into: *mut u32) -> u32 {
    let found = on_device("nvmlDeviceGetMinorNumber", device, |world, _, device| {
        world.gpu(device.whole()?).and_then(|gpu| gpu.minor).ok_or(NOT_FOUND)
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, into: *mut PciInfo) -> u32 {
    let found = on_device("nvmlDeviceGetPciInfo_v3", device, |world, now, device| {
        let address = world.gpu(device.whole()?).and_then(|gpu| gpu.pci.clone()).ok_or(NOT_FOUND)?;
        let mut parts = address.split([':', '.']).map(|part| u32::from_str_radix(part, 16).unwrap_or(0));
        let mut part = || parts.next().unwrap_or(0);
        let (domain, bus, slot) = (part(), part(), part());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats clip")]
        let id = |field| number(world, now, device, field).unwrap_or(0.0) as u32;
        Ok(PciInfo {
            bus_id_legacy: chars(address.strip_prefix("0000").unwrap_or(&address)),
            domain,
            bus,
            device: slot,
            pci_device_id: id(58),
            pci_subsystem_id: id(59),
            bus_id: chars(&address),
        })
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetArchitecture(device: Handle, into: *mut u32) -> u32 {
    let found = on_device("nvmlDeviceGetArchitecture", device, |world, _, device| {
        world.gpu(device.gpu).and_then(|gpu| gpu.architecture).map(|known| known as u32).ok_or(NOT_FOUND)
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNumaNodeId(device: Handle, into: *mut u32) -> u32 {
    let found = on_device("nvmlDeviceGetNumaNodeId", device, |world, _, device| {
        let node = world.gpu(device.whole()?).and_then(|gpu| gpu.numa).ok_or(NOT_SUPPORTED)?;
        u32::try_from(node).map_err(|_| NOT_SUPPORTED)
    });
    // SAFETY: the caller's promise
    unsafe { put(into, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCpuAffinity(device: Handle, words: u32, into: *mut u64) -> u32 {
    let found = on_device("nvmlDeviceGetCpuAffinity", device, |world, _, device| {
        Ok(world.gpu(device.whole()?).and_then(|gpu| gpu.cpu_affinity.clone()).unwrap_or_default())
    });
    match found {
        Err(code) => code,
        Ok(_) if into.is_null() => INVALID_ARGUMENT,
        Ok(ranges) => {
            for word in 0..u64::from(words) {
                let cpus = (word * 64)..(word * 64 + 64);
                let near = |cpu: &u64| {
                    ranges.iter().any(|(first, last)| (u64::from(*first)..=u64::from(*last)).contains(cpu))
                };
                let mask = cpus.filter(near).fold(0, |mask, cpu| mask | 1 << (cpu % 64));
                // SAFETY: the caller's promise: room for `words`
                unsafe { into.add(usize::try_from(word).unwrap_or(0)).write(mask) };
            }
            0
        }
    }
}
