//! The lines of the map: raw answer, key, result or failure.
//!
//! In: nothing. Out: types that serialize as they are documented in `docs/mapping.md`. Nothing can go wrong.

use serde::Serialize;

use super::failure::Failure;
use crate::sources::worker::listed::Listed;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "map", rename_all = "snake_case")]
pub enum Line {
    /// Where answers come from.
    Source(Source),
    /// An id that the kubelet tells, or a number that a job mapping file has.
    Allocation(Allocation),
    /// A device.
    Device(Device),
    /// A process on a device.
    Process(Process),
}

/// Where answers come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// `kubelet`, `job mapping`, `log folders`, `devices`, `processes`.
    pub name: &'static str,
    /// `yes`, `no`, `unknown`, `off`, as in the doctor's own lines.
    pub state: &'static str,
    /// What was seen.
    pub what: String,
    /// Why nothing can be mapped by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// An allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Allocation {
    /// As it was told.
    pub raw: Told,
    /// What the id names by its form; none where it has no known form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The devices and their owner; none where it is no device of this driver, or where there is a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Given>,
    /// Why there is none, or what of it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// What was told of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Told {
    /// `pod_resources`, `resource_claim` or `job_mapping`.
    pub source: &'static str,
    /// `k8s.namespace.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `k8s.pod.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// `k8s.container.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The extended resource, or the DRA driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The resource claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// Jobs of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<String>,
    /// The device id, or the file's name.
    pub id: String,
}

/// Whose a device is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Given {
    /// The devices: several for a GPU instance that is divided further.
    pub hw_ids: Vec<String>,
    /// The share of it; none: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// `k8s.pod.uid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
}

/// A device, and what all other lines say of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// As NVML and DCGM tell it.
    pub raw: Listed,
    /// `namespace/pod/container` or `job N`.
    pub given_to: Vec<String>,
    /// Pids of processes on it, by any evidence.
    pub used_by: Vec<u32>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// As it was found.
    pub raw: Found,
    /// By what its names are looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Owner>,
    /// Why that is not known, or what of it is missing or odd.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

/// What was found of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// On the host.
    pub pid: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Its devices.
    pub hw_ids: Vec<String>,
    /// `nvml` or `open_fd`.
    pub evidence: &'static str,
    /// The path of its cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its pod's folder in /var/log/pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_folder: Option<String>,
    /// Its container's link in /var/log/containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_link: Option<String>,
}

/// What the cgroup path says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Key {
    /// `k8s.pod.uid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// `container.id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
}

/// Whose a process is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Owner {
    /// A pod's.
    Pod {
        /// `k8s.pod.uid`.
        uid: String,
        /// `k8s.namespace.name`.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// `k8s.pod.name`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pod: Option<String>,
        /// `k8s.container.name`.
        #[serde(skip_serializing_if = "Option::is_none")]
        container: Option<String>,
    },
    /// A container's, of no pod.
    Container {
        /// `container.id`.
        id: String,
    },
    /// A Slurm job's.
    Job {
        /// `slurm.job.id`.
        id: String,
        /// `slurm.step.id`.
        #[serde(skip_serializing_if = "Option::is_none")]
        step: Option<String>,
    },
    /// A systemd service's.
    Unit {
        /// `systemd.unit`.
        name: String,
    },
    /// A user's own, in none of these.
    Plain,
}

impl Line {
    /// What could not be mapped.
    pub fn failures(&self) -> &[Failure] {
        match self {
            Self::Source(source) => source.failure.as_slice(),
            Self::Allocation(allocation) => allocation.failure.as_slice(),
            Self::Device(_) => &[],
            Self::Process(process) => &process.failures,
        }
    }
}
