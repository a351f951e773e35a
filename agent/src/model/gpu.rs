//! A device's identity, and what is known of it beyond that.
//!
//! In: what the vendors' libraries list. Out: [`Gpu`]. What can go wrong: nothing but the name is sure to be known.

use super::PciAddress;

/// A device's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// `GPU-…` or `MIG-…`, OpenTelemetry's `hw.id`.
    pub hw_id: String,
    /// NVML's index. Trap: not stable across hot-plug.
    pub index: Option<u32>,
    /// The minor of /dev/nvidiaN.
    pub minor: Option<u32>,
    /// PCI address of the board.
    pub pci: Option<PciAddress>,
    /// Product name.
    pub model: Option<String>,
    /// `hw.id` of the GPU that a MIG instance is part of.
    pub parent: Option<String>,
    /// What only the info series tells.
    pub details: Box<GpuDetails>,
}

/// What is known of a device beyond its identity; everything may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuDetails {
    /// What it is.
    pub kind: DeviceKind,
    /// Serial number of the board.
    pub serial: Option<String>,
    /// Architecture, such as `hopper`.
    pub architecture: Option<String>,
    /// Profile of a MIG instance as Kubernetes names its resource, such as `1g.12gb+me`.
    pub mig_profile: Option<String>,
    /// Who said so: `nvml` (exact) or `dcgm` (rounds otherwise on some boards).
    pub mig_profile_source: Option<&'static str>,
    /// NUMA node of the board.
    pub numa_node: Option<u32>,
    /// CPUs next to the board, as the kernel's list format: `0-31,64-95`.
    pub cpu_affinity: Option<String>,
    /// Where a MIG device is on its GPU.
    pub mig: MigPlace,
    /// GPUs that are reached over NVLink, as `GPU-…=18` (links), in order.
    pub nvlink_peers: Vec<String>,
}

/// Where a MIG device is on its GPU: the numbers by which others name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MigPlace {
    /// NVML's index of the MIG device on its GPU. Trap: it changes when instances come and go.
    pub index: Option<u32>,
    /// NVML's id of the GPU instance that it is in; several MIG devices may share one.
    pub gpu_instance: Option<u32>,
    /// NVML's id of the compute instance in its GPU instance.
    pub compute_instance: Option<u32>,
    /// First memory slice of the GPU instance: no two instances of a GPU begin at the same one. Source: NVML, as root.
    pub start: Option<u32>,
}

/// What a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "DCGM's entity groups")]
pub enum DeviceKind {
    #[default]
    Gpu,
    Mig,
    Switch,
    Cpu,
    /// A network adapter beside the GPUs.
    Nic,
}
