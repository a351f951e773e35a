//! Devices and grants for tests.
//!
//! In: what differs. Out: the rest filled in. Nothing can go wrong.

use crate::model::signal::{DeviceKind, GpuDetails, MigPlace};
use crate::model::{Gpu, Grant};

/// A GPU.
pub(in crate::correlate) fn gpu(hw_id: &str, index: u32, minor: Option<u32>) -> Gpu {
    Gpu {
        hw_id: hw_id.to_owned(),
        index: Some(index),
        minor,
        pci: None,
        model: None,
        parent: None,
        details: Box::default(),
    }
}

/// A MIG device: index, ids of GPU instance and compute instance.
pub(in crate::correlate) fn mig(
    hw_id: &str,
    parent: &str,
    ids: (u32, u32, u32),
    start: Option<u32>,
    profile: &str,
) -> Gpu {
    let place =
        MigPlace { index: Some(ids.0), gpu_instance: Some(ids.1), compute_instance: Some(ids.2), start };
    let details = GpuDetails {
        kind: DeviceKind::Mig,
        mig_profile: Some(profile.to_owned()),
        mig: place,
        ..GpuDetails::default()
    };
    Gpu {
        hw_id: hw_id.to_owned(),
        index: None,
        minor: None,
        pci: None,
        model: None,
        parent: Some(parent.to_owned()),
        details: Box::new(details),
    }
}

/// `namespace/pod`, container `main`.
pub(super) fn grant(pod: &str, resource: &str, device_ids: &[&str]) -> Grant {
    let (namespace, pod) = pod.split_once('/').unwrap_or(("", pod));
    Grant {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        container: "main".to_owned(),
        resource: resource.to_owned(),
        device_ids: device_ids.iter().map(|id| (*id).to_owned()).collect(),
        claim: None,
    }
}
