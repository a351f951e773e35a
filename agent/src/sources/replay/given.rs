//! What a kubelet or a job mapping directory answered, as a replay has it.
//!
//! In: the values of `pod_devices` and `job_devices`. Out: the signals that their sources make of such an answer.
//! Order and repetition are taken out as the sources do it. What can go wrong: keys that are none; the error names them.

use std::sync::Arc;

use serde::Deserialize;

use crate::model::{Grant, JobDevices, JobGrant, MonoNs, PodDevices, Signal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPodDevices {
    grants: Vec<RawGrant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGrant {
    namespace: String,
    pod: String,
    container: String,
    resource: String,
    ids: Vec<String>,
    claim: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawJobDevices {
    grants: Vec<RawJobGrant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJobGrant {
    gpu: u32,
    instance: Option<u32>,
    jobs: Vec<String>,
}

/// One whole answer of a kubelet.
pub(super) fn pods(at: MonoNs, raw: RawPodDevices) -> Signal {
    let grant = |raw: RawGrant| {
        let RawGrant { namespace, pod, container, resource, ids, claim } = raw;
        Grant { namespace, pod, container, resource, device_ids: in_order(ids), claim }
    };
    let grants = in_order(raw.grants.into_iter().map(grant).collect());
    Signal::PodDevices { at, devices: Arc::new(PodDevices { grants }) }
}

/// All of a job mapping directory.
pub(super) fn jobs(at: MonoNs, raw: RawJobDevices) -> Signal {
    let grant = |RawJobGrant { gpu, instance, jobs }| JobGrant { gpu, instance, jobs: in_order(jobs) };
    let grants = in_order(raw.grants.into_iter().map(grant).collect());
    Signal::JobDevices { at, jobs: Arc::new(JobDevices { grants }) }
}

fn in_order<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    all
}
