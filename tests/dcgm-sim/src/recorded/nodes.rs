//! Devices, instances, links, modules and ready-made groups against the recording.
//!
//! In: `tests/fixtures/dcgm/node_<node>.json` and the scenario of the same name. Out: a failed test. Names and numbers
//! that the recording's fake NVML made up are compared only where they are identities.

use serde_json::{Value, json};

use super::rig::Rig;
use crate::abi::devices::{DeviceAttributes, MigHierarchy};
use crate::abi::engine::{EngineHealth, ModuleStatuses, VersionInfo};
use crate::abi::links::{NvLinkStatusV5, TopologyV2};
use crate::abi::values::{AllFieldGroups, GroupInfoV3, MetricGroups};
use crate::abi::version_word;
use crate::calls::{devices, groups, health, nodes, session};
use crate::engine::groups::ALL_GPUS;

/// A struct full of zeros with its version word: what a client hands over.
fn blank<T>(version: u32) -> Box<T> {
    // SAFETY: the structs hold numbers only, for which zero is a value; the first is the version word
    unsafe {
        let mut made: Box<T> = Box::new_zeroed().assume_init();
        (&raw mut *made).cast::<u32>().write(version_word::<T>(version));
        made
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(bytes[..end].to_vec()).unwrap()
}

/// Ids as ranges, the way the fixture writes them.
fn ranges(ids: &[u16]) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *id => *last = *id,
            _ => runs.push((*id, *id)),
        }
    }
    let written = runs.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    written.collect::<Vec<_>>().join(" ")
}

fn gpu(handle: usize, gpu: u32) -> Value {
    let (mut status, mut architecture) = (0, 0);
    let mut attributes = blank::<DeviceAttributes>(3);
    let mut metrics = blank::<MetricGroups>(3);
    metrics.gpuId = gpu;
    let mut topology = blank::<TopologyV2>(2);
    // SAFETY: places of the right kind
    let codes = unsafe {
        [
            devices::dcgmGetGpuStatus(handle, gpu, &raw mut status),
            devices::dcgmGetGpuChipArchitecture(handle, gpu, &raw mut architecture),
            devices::dcgmGetDeviceAttributes(handle, gpu, &raw mut *attributes),
            health::dcgmProfGetSupportedMetricGroups(handle, &raw mut *metrics),
            nodes::dcgmGetDeviceTopology(handle, gpu, &raw mut *topology),
        ]
    };
    let found = &metrics.metricGroups[..metrics.numMetricGroups as usize];
    let groups = found.iter().map(|group| {
        let fields = ranges(&group.fieldIds[..group.numFieldIds as usize]);
        json!({"major": group.majorId, "minor": group.minorId, "fields": fields})
    });
    let paths = topology.gpuPaths[..topology.numGpus as usize].iter();
    let identifiers = &attributes.identifiers;
    json!({
        "gpu": gpu,
        "status": {"rc": codes[0], "v": status},
        "chip_architecture": {"rc": codes[1], "v": architecture},
        "attributes_rc": codes[2],
        "name": text(&identifiers.deviceName),
        "pci_bus_id": text(&identifiers.pciBusId),
        "serial": text(&identifiers.serial),
        "uuid": text(&identifiers.uuid),
        "driver_version": text(&identifiers.driverVersion),
        "fb_total_mib": attributes.memoryUsage.fbTotal,
        "mig": attributes.settings.migModeEnabled,
        "slowdown_temp": attributes.thermalSettings.slowdownTemp,
        "power_limit_max_w": attributes.powerLimits.maxPowerLimit,
        "bar1_total_mib": attributes.memoryUsage.bar1Total,
        "pci_device_id": identifiers.pciDeviceId,
        "vbios": text(&identifiers.vbios),
        "metric_groups": {"rc": codes[3], "groups": groups.collect::<Vec<_>>()},
        "topology": {"rc": codes[4], "paths": paths.map(|p| json!([p.gpu, p.path, p.links])).collect::<Vec<_>>()},
    })
}

fn entity_lists(handle: usize) -> Value {
    let list = |group: u32| {
        let mut ids = [0; 64];
        let (mut count, mut small) = (64, 1);
        // SAFETY: room for as many as the counts say
        let (code, code_small) = unsafe {
            (
                devices::dcgmGetEntityGroupEntities(handle, group, ids.as_mut_ptr(), &raw mut count, 0),
                devices::dcgmGetEntityGroupEntities(handle, group, [0; 1].as_mut_ptr(), &raw mut small, 1),
            )
        };
        let ids = if code == 0 { &ids[..usize::try_from(count).unwrap()] } else { &[] };
        json!({"eg": group, "rc": code, "ids": ids, "only_supported_room_for_1": {"rc": code_small, "count": small}})
    };
    (0..10).map(list).collect()
}

fn mig(handle: usize) -> Value {
    let mut list = blank::<MigHierarchy>(2);
    // SAFETY: a place of the right kind
    let code = unsafe { devices::dcgmGetGpuInstanceHierarchy(handle, &raw mut *list) };
    let entry = |entry: &crate::abi::devices::MigHierarchyInfo| {
        json!({
            "eg": entry.entity.entityGroupId, "eid": entry.entity.entityId,
            "parent_eg": entry.parent.entityGroupId, "parent_eid": entry.parent.entityId,
            "gpu_uuid": text(&entry.info.gpuUuid), "nvml_gpu_index": entry.info.nvmlGpuIndex,
            "gi": entry.info.nvmlInstanceId, "ci": entry.info.nvmlComputeInstanceId,
            "profile_id": entry.info.nvmlMigProfileId, "slices": entry.info.nvmlProfileSlices,
        })
    };
    json!({"rc": code, "entries": list.entityList[..list.count as usize].iter().map(entry).collect::<Vec<_>>()})
}

