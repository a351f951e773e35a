//! The PodResources messages, whole, with the JSON form of protobuf (names as in the definition).
//!
//! In: JSON of `tests/fixtures/kubelet`. Out: bytes. Numbers: Kubernetes' `podresources/v1/api.proto`, 1.35. They are the
//! tests' own: what the agent reads is judged by these, and these by Kubernetes' (`tests/kubernetes/kubelet-judge`).
#![expect(missing_docs, reason = "the names of Kubernetes' definition")]

use serde::Deserialize;

/// One message with its fields.
macro_rules! message {
    ($name:ident { $($(#[$of:meta])+ $field:ident: $kind:ty,)+ }) => {
        #[derive(Clone, PartialEq, prost::Message, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$of])+ pub $field: $kind,)+
        }
    };
}

message!(ListPodResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pod_resources: Vec<PodResources>,
});
message!(GetPodResourcesRequest {
    #[prost(string, tag = "1")]
    pod_name: String,
    #[prost(string, tag = "2")]
    pod_namespace: String,
});
message!(GetPodResourcesResponse {
    #[prost(message, optional, tag = "1")]
    pod_resources: Option<PodResources>,
});
message!(AllocatableResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<ContainerDevices>,
    #[prost(int64, repeated, tag = "2")]
    cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    memory: Vec<ContainerMemory>,
});
message!(PodResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<ContainerResources>,
});
message!(ContainerResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<ContainerDevices>,
    #[prost(int64, repeated, tag = "3")]
    cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    memory: Vec<ContainerMemory>,
    #[prost(message, repeated, tag = "5")]
    dynamic_resources: Vec<DynamicResource>,
});
message!(ContainerMemory {
    #[prost(string, tag = "1")]
    memory_type: String,
    #[prost(uint64, tag = "2")]
    size: u64,
    #[prost(message, optional, tag = "3")]
    topology: Option<TopologyInfo>,
});
message!(ContainerDevices {
    #[prost(string, tag = "1")]
    resource_name: String,
    #[prost(string, repeated, tag = "2")]
    device_ids: Vec<String>,
    #[prost(message, optional, tag = "3")]
    topology: Option<TopologyInfo>,
});
message!(TopologyInfo {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<NumaNode>,
});
message!(NumaNode {
    #[prost(int64, tag = "1")]
    #[serde(rename = "ID")]
    id: i64,
});
message!(DynamicResource {
    #[prost(string, tag = "2")]
    claim_name: String,
    #[prost(string, tag = "3")]
    claim_namespace: String,
    #[prost(message, repeated, tag = "4")]
    claim_resources: Vec<ClaimResource>,
});
message!(ClaimResource {
    #[prost(message, repeated, tag = "1")]
    cdi_devices: Vec<CdiDevice>,
    #[prost(string, tag = "2")]
    driver_name: String,
    #[prost(string, tag = "3")]
    pool_name: String,
    #[prost(string, tag = "4")]
    device_name: String,
    #[prost(string, optional, tag = "5")]
    share_id: Option<String>,
});
message!(CdiDevice {
    #[prost(string, tag = "1")]
    name: String,
});

/// A file of answers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answers {
    /// To `List`.
    pub list: ListPodResourcesResponse,
    /// To `GetAllocatableResources`.
    pub allocatable: AllocatableResourcesResponse,
}
