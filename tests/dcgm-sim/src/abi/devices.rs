//! Structs that describe GPUs, their instances and CPUs.
//!
//! In: nothing. Out: structs. What can go wrong: see the parent.

use super::c_struct;
use super::values::Pair;

/// A pair of clocks. Unit: MHz. Not in the list of layouts by itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ClockSet {
    pub(crate) version: i32,
    pub(crate) mem: u32,
    pub(crate) sm: u32,
}
/// The clocks that can be set; the list has its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ClockSets {
    pub(crate) version: u32,
    pub(crate) count: u32,
    pub(crate) sets: [ClockSet; 256],
}
c_struct!(
    /// Limits of temperature. Unit: °C.
    Thermals = "dcgmDeviceThermals_v1" { version: u32, slowdownTemp: u32, shutdownTemp: u32 }
);
c_struct!(
    /// Limits of power. Unit: W.
    PowerLimits = "dcgmDevicePowerLimits_v1" {
        version: u32, curPowerLimit: u32, defaultPowerLimit: u32, enforcedPowerLimit: u32, minPowerLimit: u32,
        maxPowerLimit: u32,
    }
);
c_struct!(
    /// Names and numbers.
    Identifiers = "dcgmDeviceIdentifiers_v1" {
        version: u32, brandName: [u8; 256], deviceName: [u8; 256], pciBusId: [u8; 256], serial: [u8; 256],
        uuid: [u8; 256], vbios: [u8; 256], inforomImageVersion: [u8; 256], pciDeviceId: u32, pciSubSystemId: u32,
        driverVersion: [u8; 256], virtualizationMode: u32,
    }
);
c_struct!(
    /// Memory. Unit: MiB.
    MemoryUsage = "dcgmDeviceMemoryUsage_v1" { version: u32, bar1Total: u32, fbTotal: u32, fbUsed: u32, fbFree: u32 }
);
c_struct!(
    /// Modes.
    Settings = "dcgmDeviceSettings_v2" {
        version: u32, persistenceModeEnabled: u32, migModeEnabled: u32, confidentialComputeMode: u32,
    }
);
c_struct!(
    /// All about a GPU.
    DeviceAttributes = "dcgmDeviceAttributes_v3" {
        version: u32, clockSets: ClockSets, thermalSettings: Thermals, powerLimits: PowerLimits,
        identifiers: Identifiers, memoryUsage: MemoryUsage, settings: Settings,
    }
);
c_struct!(
    /// NVML's numbers of an instance.
    MigEntityInfo = "dcgmMigEntityInfo_t" {
        gpuUuid: [u8; 128], nvmlGpuIndex: u32, nvmlInstanceId: u32, nvmlComputeInstanceId: u32,
        nvmlMigProfileId: u32, nvmlProfileSlices: u32,
    }
);
c_struct!(
    /// An instance and its parent.
    MigHierarchyInfo = "dcgmMigHierarchyInfo_v2" { entity: Pair, parent: Pair, info: MigEntityInfo }
);
c_struct!(
    /// All instances.
    MigHierarchy = "dcgmMigHierarchy_v2" { version: u32, count: u32, entityList: [MigHierarchyInfo; 448] }
);
c_struct!(
    /// Cores of a CPU.
    OwnedCores = "dcgmCpuHierarchyOwnedCores_v1" { version: u32, bitmask: [u64; 16] }
);
/// A CPU; not in the list of layouts by itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CpuV1 {
    pub(crate) id: u32,
    pub(crate) cores: OwnedCores,
}
/// A CPU with its serial number.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CpuV2 {
    pub(crate) id: u32,
    pub(crate) cores: OwnedCores,
    pub(crate) serial: [u8; 256],
}
c_struct!(
    /// All CPUs.
    CpuHierarchyV1 = "dcgmCpuHierarchy_v1" { version: u32, numCpus: u32, cpus: [CpuV1; 8] }
);
c_struct!(
    /// All CPUs with serial numbers.
    CpuHierarchyV2 = "dcgmCpuHierarchy_v2" { version: u32, numCpus: u32, cpus: [CpuV2; 8] }
);
