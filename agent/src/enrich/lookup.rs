//! Answers for the attributor, read from the machine.
//!
//! In: [`Ask`]s. Out: what /proc and the cgroup hierarchy say, told to the [`Attributor`].
//! What can go wrong: everything may be gone by the time it is asked; then the answer says so, with a reason.

use std::path::PathBuf;

use tracing::{info, warn};

use super::cgroup_tree::{self, CgroupTree};
use super::log_links::{LogLinks, Look};
use super::pod_names::{Container, Listing};
use super::process::ProcessFacts;
use super::unnamed::Who;
use super::{Ask, Attributor, cgroup, pod_cgroups, process};
use crate::config::CgroupChoice;
use crate::host::pid_namespace::{self, PidNamespace};
use crate::host::{HostRoot, cgroup_hierarchy};
use crate::model::{CgroupId, Known, MonoNs, Pid, Process};

/// Asks this machine.
#[derive(Debug)]
pub struct Lookup {
    root: HostRoot,
    /// Mount point of the hierarchy that carries the containers; `None` where there is none.
    mount: Option<PathBuf>,
    /// The v1 controller whose line of /proc/PID/cgroup belongs to that hierarchy; `None` is v2.
    controller: Option<&'static str>,
    by_pid: bool,
    tree: CgroupTree,
    links: LogLinks,
}

impl Lookup {
    /// Asks this host, in the hierarchy that is chosen or found; what is off because of what it is like is said.
    pub fn here(host: HostRoot, cgroup: CgroupChoice) -> Self {
        let namespace = pid_namespace::of(&host);
        match &namespace {
            PidNamespace::Host => {}
            PidNamespace::Foreign => warn!(
                remedy = "run with the host's pid namespace (hostPID: true), or mount its /proc and name it by --host-proc",
                "/proc shows another pid namespace than the host's: attribution by pid is off."
            ),
            PidNamespace::Unknown(why) => info!(%why, "Cannot tell whose pid namespace /proc shows."),
        }
        let hierarchy = match cgroup_hierarchy::read(&host, cgroup) {
            Ok(hierarchy) => Some(hierarchy),
            Err(e) => {
                warn!(what = e.to_string(), "Processes cannot be put to containers.");
                None
            }
        };
        let controller = hierarchy.as_ref().and_then(cgroup_hierarchy::Hierarchy::controller);
        Self::new(host, hierarchy.map(|h| h.mount), controller, &namespace)
    }

    /// Asks in the hierarchy at `mount`; in a foreign pid namespace never by pid.
    pub fn new(
        root: HostRoot,
        mount: Option<PathBuf>,
        controller: Option<&'static str>,
        namespace: &PidNamespace,
    ) -> Self {
        let links = LogLinks::new(&root);
        Self {
            root,
            mount,
            controller,
            by_pid: *namespace != PidNamespace::Foreign,
            tree: CgroupTree::default(),
            links,
        }
    }

    /// Answers one question. A process that began after `at` has the pid, but is not the one that is meant.
    pub fn answer(&mut self, ask: Ask, at: MonoNs, attributor: &mut Attributor) {
        match ask {
            Ask::Process(pid) => attributor.know_process(pid, at, self.process(pid, at)),
            Ask::Cgroup(id, pid) => attributor.know_cgroup(id, at, self.cgroup(id, pid, at)),
            Ask::Still(id) => attributor.know_still(id, at, self.is_there(id, attributor.cgroup(id))),
            Ask::Names(who) => self.names(who, at, attributor),
        }
    }

    fn names(&mut self, who: Option<Who>, at: MonoNs, attributor: &mut Attributor) {
        if let Look::New(mut listing) = self.links.look(at) {
            self.mark_living(&mut listing);
            attributor.know_names(listing);
        }
        let Some(who @ (uid, container)) = who else {
            return attributor.asked_uids(at, self.links.readable());
        };
        if let (Some(id), false, Some(pod)) =
            (container, attributor.names().has(who), attributor.names().pod(uid))
            && let Some(name) = self.links.only_container(pod)
        {
            let (namespace, pod) = (pod.namespace.clone(), pod.name.clone());
            attributor.know_container(id, Container { namespace, pod, name });
        }
        attributor.asked_names(who, at, self.links.readable());
    }

