//! Whose a fact is: process, cgroup, container, pod.
//!
//! In: facts and what was learned of processes. Out: [`Attributed`] facts, the only thing exporters accept.
//! "Not found" is a value with a reason, never an empty text.

use super::{CgroupId, Pid, StartTicks};

/// A fact together with whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Attributed<T> {
    /// The fact.
    pub item: T,
    /// The processes it names, in its own order.
    pub processes: Vec<(Pid, Known<Process>)>,
}

/// Something that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// It is this.
    Is(T),
    /// It ended before it could be asked.
    Gone,
    /// The answer was refused.
    Denied,
    /// Attribution by pid is off.
    NotAsked,
}

impl<T> Known<T> {
    /// The value, where there is one.
    pub fn is(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Gone | Self::Denied | Self::NotAsked => None,
        }
    }

    /// Why there is no value; `None` where there is one.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Is(_) => None,
            Self::Gone => Some("gone"),
            Self::Denied => Some("denied"),
            Self::NotAsked => Some("not_asked"),
        }
    }
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// When it began; with the pid this names a process for good.
    pub start: Option<StartTicks>,
    /// Its name (`comm`, at most 15 bytes), control characters stripped. Free text: a workload chooses it.
    pub comm: Option<String>,
    /// Id of its cgroup, where the probe took it.
    pub cgroup_id: Option<CgroupId>,
    /// Path of its cgroup below the hierarchy's root.
    pub cgroup: Option<String>,
    /// What the cgroup path says.
    pub workload: Workload,
}

/// Whose a process is: what its cgroup path says, and the names that belong to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// `container.id`: 64 hexadecimal digits.
    pub container_id: Option<String>,
    /// `k8s.pod.uid`, with dashes (32 hexadecimal digits for a static pod).
    pub pod_uid: Option<String>,
    /// `k8s.namespace.name`.
    pub namespace: Option<String>,
    /// `k8s.pod.name`.
    pub pod: Option<String>,
    /// `k8s.container.name`.
    pub container: Option<String>,
    /// systemd unit, for what is neither in a container nor a job.
    pub systemd_unit: Option<String>,
    /// Slurm job id.
    pub slurm_job: Option<String>,
    /// Slurm step id.
    pub slurm_step: Option<String>,
}
