//! How GPUs reach each other, and which CPUs are near.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_structs.h`.

use super::family;

family! {
    /// A way to another GPU.
    struct PathV1 = "dcgmDeviceTopology_v1.gpuPaths" since "v3.1.3" {
        gpu: u32 = "gpuId",
        path: u32 = "path",
        local_links: u32 = "localNvLinkIds",
    }

    /// All ways of a GPU.
    struct TopologyV1 = "dcgmDeviceTopology_v1" since "v3.1.3" version 1 {
        version: u32 = "version",
        cpu_affinity: [u64; 8] = "cpuAffinityMask",
        count: u32 = "numGpus",
        paths: [PathV1; 31] = "gpuPaths",
    }

    /// A way to another GPU, with room for 36 links.
    struct PathV2 = "dcgmDeviceTopology_v2.gpuPaths" since "v4.6.0" {
        gpu: u32 = "gpuId",
        path: u64 = "path",
        local_links: u64 = "localNvLinkIds",
    }

    /// All ways of a GPU from 4.6, which still takes the older one.
    struct TopologyV2 = "dcgmDeviceTopology_v2" since "v4.6.0" version 2 {
        version: u32 = "version",
        cpu_affinity: [u64; 8] = "cpuAffinityMask",
        count: u32 = "numGpus",
        paths: [PathV2; 31] = "gpuPaths",
    }
}
