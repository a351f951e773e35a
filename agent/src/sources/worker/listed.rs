//! The devices and who runs on them, as a list for a person who asks (`warpgauge doctor map`).
//!
//! In: what an [`super::intake::Intake`] knows. Out: [`Listed`], one JSON object per line, and back.
//! What can go wrong: nothing was told yet; then the list is empty.

use serde::{Deserialize, Serialize};

use crate::model::signal::{DeviceKind, GpuDetails, MigPlace};
use crate::model::{Gpu, PciAddress};

/// A GPU or a MIG device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listed {
    /// `GPU-…` or `MIG-…`.
    pub hw_id: String,
    /// `hw.id` of the GPU that a MIG device is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// NVML's index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The minor of /dev/nvidiaN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// PCI address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// Product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// MIG profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_profile: Option<String>,
    /// Of a MIG device: NVML's index on its GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_index: Option<u32>,
    /// Its GPU instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// Its compute instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
    /// First memory slice of its GPU instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_start: Option<u32>,
    /// Pids on it, in order, without the agent's own; `None`: NVML has not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<u32>>,
}

impl Listed {
    /// A device with its processes; `None` for what no workload runs on.
    pub fn of(gpu: &Gpu, processes: Option<Vec<u32>>) -> Option<Self> {
        let details = &gpu.details;
        matches!(details.kind, DeviceKind::Gpu | DeviceKind::Mig).then(|| Self {
            hw_id: gpu.hw_id.clone(),
            parent: gpu.parent.clone(),
            index: gpu.index,
            minor: gpu.minor,
            pci: gpu.pci.as_ref().map(ToString::to_string),
            model: gpu.model.clone(),
            mig_profile: details.mig_profile.clone(),
            mig_index: details.mig.index,
            gpu_instance: details.mig.gpu_instance,
            compute_instance: details.mig.compute_instance,
            mig_start: details.mig.start,
            processes,
        })
    }

    /// The device's identity.
    pub fn gpu(&self) -> Gpu {
        let kind = if self.parent.is_some() { DeviceKind::Mig } else { DeviceKind::Gpu };
        let mig = MigPlace {
            index: self.mig_index,
            gpu_instance: self.gpu_instance,
            compute_instance: self.compute_instance,
            start: self.mig_start,
        };
        let mig_profile = self.mig_profile.clone();
        Gpu {
            hw_id: self.hw_id.clone(),
            index: self.index,
            minor: self.minor,
            pci: self.pci.as_deref().and_then(PciAddress::parse),
            model: self.model.clone(),
            parent: self.parent.clone(),
            details: Box::new(GpuDetails { kind, mig_profile, mig, ..GpuDetails::default() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_survives_its_line() {
        let listed = Listed {
            hw_id: "MIG-1".into(),
            parent: Some("GPU-1".into()),
            pci: Some("0000:3b:00.0".into()),
            mig_profile: Some("1g.10gb+me".into()),
            gpu_instance: Some(7),
            mig_start: Some(2),
            processes: Some(vec![7, 8]),
            ..Listed::default()
        };
        let line = serde_json::to_string(&listed).unwrap();
        let read: Listed = serde_json::from_str(&line).unwrap();
        assert_eq!(Listed::of(&read.gpu(), read.processes.clone()), Some(listed));
        let switch = GpuDetails { kind: DeviceKind::Switch, ..GpuDetails::default() };
        assert_eq!(Listed::of(&Gpu { details: Box::new(switch), ..read.gpu() }, None), None);
    }
}
