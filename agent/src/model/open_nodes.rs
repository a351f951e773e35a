//! Which of the driver's device nodes a process has open, and which devices its environment names.
//!
//! In: what a source reads of a process. Out: [`OpenNodes`], by the driver's own numbers: which device that is, only the
//! list of devices tells. What can go wrong: nothing; whatever could not be read is not in it.

use super::{Pid, StartTicks};

/// All of it, each time: what is not named any more is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenNodes {
    /// The process.
    pub pid: Pid,
    /// When it began.
    pub start: StartTicks,
    /// Nodes of GPUs and of MIG instances, in order, each once; none where only the driver's other nodes are open.
    pub nodes: Vec<OpenNode>,
    /// What its environment says; looked at only where the nodes say nothing.
    pub visible: Option<Visible>,
}

/// A device node, or a capability, which is as much as a node of a MIG instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenNode {
    /// /dev/nvidiaN.
    Gpu {
        /// Its minor.
        minor: u32,
    },
    /// /dev/nvidia-caps/nvidia-capN. Source: /proc/driver/nvidia-caps/mig-minors.
    Instance {
        /// Minor of its GPU.
        gpu: u32,
        /// NVML's id of the GPU instance.
        instance: u32,
        /// NVML's id of the compute instance; `None`: the capability of the whole GPU instance.
        compute: Option<u32>,
    },
}

/// What a process may see by its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    /// `NVIDIA_VISIBLE_DEVICES`: what the container runtime made visible.
    pub runtime: Option<VisibleList>,
    /// `CUDA_VISIBLE_DEVICES`: what CUDA is to use of that. Its numbers count within it.
    pub cuda: Option<VisibleList>,
}

/// The value of one of the two variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleList {
    /// Every device.
    All,
    /// Some, by other means than the variable.
    Elsewhere,
    /// These; perhaps none.
    Listed(Vec<VisibleDevice>),
}

/// A device as an environment names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleDevice {
    /// The n-th GPU.
    Index(u32),
    /// The m-th MIG device of the n-th GPU.
    MigIndex(u32, u32),
    /// `GPU-…` or `MIG-…`; CUDA takes the beginning of one, too.
    Uuid(String),
}
