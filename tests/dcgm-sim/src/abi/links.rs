//! Structs of NVLink and of the paths between GPUs.
//!
//! In: nothing. Out: structs. What can go wrong: see the parent.

use super::c_struct;

c_struct!(
    /// Links of a GPU, up to 18.
    GpuLinksV3 = "dcgmNvLinkGpuLinkStatus_v3" { entityId: u32, linkState: [u32; 18] }
);
c_struct!(
    /// Links of a GPU, up to 36.
    GpuLinksV4 = "dcgmNvLinkGpuLinkStatus_v4" { entityId: u32, linkState: [u32; 36] }
);
/// Links of a switch as 3.x tells them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SwitchLinks64 {
    pub(crate) id: u32,
    pub(crate) states: [u32; 64],
}
c_struct!(
    /// Links of a switch as 4.x tells them.
    SwitchLinks256 = "dcgmNvLinkNvSwitchLinkStatus_t" { entityId: u32, linkState: [u32; 256] }
);
c_struct!(
    /// All links, 3.x.
    NvLinkStatusV3 = "dcgmNvLinkStatus_v3" {
        version: u32, numGpus: u32, gpus: [GpuLinksV3; 32], numNvSwitches: u32, nvSwitches: [SwitchLinks64; 12],
    }
);
c_struct!(
    /// All links, 4.0 on.
    NvLinkStatusV4 = "dcgmNvLinkStatus_v4" {
        version: u32, numGpus: u32, gpus: [GpuLinksV3; 32], numNvSwitches: u32, nvSwitches: [SwitchLinks256; 12],
    }
);
c_struct!(
    /// All links, 4.6 on.
    NvLinkStatusV5 = "dcgmNvLinkStatus_v5" {
        version: u32, numGpus: u32, gpus: [GpuLinksV4; 32], numNvSwitches: u32, nvSwitches: [SwitchLinks256; 12],
    }
);
/// A path to another GPU.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PathV1 {
    pub(crate) gpu: u32,
    pub(crate) path: u32,
    pub(crate) links: u32,
}
/// A path to another GPU, 4.6 on.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PathV2 {
    pub(crate) gpu: u32,
    pub(crate) path: u64,
    pub(crate) links: u64,
}
c_struct!(
    /// Paths from a GPU.
    TopologyV1 = "dcgmDeviceTopology_v1" {
        version: u32, cpuAffinityMask: [u64; 8], numGpus: u32, gpuPaths: [PathV1; 31],
    }
);
c_struct!(
    /// Paths from a GPU, 4.6 on.
    TopologyV2 = "dcgmDeviceTopology_v2" {
        version: u32, cpuAffinityMask: [u64; 8], numGpus: u32, gpuPaths: [PathV2; 31],
    }
);
