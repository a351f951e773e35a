//! CPUs and their cores (Grace). From 3.3.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_structs.h`.

use std::ffi::c_char;

use super::family;

family! {
    /// Cores of a CPU as bits, by the kernel's numbers.
    struct OwnedCores = "dcgmCpuHierarchyOwnedCores_v1" since "v3.3.9" {
        version: u32 = "version",
        bits: [u64; 16] = "bitmask",
    }

    /// A CPU.
    struct CpuV1 = "dcgmCpuHierarchy_v1.cpus" since "v3.3.9" {
        id: u32 = "cpuId",
        cores: OwnedCores = "ownedCores",
    }

    /// All CPUs in 3.3.
    struct CpusV1 = "dcgmCpuHierarchy_v1" since "v3.3.9" version 1 {
        version: u32 = "version",
        count: u32 = "numCpus",
        cpus: [CpuV1; 8] = "cpus",
    }

    /// A CPU with its serial number.
    struct CpuV2 = "dcgmCpuHierarchy_v2.cpus" since "v4.0.0" {
        id: u32 = "cpuId",
        cores: OwnedCores = "ownedCores",
        serial: [c_char; 256] = "serial",
    }

    /// All CPUs from 4.0.
    struct CpusV2 = "dcgmCpuHierarchy_v2" since "v4.0.0" version 2 {
        version: u32 = "version",
        count: u32 = "numCpus",
        cpus: [CpuV2; 8] = "cpus",
    }
}
