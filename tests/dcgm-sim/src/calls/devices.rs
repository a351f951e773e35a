//! GPUs and their instances: lists, states, attributes.
//!
//! In: C arguments. Out: C return codes and structs. What can go wrong: a GPU that does not exist is -1; after a fatal
//! XID the attributes come blank with code 0.

use gpu_scenario::answer::Value;
use gpu_scenario::node::{Gpu, Mig};
use gpu_scenario::{Version, World};

use crate::abi::devices::{ClockSet, DeviceAttributes, MigEntityInfo, MigHierarchy, MigHierarchyInfo};
use crate::abi::values::Pair;
use crate::abi::{put_text, version_word};
use crate::client::{code, has, has_subcommand, request};
use crate::codes::{BAD_PARAM, INSUFFICIENT_SIZE};
use crate::engine::groups::instances;
use crate::engine::{Engine, all_gpus, row};
use crate::pointers::{items_mut, out, versioned};

const INT_BLANK: u32 = 0x7fff_fff0;

unsafe fn put_ids(found: &[u32], ids: *mut u32, count: *mut i32) -> Result<(), i32> {
    // SAFETY: the callers' promise: room for 32
    let (ids, count) = unsafe { (items_mut(ids, 32)?, out(count)?) };
    ids.iter_mut().zip(found).for_each(|(place, id)| *place = *id);
    *count = i32::try_from(found.len()).unwrap_or(0);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetAllDevices(handle: usize, ids: *mut u32, count: *mut i32) -> i32 {
    code(request("dcgmGetAllDevices", None, handle, |_, world, _| {
        // SAFETY: the caller's promise
        unsafe { put_ids(&all_gpus(world), ids, count) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetAllSupportedDevices(
    handle: usize,
    ids: *mut u32,
    count: *mut i32,
) -> i32 {
    code(request("dcgmGetAllSupportedDevices", None, handle, |engine, world, now| {
        // SAFETY: the caller's promise
        unsafe { put_ids(&engine.supported(world, now), ids, count) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetGpuStatus(handle: usize, gpu: u32, status: *mut u32) -> i32 {
    code(request("dcgmGetGpuStatus", Some(gpu), handle, |engine, world, now| {
        world.gpu(gpu).ok_or(BAD_PARAM)?;
        let (ok, lost, detached) = (1, 4, 7);
        // SAFETY: the caller's promise
        *unsafe { out(status) }? = match () {
            () if engine.is_detached(world, now) => detached,
            () if engine.knows_lost(world, gpu, now) => lost,
            () => ok,
        };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetGpuChipArchitecture(
    handle: usize,
    gpu: u32,
    architecture: *mut u32,
) -> i32 {
    code(has(Version(4, 2, 0)).and_then(|()| {
        request("dcgmGetGpuChipArchitecture", Some(gpu), handle, |_, world, _| {
            let found = world.gpu(gpu).and_then(|gpu| gpu.architecture).ok_or(BAD_PARAM)?;
            // SAFETY: the caller's promise
            *unsafe { out(architecture) }? = found as u32;
            Ok(())
        })
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetEntityGroupEntities(
    handle: usize,
    group: u32,
    ids: *mut u32,
    count: *mut i32,
    flags: u32,
) -> i32 {
    code(request("dcgmGetEntityGroupEntities", None, handle, |engine, world, now| {
        // SAFETY: the caller's promise
        let count = unsafe { out(count) }?;
        let found = engine.entities(world, now, group, flags & 1 != 0)?;
        let room = usize::try_from(*count).map_err(|_| BAD_PARAM)?;
        *count = i32::try_from(found.len()).unwrap_or(0);
        if room < found.len() {
            return Err(INSUFFICIENT_SIZE);
        }
        // SAFETY: the caller's promise: room for as many as the count said
        let ids = unsafe { items_mut(ids, room) }?;
        ids.iter_mut().zip(found).for_each(|(place, id)| *place = id);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetDeviceAttributes(
    handle: usize,
    gpu: u32,
    attributes: *mut DeviceAttributes,
) -> i32 {
    code(request("dcgmGetDeviceAttributes", Some(gpu), handle, |engine, world, now| {
        has_subcommand(world)?;
        // SAFETY: the caller's promise
        let attributes = unsafe { versioned(attributes, &[version_word::<DeviceAttributes>(3)]) }?;
        let device = world.gpu(gpu).ok_or(BAD_PARAM)?;
        let values = Values { engine, world, now, gpu };
        fill_identity(attributes, device, &values);
        fill_numbers(attributes, &values);
        Ok(())
    }))
}

/// Values of one GPU as the attributes tell them.
struct Values<'a> {
    engine: &'a Engine,
    world: &'a World,
    now: i64,
    gpu: u32,
}

impl Values<'_> {
    fn number(&self, field: u16) -> u32 {
        let known = row(self.world, field).filter(|_| !self.is_dead());
        let answer = known.and_then(|row| self.world.read((1, self.gpu), row, self.now));
        match answer.and_then(|answer| answer.value.number()) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "casts of floats clip"
            )]
            Some(number) => number as u32,
            None => INT_BLANK,
        }
    }

    fn text(&self, field: u16) -> String {
        let answer = row(self.world, field).and_then(|row| self.world.read((1, self.gpu), row, self.now));
        match answer.map(|answer| answer.value) {
            Some(Value::Text(text)) if !self.is_dead() => text,
            _ => "<<<NULL>>>".into(),
        }
    }

    fn is_dead(&self) -> bool {
        self.engine.driver_is_dead(self.world, self.now)
    }
}

fn fill_identity(into: &mut DeviceAttributes, device: &Gpu, values: &Values<'_>) {
    let said = |text: &Option<String>| {
        if values.is_dead() { "<<<NULL>>>".to_owned() } else { text.clone().unwrap_or_default() }
    };
    let identifiers = &mut into.identifiers;
    put_text(&mut identifiers.brandName, &values.text(51));
    put_text(&mut identifiers.deviceName, &said(&device.name));
    put_text(&mut identifiers.pciBusId, &said(&device.pci));
    put_text(&mut identifiers.serial, &said(&device.serial));
    put_text(&mut identifiers.uuid, &said(&device.uuid));
    put_text(&mut identifiers.vbios, &values.text(85));
    put_text(&mut identifiers.inforomImageVersion, &values.text(82));
    put_text(&mut identifiers.driverVersion, &values.text(1));
    identifiers.pciDeviceId = values.number(58);
    identifiers.pciSubSystemId = values.number(59);
    identifiers.virtualizationMode = values.number(500);
}

fn fill_numbers(into: &mut DeviceAttributes, values: &Values<'_>) {
    into.memoryUsage.bar1Total = values.number(90);
    into.memoryUsage.fbTotal = values.number(250);
    into.memoryUsage.fbFree = values.number(251);
    into.memoryUsage.fbUsed = values.number(252);
    into.thermalSettings.slowdownTemp = values.number(158);
    into.thermalSettings.shutdownTemp = values.number(159);
    into.powerLimits.curPowerLimit = values.number(160);
    into.powerLimits.minPowerLimit = values.number(161);
    into.powerLimits.maxPowerLimit = values.number(162);
    into.powerLimits.defaultPowerLimit = values.number(163);
    into.powerLimits.enforcedPowerLimit = values.number(164);
    into.settings.persistenceModeEnabled = values.number(66);
    into.settings.migModeEnabled = u32::from(values.world.mig(values.gpu, values.now).is_some());
    into.settings.confidentialComputeMode = 0;
    into.clockSets.count = 2;
    for (place, sm) in into.clockSets.sets.iter_mut().zip([1980, 1965]) {
        *place = ClockSet { version: place.version, mem: 2619, sm };
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetGpuInstanceHierarchy(handle: usize, list: *mut MigHierarchy) -> i32 {
    code(request("dcgmGetGpuInstanceHierarchy", None, handle, |_, world, now| {
        // SAFETY: the caller's promise
        let list = unsafe { versioned(list, &[version_word::<MigHierarchy>(2)]) }?;
        list.count = 0;
        let mut entries = list.entityList.iter_mut();
        for (_, id) in instances(world, now, 4) {
            let Some(mig) = world.instance((4, id), now) else { continue };
            for kind in [4, 5] {
                if let Some(place) = entries.next() {
                    *place = entry(world, mig, kind, id);
                    list.count += 1;
                }
            }
        }
        Ok(())
    }))
}

fn entry(world: &World, mig: &Mig, kind: u32, id: u32) -> MigHierarchyInfo {
    let gpu = id / 7;
    let mut uuid = [0; 128];
    put_text(&mut uuid, world.gpu(gpu).and_then(|gpu| gpu.uuid.as_deref()).unwrap_or_default());
    let of_slices = match mig.slices() {
        1 => 0,
        2 => 1,
        3 => 2,
        4 => 3,
        _ => 4,
    };
    let (parent, ci, profile) = match kind {
        4 => ((1, gpu), u32::MAX, mig.profile_id()),
        _ => ((4, id), mig.ci, of_slices),
    };
    MigHierarchyInfo {
        entity: Pair { entityGroupId: kind, entityId: id },
        parent: Pair { entityGroupId: parent.0, entityId: parent.1 },
        info: MigEntityInfo {
            gpuUuid: uuid,
            nvmlGpuIndex: gpu,
            nvmlInstanceId: mig.gi.unwrap_or(id % 7 + 1),
            nvmlComputeInstanceId: ci,
            nvmlMigProfileId: profile,
            nvmlProfileSlices: mig.slices(),
        },
    }
}
