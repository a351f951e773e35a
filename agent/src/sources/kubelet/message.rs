//! The messages of the kubelet's PodResources service, version 1, as far as the agent reads them.
//!
//! In: nothing. Out: types, derived by prost. Numbers and meaning: Kubernetes' `podresources/v1/api.proto`, read at 1.35.
//! Fields that are not here (processors, memory, NUMA nodes) are passed over; so is what later versions add.
//! What can go wrong: nothing; [`super::answer`] bounds what is read into them.

/// The gRPC service.
pub const LIST: &str = "/v1.PodResourcesLister/List";
/// What could be given, whether or not it is.
pub const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";

/// One pod. Since Kubernetes 1.27, on by default since 1.34.
pub const GET: &str = "/v1.PodResourcesLister/Get";

/// Field of the pods in `ListPodResourcesResponse`, and of the one pod in `GetPodResourcesResponse`.
pub const PODS: u32 = 1;
/// Field of the devices in `AllocatableResourcesResponse`.
pub const DEVICES: u32 = 1;

/// Which pod is asked for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetPodResourcesRequest {
    /// `k8s.pod.name`.
    #[prost(string, tag = "1")]
    pub pod_name: String,
    /// `k8s.namespace.name`.
    #[prost(string, tag = "2")]
    pub pod_namespace: String,
}

/// One pod with its containers; a sidecar (an init container that is restarted always) is one of them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodResources {
    /// `k8s.pod.name`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// `k8s.namespace.name`.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Its containers.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// One container.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerResources {
    /// `k8s.container.name`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What device plugins gave.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// What DRA drivers gave. Since Kubernetes 1.27, on by default since 1.34.
    #[prost(message, repeated, tag = "5")]
    pub dynamic_resources: Vec<DynamicResource>,
}

/// Devices of one resource. Trap: a container has several of these for one resource where its devices lie in several
/// NUMA nodes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerDevices {
    /// The extended resource.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// Ids in the device plugin's own form.
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
}

/// Devices of one ResourceClaim.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DynamicResource {
    /// The claim's name.
    #[prost(string, tag = "2")]
    pub claim_name: String,
    /// The claim's namespace.
    #[prost(string, tag = "3")]
    pub claim_namespace: String,
    /// Its devices.
    #[prost(message, repeated, tag = "4")]
    pub claim_resources: Vec<ClaimResource>,
}

/// One device of a claim.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClaimResource {
    /// What the container runtime is given for it.
    #[prost(message, repeated, tag = "1")]
    pub cdi_devices: Vec<CdiDevice>,
    /// The DRA driver, such as `gpu.nvidia.com`. Trap: empty below Kubernetes 1.34, as are the next two.
    #[prost(string, tag = "2")]
    pub driver_name: String,
    /// The driver's pool: for NVIDIA's the node.
    #[prost(string, tag = "3")]
    pub pool_name: String,
    /// The device in the pool, such as `gpu-0`.
    #[prost(string, tag = "4")]
    pub device_name: String,
}

/// A device by its full CDI name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CdiDevice {
    /// Such as `k8s.gpu.nvidia.com/claim=…`.
    #[prost(string, tag = "1")]
    pub name: String,
}