    /// Of pods that share a name, those whose cgroup is there.
    fn mark_living(&self, listing: &mut Listing) {
        let Some(mount) = &self.mount else { return };
        // Only these have an age.
        for (_, pod) in listing.pods.iter_mut().flatten().filter(|(_, pod)| 0 < pod.made_ns) {
            pod.lives = pod_cgroups::lives(mount, &pod.uid);
        }
    }

    fn process(&self, pid: Pid, at: MonoNs) -> Known<Process> {
        if !self.by_pid {
            return Known::NotAsked;
        }
        match process::read(&self.root, pid) {
            Known::Is(facts) if began_after(&facts, at) => Known::Gone,
            Known::Is(facts) => {
                let path = process::cgroup_path(&facts.cgroups, self.controller).map(str::to_owned);
                let workload = path.as_deref().map(cgroup::workload).unwrap_or_default();
                Known::Is(Process {
                    start: Some(facts.start),
                    comm: Some(facts.comm),
                    cgroup_id: None,
                    cgroup: path,
                    workload,
                })
            }
            Known::Gone => Known::Gone,
            Known::Denied => Known::Denied,
            Known::NotAsked => Known::NotAsked,
        }
    }

    fn is_there(&self, id: CgroupId, path: Option<&str>) -> bool {
        self.mount.as_deref().zip(path).is_some_and(|(mount, path)| cgroup_tree::is_at(mount, path, id))
    }

    /// The process's own path when it is still in that cgroup, else a walk of the tree.
    fn cgroup(&mut self, id: CgroupId, pid: Pid, at: MonoNs) -> Option<String> {
        let mount = self.mount.as_deref()?;
        if self.by_pid
            && let Known::Is(facts) = process::read(&self.root, pid)
            && let Some(path) = process::cgroup_path(&facts.cgroups, self.controller)
            && cgroup_tree::is_at(mount, path, id)
        {
            return Some(path.to_owned());
        }
        self.tree.find(mount, id, at)
    }
}

