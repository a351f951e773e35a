//! Devices that containers and jobs were given, to be found by whose a process is.
//!
//! In: allocations as they begin and end; the workload of a process. Out: the one device that it was given, as evidence
//! of use (`allocation`): only here are both known. Pure.
//! What can go wrong: an allocation of several devices names none of them; a container whose name is not known may be any
//! of its pod's. More allocations than are kept: those are no evidence.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::signal::{Allocation, AllocationSource};
use crate::model::{Stall, UseEvidence, Workload};

/// Allocations in force.
#[derive(Debug, Default)]
pub struct Granted {
    /// With the pod's uid, where it is known.
    rows: BTreeMap<Row, Option<String>>,
}

/// One allocation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    hw_id: String,
    namespace: Option<String>,
    pod: Option<String>,
    container: Option<String>,
    job: Option<String>,
    how: AllocationSource,
}

impl Granted {
    /// Allocations kept: as many as the correlation keeps of the kubelet's, and of jobs.
    pub const MOST: usize = 32_768;

    /// Takes an allocation, or its end.
    pub fn take(&mut self, allocation: &Allocation) {
        let row = Row {
            hw_id: allocation.hw_id.clone(),
            namespace: allocation.namespace.clone(),
            pod: allocation.pod.clone(),
            container: allocation.container.clone(),
            job: allocation.job.clone(),
            how: allocation.how,
        };
        if allocation.end {
            self.rows.remove(&row);
        } else if self.rows.len() < Self::MOST || self.rows.contains_key(&row) {
            self.rows.insert(row, allocation.pod_uid.clone());
        }
    }

    /// The device of a workload that was given exactly one.
    pub fn only_device(&self, workload: &Workload) -> Option<&str> {
        let its = |(row, uid): &(&Row, &Option<String>)| is_of(row, uid.as_deref(), workload);
        let (mut devices, mut containers) = (BTreeSet::new(), BTreeSet::new());
        for (row, _) in self.rows.iter().filter(its) {
            devices.insert(row.hw_id.as_str());
            containers.insert(&row.container);
        }
        let is_clear = workload.container.is_some() || containers.len() == 1;
        devices.first().filter(|_| is_clear && devices.len() == 1).copied()
    }

    /// Says which device a stall is on, where that is not known, or by worse evidence. `victims` are the workloads of its
    /// victims.
    pub fn place<'a>(&self, stall: &mut Stall, victims: impl Iterator<Item = &'a Workload>) {
        let is_better = stall.hw_id.is_none() || stall.device_by > Some(UseEvidence::Allocation);
        if !is_better || self.rows.is_empty() {
            return;
        }
        let devices: BTreeSet<Option<&str>> = victims.map(|workload| self.only_device(workload)).collect();
        if let (Some(Some(device)), 1) = (devices.first(), devices.len()) {
            stall.hw_id = Some((*device).to_owned());
            stall.device_by = Some(UseEvidence::Allocation);
        }
    }
}

