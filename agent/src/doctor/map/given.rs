//! Who was given which device, id by id.
//!
//! In: the kubelet's answer, the job mapping files, the devices. Out: lines, and the allocations that follow from them.
//! The decisions are the agent's own ([`meaning`]). Pure but for the names, which the attributor knows by then.
//! What can go wrong: each id that has no device, and each pod whose uid is not known, is a failure in its line.

use super::failure::{Miss, failure};
use super::line::{self, Given, Line, Told};
use crate::correlate::allocations::device_ids::{Board, Named};
use crate::correlate::allocations::devices::Devices;
use crate::correlate::allocations::meaning::{self, Meaning};
use crate::correlate::allocations::misses::Why;
use crate::enrich::Attributor;
use crate::model::signal::{Allocation, AllocationSource};
use crate::model::{Fact, Grant, JobGrant, MonoNs, Signal};

/// Lines of the map so far.
#[derive(Debug)]
pub struct Giving<'a> {
    /// The node's.
    pub devices: &'a Devices,
    /// It knows the names of pods.
    pub attributor: &'a mut Attributor,
    /// That names could be read, else why an uid is not known.
    pub names: Miss,
    /// Now.
    pub at: MonoNs,
    /// What was given to whom.
    pub allocations: Vec<Allocation>,
    /// What is said of it.
    pub lines: Vec<Line>,
}

impl Giving<'_> {
    /// A grant of the kubelet's.
    pub fn grant(&mut self, grant: &Grant) {
        let how = match grant.claim {
            Some(_) => AllocationSource::ResourceClaim,
            None => AllocationSource::PodResources,
        };
        for one in meaning::explain(self.devices, grant) {
            let raw = Told {
                source: how.name(),
                namespace: Some(grant.namespace.clone()),
                pod: Some(grant.pod.clone()),
                container: Some(grant.container.clone()),
                resource: Some(grant.resource.clone()),
                claim: grant.claim.clone(),
                jobs: Vec::new(),
                id: one.id.to_owned(),
            };
            let hw_ids: Vec<String> = one.hw_ids.iter().map(|hw_id| hw_id.as_ref().to_owned()).collect();
            let key = one.named.as_ref().map(words);
            let (result, failure) = match one.meaning {
                Meaning::NotADevice => (None, None),
                Meaning::Missing(Why::UnknownDevice) => (None, Some(failure(Miss::UnknownDevice, ""))),
                Meaning::Missing(Why::MalformedId) => (None, Some(failure(Miss::MalformedId, ""))),
                Meaning::Found(share) => {
                    let mut pod_uid = None;
                    for hw_id in &hw_ids {
                        let allocation = Allocation {
                            hw_id: hw_id.clone(),
                            pod_uid: None,
                            pod: Some(grant.pod.clone()),
                            namespace: Some(grant.namespace.clone()),
                            container: Some(grant.container.clone()),
                            job: None,
                            how,
                            shares: share.into_iter().collect(),
                            end: false,
                        };
                        pod_uid = self.put(allocation);
                    }
                    let looked_for = format!("no folder {}_{}_…", grant.namespace, grant.pod);
                    let lack = pod_uid.is_none().then(|| failure(self.names, looked_for));
                    (Some(Given { hw_ids, share, pod_uid }), lack)
                }
            };
            self.lines.push(Line::Allocation(line::Allocation { raw, key, result, failure }));
        }
    }

    /// The jobs of a file.
    pub fn jobs(&mut self, grant: &JobGrant) {
        let named = meaning::of_job(grant);
        let mut found = Vec::new();
        self.devices.find(named, &mut found);
        let how = AllocationSource::JobMapping;
        let raw = Told {
            source: how.name(),
            jobs: grant.jobs.clone(),
            id: grant.instance.map_or(grant.gpu.to_string(), |instance| format!("{}.{instance}", grant.gpu)),
            ..Told::default()
        };
        let hw_ids: Vec<String> = found.iter().map(|hw_id| hw_id.as_ref().to_owned()).collect();
        for (hw_id, job) in hw_ids.iter().flat_map(|hw_id| grant.jobs.iter().map(move |job| (hw_id, job))) {
            let (hw_id, job) = (hw_id.clone(), Some(job.clone()));
            self.put(Allocation {
                hw_id,
                pod_uid: None,
                pod: None,
                namespace: None,
                container: None,
                job,
                how,
                shares: Vec::new(),
                end: false,
            });
        }
        let lack = hw_ids.is_empty().then(|| failure(Miss::NoSuchDevice, ""));
        let result = (!hw_ids.is_empty()).then(|| Given { hw_ids, ..Given::default() });
        let key = Some(words(&named));
        self.lines.push(Line::Allocation(line::Allocation { raw, key, result, failure: lack }));
    }

    /// Takes the allocation the way the agent's goes; gives the pod's uid.
    fn put(&mut self, allocation: Allocation) -> Option<String> {
        let fact = Fact::Reading(Signal::Allocation { at: self.at, allocation: Box::new(allocation) });
        let Fact::Reading(Signal::Allocation { allocation, .. }) = self.attributor.attribute(fact).item
        else {
            return None;
        };
        let uid = allocation.pod_uid.clone();
        self.allocations.push(*allocation);
        uid
    }
}

/// What an id names, for people.
fn words(named: &Named<'_>) -> String {
    match *named {
        Named::Uuid(uuid) => uuid.to_owned(),
        Named::Board(board) => of_board(board),
        Named::MigIndex(board, index) => format!("MIG device {index} of {}", of_board(board)),
        Named::Instance { board, instance, compute: None } => {
            format!("GPU instance {instance} of {}", of_board(board))
        }
        Named::Instance { board, instance, compute: Some(compute) } => {
            format!("compute instance {compute} in GPU instance {instance} of {}", of_board(board))
        }
        Named::Slice { board, start, profile } => {
            let profile = profile.map(|profile| format!(" (profile {profile})")).unwrap_or_default();
            format!("GPU instance at slice {start}{profile} of {}", of_board(board))
        }
    }
}

fn of_board(board: Board<'_>) -> String {
    match board {
        Board::Uuid(uuid) => uuid.to_owned(),
        Board::Index(index) => format!("the GPU with index {index}"),
        Board::Minor(minor) => format!("the GPU with minor {minor}"),
    }
}