/// Start times count suspended time and `at` does not, so the process is compared on the clock that includes it.
fn began_after(facts: &ProcessFacts, at: MonoNs) -> bool {
    const SLACK_NS: u64 = 1_000_000_000;
    let suspended_ns = crate::host::suspended_ns();
    let start_ns = facts.start.0.saturating_mul(10_000_000);
    start_ns > at.0.saturating_add(suspended_ns).saturating_add(SLACK_NS)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::enrich::pod_names::{ContainerId, PodUid};
    use crate::model::{Attributed, CallKind, CallStats, Fact, LatencyDelta, Signal};
    use crate::telemetry::Telemetry;
    use crate::test_dir::TestDir;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    /// The names of a process in the container of the pod, `at` so many seconds.
    fn named(lookup: &mut Lookup, attributor: &mut Attributor, digit: &str, second: u64) -> String {
        let at = MonoNs(second * 1_000_000_000);
        let cgroup = CgroupId(u64::from_str_radix(digit, 16).unwrap());
        let path = format!("/kubepods/burstable/pod{UID}/{}", digit.repeat(64));
        attributor.know_cgroup(cgroup, at, Some(path));
        let (kind, latency) = (CallKind::Ioctl, LatencyDelta::default());
        let stats = CallStats {
            pid: Pid(7),
            cgroup,
            device: None,
            kind,
            function: None,
            op: 0,
            latency,
            last: false,
        };
        let fact = Fact::Reading(Signal::CallStats { at, stats: Box::new(stats) });
        let mut fact: Attributed<Fact> = attributor.attribute(fact);
        let mut asks = Vec::new();
        attributor.name_asks(&fact, at, &mut asks);
        asks.into_iter().for_each(|ask| lookup.answer(ask, at, attributor));
        attributor.name(&mut fact);
        let workload = fact.processes[0].1.is().unwrap().workload.clone();
        let names = [workload.namespace, workload.pod, workload.container];
        names.map(|name| name.unwrap_or_else(|| "-".into())).join("/")
    }

    #[test]
    fn names_come_from_the_log_links_and_what_has_none_is_counted_once() {
        let (dir, telemetry) = (TestDir::new(), Telemetry::default());
        let host = HostRoot { var_log: dir.path().to_owned(), ..HostRoot::default() };
        let mut lookup = Lookup::new(host, None, None, &PidNamespace::Host);
        let mut attributor = Attributor::new(&telemetry);
        let failures = |reason| {
            let attributes = [("stage", "names"), ("reason", reason)];
            telemetry.counter("warpgauge.mapping.failures", &attributes).get()
        };
        let mut at = |digit: &str, second| named(&mut lookup, &mut attributor, digit, second);
        assert_eq!([1, 5, 11, 12, 60].map(|second| at("a", second)), ["-/-/-"; 5]);
        assert_eq!((failures("unreadable"), failures("no_log_link")), (1, 0), "once");

        let pod = dir.path().join("pods").join(format!("ml_train-0_{UID}"));
        fs::create_dir_all(pod.join("main")).unwrap();
        let links = dir.path().join("containers");
        fs::create_dir(&links).unwrap();
        assert_eq!(at("a", 80), "ml/train-0/main", "the only one");
        fs::create_dir(pod.join("sidecar")).unwrap();
        symlink("/nowhere", links.join(format!("train-0_ml_sidecar-{}.log", "b".repeat(64)))).unwrap();
        assert_eq!(at("b", 82), "ml/train-0/sidecar");
        assert_eq!([84, 90, 95, 120].map(|second| at("c", second)), ["ml/train-0/-"; 4], "one of two");
        assert_eq!((failures("unreadable"), failures("no_log_link")), (1, 1));
        let ids = ["a", "b", "c"].map(|digit| ContainerId::parse(&digit.repeat(64)));
        let has = ids.map(|id| attributor.names().has((PodUid::parse(UID).unwrap(), id)));
        assert_eq!(has, [true, true, false]);
    }

    #[test]
    fn of_pods_with_one_name_the_newest_whose_cgroup_lives_has_it() {
        let dir = TestDir::new();
        let (newer, log) = (UID.replace('0', "1"), dir.path().join("log"));
        let made = |uid: &str| fs::create_dir_all(log.join(format!("pods/ml_db-0_{uid}"))).unwrap();
        let cgroup = |uid: &str| dir.path().join(format!("cgroup/kubepods/burstable/pod{uid}"));
        fs::create_dir_all(log.join("containers")).unwrap();
        made(UID);
        fs::create_dir_all(cgroup(UID)).unwrap();
        made(&newer);
        let host = HostRoot { var_log: log.clone(), ..HostRoot::default() };
        // One look for each: how old a folder is that was made just now, its file system may not tell.
        let uid = || {
            let mount = Some(dir.path().join("cgroup"));
            let mut lookup = Lookup::new(host.clone(), mount, None, &PidNamespace::Host);
            let mut attributor = Attributor::default();
            lookup.answer(Ask::Names(None), MonoNs(1), &mut attributor);
            attributor.names().uid("ml", "db-0").map(str::to_owned)
        };
        assert_eq!(uid().as_deref(), Some(UID), "the newer one has no cgroup (yet)");
        fs::remove_dir(cgroup(UID)).unwrap();
        fs::create_dir_all(cgroup(&newer)).unwrap();
        assert_eq!(uid(), Some(newer));
    }
}