fn is_of(row: &Row, uid: Option<&str>, workload: &Workload) -> bool {
    if row.job.is_some() {
        return row.job == workload.slurm_job;
    }
    let by_uid = uid.zip(workload.pod_uid.as_deref()).map(|(row, its)| row == its);
    let by_name = || row.pod.is_some() && row.pod == workload.pod && row.namespace == workload.namespace;
    let is_pods = by_uid.unwrap_or_else(by_name);
    let (given, its) = (&row.container, &workload.container);
    is_pods && (given.is_none() || its.is_none() || given == its)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Cause, Confidence, MonoNs, StallState};

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    fn some(text: &str) -> Option<String> {
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn given(hw_id: &str, pod: &str, container: &str) -> Allocation {
        Allocation {
            hw_id: hw_id.into(),
            pod_uid: None,
            pod: some(pod),
            namespace: Some("ml".into()),
            container: some(container),
            job: None,
            how: AllocationSource::PodResources,
            shares: vec![],
            end: false,
        }
    }

    fn workload(pod: &str, container: &str) -> Workload {
        Workload {
            namespace: Some("ml".into()),
            pod: some(pod),
            container: some(container),
            pod_uid: Some(UID.into()),
            ..Workload::default()
        }
    }

    #[track_caller]
    fn check(allocations: &[Allocation], workload: &Workload, want: Option<&str>) {
        let mut granted = Granted::default();
        allocations.iter().for_each(|allocation| granted.take(allocation));
        assert_eq!(granted.only_device(workload), want, "{allocations:#?} {workload:#?}");
    }

    #[test]
    fn a_container_that_was_given_one_device_uses_that() {
        let main = |hw_id| given(hw_id, "train", "main");
        check(&[main("G0")], &workload("train", "main"), Some("G0"));
        check(&[main("G0")], &workload("other", "main"), None);
        check(&[main("G0")], &Workload { namespace: Some("x".into()), ..workload("train", "main") }, None);
        check(&[main("G0"), main("G1")], &workload("train", "main"), None);
        check(
            &[main("G0"), main("G1"), Allocation { end: true, ..main("G0") }],
            &workload("train", "main"),
            Some("G1"),
        );
        // twice the same, by two tellers or in two shares
        let claim = Allocation { how: AllocationSource::ResourceClaim, ..main("G0") };
        check(&[main("G0"), claim], &workload("train", "main"), Some("G0"));
        // another container's is none of this one's, and who it is may not be known
        let side = given("G1", "train", "side");
        check(&[main("G0"), side.clone()], &workload("train", "side"), Some("G1"));
        check(&[main("G0")], &workload("train", "side"), None);
        check(&[main("G0")], &workload("train", ""), Some("G0"));
        check(&[main("G0"), side], &workload("train", ""), None);
        check(&[main("G0"), given("G0", "train", "side")], &workload("train", ""), None);
        // a pod is known by its uid before its name is, and one made anew is another
        let with = |uid: &str| Allocation { pod_uid: Some(uid.into()), ..main("G0") };
        check(&[with(UID)], &workload("", ""), Some("G0"));
        check(&[with("00000000-1111-2222-3333-444455556666")], &workload("train", "main"), None);
        check(&[with(UID)], &Workload::default(), None);
        check(&[given("G0", "", "")], &Workload::default(), None);
    }

    #[test]
    fn a_job_has_its_devices_too() {
        let job = |hw_id, job: &str| Allocation {
            job: some(job),
            how: AllocationSource::JobMapping,
            ..given(hw_id, "", "")
        };
        let of = |job: &str| Workload { slurm_job: some(job), ..Workload::default() };
        check(&[job("G0", "4711"), job("G1", "4712")], &of("4711"), Some("G0"));
        check(&[job("G0", "4711"), job("G1", "4711")], &of("4711"), None);
        check(&[job("G0", "4711")], &of(""), None);
    }

    #[test]
    fn it_says_more_than_an_open_node_and_less_than_a_context() {
        use UseEvidence::{Allocation as Given, CapFd, Env, Nvml, OpenFd, UvmChannel};
        let mut granted = Granted::default();
        granted.take(&given("G0", "train", "main"));
        granted.take(&given("G1", "other", "main"));
        let (train, other) = (workload("train", "main"), workload("other", "main"));
        let placed = |hw_id: &str, by, victims: &[&Workload]| {
            let mut stall = Stall {
                state: StallState::Begin,
                begin: MonoNs(0),
                duration: std::time::Duration::ZERO,
                cause: Cause::DriverCall,
                confidence: Confidence::High,
                hw_id: some(hw_id),
                device_by: by,
                call: None,
                victims: vec![],
                lock: None,
                holder: None,
                evidence: vec![],
            };
            granted.place(&mut stall, victims.iter().copied());
            (stall.hw_id.unwrap_or_default(), stall.device_by)
        };
        let (is, stays) = (|hw_id: &str| (hw_id.to_owned(), Some(Given)), "G9".to_owned());
        assert_eq!(placed("", None, &[&train]), is("G0"));
        for worse in [OpenFd, Env] {
            assert_eq!(placed("G9", Some(worse), &[&train]), is("G0"));
        }
        for better in [UvmChannel, Nvml, CapFd, Given] {
            assert_eq!(placed("G9", Some(better), &[&train]), (stays.clone(), Some(better)));
        }
        // told as a fact of the device itself
        assert_eq!(placed("G9", None, &[&train]), (stays.clone(), None));
        assert_eq!(placed("", None, &[&train, &train]), is("G0"));
        assert_eq!(placed("", None, &[&train, &other]), (String::new(), None));
        assert_eq!(placed("", None, &[&train, &Workload::default()]), (String::new(), None));
        assert_eq!(placed("", None, &[]), (String::new(), None));
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut granted = Granted::default();
        for n in 0..Granted::MOST + 5 {
            granted.take(&given(&format!("G{n}"), "train", "main"));
        }
        assert_eq!(granted.rows.len(), Granted::MOST);
    }
}