fn links(handle: usize) -> Value {
    let mut status = blank::<NvLinkStatusV5>(5);
    // SAFETY: a place of the right kind
    let code = unsafe { nodes::dcgmGetNvLinkLinkStatus(handle, &raw mut *status) };
    let gpus = status.gpus[..status.numGpus as usize].iter().map(
        |gpu| json!({"gpu": gpu.entityId, "states": gpu.linkState.map(|state| state.to_string()).concat()}),
    );
    json!({"rc": code, "switches": status.numNvSwitches, "gpus": gpus.collect::<Vec<_>>()})
}

fn modules(handle: usize) -> Value {
    let mut list = blank::<ModuleStatuses>(1);
    // SAFETY: a place of the right kind
    let code = unsafe { session::dcgmModuleGetStatuses(handle, &raw mut *list) };
    let states =
        list.statuses[..list.numStatuses as usize].iter().map(|module| json!([module.id, module.status]));
    json!({"rc": code, "list": states.collect::<Vec<_>>()})
}

fn ready_made(handle: usize) -> Value {
    let group = |id: usize| {
        let mut info = blank::<GroupInfoV3>(3);
        // SAFETY: a place of the right kind
        let code = unsafe { groups::dcgmGroupGetInfo(handle, id, &raw mut *info) };
        let pairs = info.entityList[..info.count as usize].iter();
        let pairs: Vec<Value> = pairs.map(|pair| json!([pair.entityGroupId, pair.entityId])).collect();
        json!({"id": id, "rc": code, "name": text(&info.groupName), "entities": pairs})
    };
    (0..5).map(|place| group(ALL_GPUS - place)).collect()
}

fn field_groups(handle: usize) -> Value {
    let mut all = blank::<AllFieldGroups>(1);
    // SAFETY: a place of the right kind
    let code = unsafe { groups::dcgmFieldGroupGetAll(handle, &raw mut *all) };
    let list = all.groups[..all.count as usize].iter().map(|group| {
        let fields = &group.fieldIds[..group.numFieldIds as usize];
        json!({"id": group.fieldGroupId, "name": text(&group.fieldGroupName), "fields": fields})
    });
    json!({"rc": code, "list": list.collect::<Vec<_>>()})
}

/// Everything that `ours` says is said by `theirs` too.
fn check_part(at: &str, ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (key, ours) in ours {
                check_part(&format!("{at}.{key}"), ours, theirs.get(key).unwrap_or(&Value::Null));
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (place, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                check_part(&format!("{at}[{place}]"), ours, theirs);
            }
        }
        (ours, theirs) => assert_eq!(ours, theirs, "{at}"),
    }
}

fn check(node: &str) {
    let path = format!("{}/../fixtures/dcgm/node_{node}.json", env!("CARGO_MANIFEST_DIR"));
    let recorded: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut rig = Rig::of(node, "");
    rig.at(300);
    assert_eq!(rig.connect(), 0);
    let handle = rig.handle;
    let (mut version, mut engine) = (blank::<VersionInfo>(2), blank::<VersionInfo>(2));
    let mut healthy = blank::<EngineHealth>(1);
    let (mut all, mut all_count, mut supported, mut supported_count) = ([0; 32], 0, [0; 32], 0);
    // SAFETY: places of the right kind, room for 32 ids
    let codes = unsafe {
        [
            session::dcgmVersionInfo(&raw mut *version),
            session::dcgmHostengineVersionInfo(handle, &raw mut *engine),
            session::dcgmHostengineIsHealthy(handle, &raw mut *healthy),
            devices::dcgmGetAllDevices(handle, all.as_mut_ptr(), &raw mut all_count),
            devices::dcgmGetAllSupportedDevices(handle, supported.as_mut_ptr(), &raw mut supported_count),
        ]
    };
    let count = u32::try_from(all_count).unwrap();
    let mut group_ids = ([0; 64], 0);
    // SAFETY: room for 64 ids
    let ids_code =
        unsafe { groups::dcgmGroupGetAllIds(handle, group_ids.0.as_mut_ptr(), &raw mut group_ids.1) };
    let mut ours = json!({
        "library_version": {"rc": codes[0], "text": text(&version.rawBuildInfoString)},
        "engine_version": {"rc": codes[1], "text": text(&engine.rawBuildInfoString)},
        "engine_healthy": {"rc": codes[2], "overall": healthy.overallHealth},
        "all_devices": {"rc": codes[3], "ids": all[..count as usize]},
        "supported_devices": {"rc": codes[4], "ids": supported[..usize::try_from(supported_count).unwrap()]},
        "gpus": (0..count).map(|id| gpu(handle, id)).collect::<Vec<_>>(),
        "entity_lists": entity_lists(handle),
        "mig_hierarchy": mig(handle),
        "nvlink_status": links(handle),
        "modules_before_health": modules(handle),
        "groups": ready_made(handle),
        "group_ids": {"rc": ids_code, "ids": group_ids.0[..group_ids.1 as usize]},
        "field_groups": field_groups(handle),
    });
    let mut systems = 0;
    let set = health::dcgmHealthSet(handle, ALL_GPUS, u32::MAX);
    // SAFETY: a place of the right kind
    let get = unsafe { health::dcgmHealthGet(handle, ALL_GPUS, &raw mut systems) };
    ours["health"] = json!({"set_rc": set, "get_rc": get, "systems": systems});
    ours["modules_after_health"] = modules(handle);
    check_part(node, &ours, &recorded);
}

#[test]
fn devices_are_described_as_recorded() {
    for node in ["h100x4", "h100mig", "a100mig", "t4x1"] {
        check(node);
    }
}
