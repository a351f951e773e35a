//! Whose a point or a record is, reduced to what exporters print.
//!
//! In: what `enrich` found out about a process. Out: [`Whose`], the identity of a workload's series.
//! Names are no part of the identity: they may come late, and the workload is the same with them.
//! "Not found" keeps its reason, which records carry; series of unknown owners have no workload attributes.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use crate::model::{Attributed, Known, Pid, Process};
use crate::telemetry::Attributes;

/// A workload as series know it. Two are equal when they are of one identity, whatever their names.
#[derive(Clone, Debug, Default)]
pub struct Whose {
    /// `k8s.pod.uid`.
    pub pod_uid: Option<String>,
    /// `container.id`.
    pub container_id: Option<String>,
    /// `process.linux.cgroup`; only where there is no container id, which says more.
    pub cgroup: Option<String>,
    /// `systemd.unit`, which the cgroup says.
    pub systemd_unit: Option<String>,
    /// `slurm.job.id`, which the cgroup says.
    pub slurm_job: Option<String>,
    /// What people call it.
    pub names: Names,
}

/// What people call a pod's container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// `k8s.namespace.name`.
    pub namespace: Option<String>,
    /// `k8s.pod.name`.
    pub pod: Option<String>,
    /// `k8s.container.name`.
    pub container: Option<String>,
}

impl PartialEq for Whose {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Whose {}

impl PartialOrd for Whose {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Whose {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl Hash for Whose {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl Whose {
    /// The owner of a process.
    pub fn of(process: &Process) -> Self {
        let workload = &process.workload;
        Self {
            pod_uid: workload.pod_uid.clone(),
            container_id: workload.container_id.clone(),
            cgroup: process.cgroup.clone().filter(|_| workload.container_id.is_none()),
            systemd_unit: workload.systemd_unit.clone(),
            slurm_job: workload.slurm_job.clone(),
            names: Names {
                namespace: workload.namespace.clone(),
                pod: workload.pod.clone(),
                container: workload.container.clone(),
            },
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

    /// Whether the process tells a name that is not known; clones nothing.
    pub fn lacks_names_of(&self, process: &Process) -> bool {
        let (workload, names) = (&process.workload, &self.names);
        let lacks = |mine: &Option<String>, other: &Option<String>| mine.is_none() && other.is_some();
        lacks(&names.namespace, &workload.namespace)
            || lacks(&names.pod, &workload.pod)
            || lacks(&names.container, &workload.container)
    }

    /// With the names of an equal one where its own are not known.
    #[must_use]
    pub fn or_names_of(mut self, other: &Self) -> Self {
        let fill = |mine: &mut Option<String>, other: &Option<String>| {
            if mine.is_none() {
                mine.clone_from(other);
            }
        };
        fill(&mut self.names.namespace, &other.names.namespace);
        fill(&mut self.names.pod, &other.names.pod);
        fill(&mut self.names.container, &other.names.container);
        self
    }

    /// The attributes, in the catalogue's order.
    pub fn attributes(&self) -> Attributes {
        let named = [
            ("k8s.pod.uid", &self.pod_uid),
            ("k8s.namespace.name", &self.names.namespace),
            ("k8s.pod.name", &self.names.pod),
            ("k8s.container.name", &self.names.container),
            ("container.id", &self.container_id),
            ("process.linux.cgroup", &self.cgroup),
            ("systemd.unit", &self.systemd_unit),
            ("slurm.job.id", &self.slurm_job),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }

    /// Puts these attributes in the place of those of the same workload under fewer names.
    pub fn rename(&self, attributes: &Attributes) -> Attributes {
        const OWN: &[&str] = super::catalog::with_workload!();
        let others = attributes.iter().filter(|(name, _)| !OWN.contains(name));
        others.cloned().chain(self.attributes()).collect()
    }

    /// Unit and job follow from the cgroup.
    fn identity(&self) -> (&Option<String>, &Option<String>, &Option<String>) {
        (&self.pod_uid, &self.container_id, &self.cgroup)
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

    #[test]
    fn names_are_no_part_of_the_identity() {
        let mut process = Process::default();
        process.workload.pod_uid = Some("p".into());
        let nameless = Whose::of(&process);
        (process.workload.namespace, process.workload.pod) = (Some("ml".into()), Some("train-0".into()));
        let named = Whose::of(&process);
        assert!(nameless == named && nameless.cmp(&named) == Ordering::Equal && nameless.owns(&process));
        assert!(nameless.lacks_names_of(&process) && !named.lacks_names_of(&process));
        process.workload.container = Some("main".into());
        assert!(named.lacks_names_of(&process));
        let whole = Whose { names: Names { container: Some("main".into()), ..Names::default() }, ..nameless };
        let whole = whole.or_names_of(&named);
        assert!(!whole.lacks_names_of(&process));
        let want: Attributes = [
            ("gpu.stall.cause", "x"),
            ("k8s.pod.uid", "p"),
            ("k8s.namespace.name", "ml"),
            ("k8s.pod.name", "train-0"),
            ("k8s.container.name", "main"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into();
        let before = vec![("gpu.stall.cause", "x".to_owned()), ("k8s.pod.uid", "p".to_owned())];
        assert_eq!(whole.rename(&before), want);
    }
}
