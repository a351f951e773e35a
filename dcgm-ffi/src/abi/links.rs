//! States of NVLink links.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_structs.h`.

use super::family;

family! {
    /// Links of a GPU, up to 4.5.
    struct GpuLinksV3 = "dcgmNvLinkGpuLinkStatus_v3" since "v3.1.3" {
        id: u32 = "entityId",
        states: [u32; 18] = "linkState",
    }

    /// Links of a GPU from 4.6.
    struct GpuLinksV4 = "dcgmNvLinkGpuLinkStatus_v4" since "v4.6.0" {
        id: u32 = "entityId",
        states: [u32; 36] = "linkState",
    }

    /// Links of a switch in 3.x.
    struct SwitchLinksV3 = "dcgmNvLinkNvSwitchLinkStatus_t" since "v3.1.3" {
        id: u32 = "entityId",
        states: [u32; 64] = "linkState",
    }

    /// Links of a switch from 4.0: the name stayed, the layout did not.
    struct SwitchLinksV4 = "dcgmNvLinkNvSwitchLinkStatus_t" since "v4.0.0" {
        id: u32 = "entityId",
        states: [u32; 256] = "linkState",
    }

    /// All links in 3.x.
    struct LinksV3 = "dcgmNvLinkStatus_v3" since "v3.1.3" version 3 {
        version: u32 = "version",
        gpu_count: u32 = "numGpus",
        gpus: [GpuLinksV3; 32] = "gpus",
        switch_count: u32 = "numNvSwitches",
        switches: [SwitchLinksV3; 12] = "nvSwitches",
    }

    /// All links from 4.0.
    struct LinksV4 = "dcgmNvLinkStatus_v4" since "v4.0.0" version 4 {
        version: u32 = "version",
        gpu_count: u32 = "numGpus",
        gpus: [GpuLinksV3; 32] = "gpus",
        switch_count: u32 = "numNvSwitches",
        switches: [SwitchLinksV4; 12] = "nvSwitches",
    }

    /// All links from 4.6, which still takes the older one.
    struct LinksV5 = "dcgmNvLinkStatus_v5" since "v4.6.0" version 5 {
        version: u32 = "version",
        gpu_count: u32 = "numGpus",
        gpus: [GpuLinksV4; 32] = "gpus",
        switch_count: u32 = "numNvSwitches",
        switches: [SwitchLinksV4; 12] = "nvSwitches",
    }
}
