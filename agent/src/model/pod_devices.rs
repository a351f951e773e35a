//! What the kubelet says of who was given which devices.
//!
//! In: one whole answer of its PodResources service. Out: [`PodDevices`], names as they were sent.
//! What can go wrong: the answer has neither the pod's uid nor whether it still runs; both come from elsewhere.

/// One whole answer: a pod that is not in it has no devices any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDevices {
    /// What containers were given, sorted: the kubelet's order is another one each time.
    pub grants: Vec<Grant>,
}

/// Devices of one resource that were given to one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// `k8s.namespace.name`.
    pub namespace: String,
    /// `k8s.pod.name`.
    pub pod: String,
    /// `k8s.container.name`.
    pub container: String,
    /// The extended resource, such as `nvidia.com/gpu.shared`; for a claim its driver, such as `gpu.nvidia.com`.
    pub resource: String,
    /// Device ids in the form of the device plugin that gave them, sorted, each once; for a claim the DRA driver's names
    /// (`gpu-0`), or CDI names (`k8s.gpu.nvidia.com/claim=…`) where the kubelet tells no others (below 1.34).
    pub device_ids: Vec<String>,
    /// Set where a DRA driver gave them: `namespace/name` of the ResourceClaim.
    pub claim: Option<String>,
}
