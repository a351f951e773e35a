//! MIG instances.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_structs.h`.

use std::ffi::c_char;

use super::{family, group::Pair};

family! {
    /// What NVML calls an instance.
    struct MigInfo = "dcgmMigEntityInfo_t" since "v3.1.3" {
        gpu_uuid: [c_char; 128] = "gpuUuid",
        nvml_gpu_index: u32 = "nvmlGpuIndex",
        nvml_instance_id: u32 = "nvmlInstanceId",
        nvml_compute_instance_id: u32 = "nvmlComputeInstanceId",
        nvml_profile_id: u32 = "nvmlMigProfileId",
        nvml_profile_slices: u32 = "nvmlProfileSlices",
    }

    /// An instance and what it is a part of.
    struct MigNode = "dcgmMigHierarchyInfo_v2" since "v3.1.3" {
        entity: Pair = "entity",
        parent: Pair = "parent",
        info: MigInfo = "info",
    }

    /// All instances: 73 kB.
    struct MigHierarchy = "dcgmMigHierarchy_v2" since "v3.1.3" version 2 {
        version: u32 = "version",
        count: u32 = "count",
        entities: [MigNode; 448] = "entityList",
    }
}
