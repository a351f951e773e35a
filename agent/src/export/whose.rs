//! Whose a point or a record is, reduced to what exporters print.
//!
//! In: what `enrich` found out about a process. Out: [`Whose`], the identity of a workload's series.
//! "Not found" keeps its reason, which records carry; series of unknown owners have no workload attributes.

use crate::model::{Attributed, Known, Pid, Process};
use crate::telemetry::Attributes;

/// A workload as series know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Whose {
    /// `k8s.pod.uid`.
    pub pod_uid: Option<String>,
    /// `container.id`.
    pub container_id: Option<String>,
    /// `process.linux.cgroup`; only where there is no container id, which says more.
    pub cgroup: Option<String>,
}

impl Whose {
    /// The owner of a process.
    pub fn of(process: &Process) -> Self {
        let workload = &process.workload;
        Self {
            pod_uid: workload.pod_uid.clone(),
            container_id: workload.container_id.clone(),
            cgroup: process.cgroup.clone().filter(|_| workload.container_id.is_none()),
        }
    }

    /// Whether [`Self::of`] the process would be equal; clones nothing.
    pub fn owns(&self, process: &Process) -> bool {
        let workload = &process.workload;
        let cgroup = if workload.container_id.is_none() { &process.cgroup } else { &None };
        self.pod_uid == workload.pod_uid
            && self.container_id == workload.container_id
            && self.cgroup == *cgroup
    }

    /// The attributes, in the catalogue's order.
    pub fn attributes(&self) -> Attributes {
        let named = [
            ("k8s.pod.uid", &self.pod_uid),
            ("container.id", &self.container_id),
            ("process.linux.cgroup", &self.cgroup),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }
}

/// What is known of a process that a fact names.
pub fn process_of<T>(fact: &Attributed<T>, pid: Pid) -> &Known<Process> {
    let named = fact.processes.iter().find(|(named, _)| *named == pid);
    named.map_or(&Known::NotAsked, |(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Workload;

    #[test]
    fn a_container_id_takes_the_place_of_the_cgroup() {
        let mut process = Process { cgroup: Some("/a.slice/b.scope".into()), ..Process::default() };
        let bare = Whose::of(&process);
        assert_eq!(bare.attributes(), vec![("process.linux.cgroup", "/a.slice/b.scope".to_owned())]);
        assert!(bare.owns(&process));
        process.workload =
            Workload { container_id: Some("c".into()), pod_uid: Some("p".into()), ..Workload::default() };
        assert!(!bare.owns(&process));
        let contained = Whose::of(&process);
        assert!(contained.owns(&process));
        let want = vec![("k8s.pod.uid", "p".to_owned()), ("container.id", "c".to_owned())];
        assert_eq!(contained.attributes(), want);
    }
}
