//! What a job mapping directory says of who has which GPUs.
//!
//! In: its files, one per GPU or MIG instance, named by number. Out: [`JobDevices`].
//! What can go wrong: the numbers are those of the scheduler's node, which counts GPUs as NVML does; none may be known.

/// The whole directory: a job that is not in it has no devices any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobDevices {
    /// In order of GPU and instance; GPUs without jobs are not in it.
    pub grants: Vec<JobGrant>,
}

/// The jobs of one GPU or MIG instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobGrant {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// NVML's id of a GPU instance on it; `None`: the GPU itself.
    pub instance: Option<u32>,
    /// Ids of the jobs, in order, each once.
    pub jobs: Vec<String>,
}
