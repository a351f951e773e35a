//! What does not change about a GPU.
//!
//! In: nothing. Out: structures; see [`super`]. Numbers may be 32-bit sentinels. Source: `dcgm_structs.h`.

use std::ffi::c_char;

use super::family;

/// A text of a device.
type Text = [c_char; 256];

family! {
    /// Temperatures, °C.
    struct Thermals = "dcgmDeviceThermals_v1" since "v3.1.3" {
        version: u32 = "version",
        slowdown: u32 = "slowdownTemp",
        shutdown: u32 = "shutdownTemp",
    }

    /// Power limits, W.
    struct PowerLimits = "dcgmDevicePowerLimits_v1" since "v3.1.3" {
        version: u32 = "version",
        current: u32 = "curPowerLimit",
        default: u32 = "defaultPowerLimit",
        enforced: u32 = "enforcedPowerLimit",
        min: u32 = "minPowerLimit",
        max: u32 = "maxPowerLimit",
    }

    /// Names and numbers.
    struct Identifiers = "dcgmDeviceIdentifiers_v1" since "v3.1.3" {
        version: u32 = "version",
        brand: Text = "brandName",
        name: Text = "deviceName",
        pci_bus_id: Text = "pciBusId",
        serial: Text = "serial",
        uuid: Text = "uuid",
        vbios: Text = "vbios",
        inforom: Text = "inforomImageVersion",
        pci_device_id: u32 = "pciDeviceId",
        pci_subsystem_id: u32 = "pciSubSystemId",
        driver_version: Text = "driverVersion",
        virtualization_mode: u32 = "virtualizationMode",
    }

    /// Memory, MiB.
    struct Memory = "dcgmDeviceMemoryUsage_v1" since "v3.1.3" {
        version: u32 = "version",
        bar1_total: u32 = "bar1Total",
        fb_total: u32 = "fbTotal",
        fb_used: u32 = "fbUsed",
        fb_free: u32 = "fbFree",
    }

    /// Modes, 0 or 1.
    struct Settings = "dcgmDeviceSettings_v2" since "v3.1.3" {
        version: u32 = "version",
        persistence: u32 = "persistenceModeEnabled",
        mig: u32 = "migModeEnabled",
        confidential_compute: u32 = "confidentialComputeMode",
    }

    /// All of it. The clocks are `version`, `count` and 256 triples (version, memory MHz, SM MHz), which we
    /// do not use.
    struct Attributes = "dcgmDeviceAttributes_v3" since "v3.1.3" version 3 {
        version: u32 = "version",
        clock_sets: [u32; 770] = "clockSets",
        thermals: Thermals = "thermalSettings",
        power: PowerLimits = "powerLimits",
        identifiers: Identifiers = "identifiers",
        memory: Memory = "memoryUsage",
        settings: Settings = "settings",
    }
}
