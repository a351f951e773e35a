//! Pods and containers by name.
//!
//! In: what the kubelet's log links say, all of it at once. Out: names of a uid and of a container, the uid of a name.
//! Of pods and containers that are gone the latest are kept, for what is said of them late. Pure.
//! What can go wrong: several pods had one name (a StatefulSet's, made anew): the newest whose cgroup lives has
//! it, or the newest where none is seen to. A container whose link tells another pod than its cgroup does gets no name.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::bounded::Bounded;
use crate::model::Workload;

/// A pod's uid, without its dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PodUid(u128);

impl PodUid {
    /// 8-4-4-4-12 hexadecimal digits, or 32 for a static pod.
    pub fn parse(text: &str) -> Option<Self> {
        let dashes = [8, 13, 18, 23];
        let is_uid = match text.len() {
            32 => text.bytes().all(|b| b.is_ascii_hexdigit()),
            36 => text.bytes().enumerate().all(|(at, b)| match dashes.contains(&at) {
                true => b == b'-',
                false => b.is_ascii_hexdigit(),
            }),
            _ => false,
        };
        let digits = text.bytes().filter_map(|b| char::from(b).to_digit(16));
        is_uid.then(|| Self(digits.fold(0, |uid, digit| (uid << 4) | u128::from(digit))))
    }
}

/// A container's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContainerId([u128; 2]);

impl ContainerId {
    /// 64 hexadecimal digits, in small letters.
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let half = |digits: &str| u128::from_str_radix(digits, 16).ok();
        let (high, low) = text.split_at_checked(32).filter(|_| is_id)?;
        Some(Self([half(high)?, half(low)?]))
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `k8s.pod.uid`, as it is written.
    pub uid: String,
    /// `k8s.namespace.name`.
    pub namespace: String,
    /// `k8s.pod.name`.
    pub name: String,
    /// When it was made, where that decides: another pod has the same name. Unit: ns since 1970.
    pub made_ns: u64,
    /// Its cgroup was seen, where that decides too. Nobody may see any.
    pub lives: bool,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// `k8s.namespace.name`.
    pub namespace: String,
    /// Its pod's `k8s.pod.name`.
    pub pod: String,
    /// `k8s.container.name`.
    pub name: String,
}

/// All that is there; `None` where that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Pods.
    pub pods: Option<Vec<(PodUid, Pod)>>,
    /// Containers.
    pub containers: Option<Vec<(ContainerId, Container)>>,
}

/// What is known.
#[derive(Debug)]
pub struct PodNames {
    pods: HashMap<PodUid, Arc<Pod>>,
    containers: HashMap<ContainerId, Arc<Container>>,
    former_pods: Bounded<PodUid, Arc<Pod>>,
    former_containers: Bounded<ContainerId, Arc<Container>>,
    /// The newest pod of a name, by namespace.
    by_name: HashMap<String, HashMap<String, Arc<Pod>>>,
}

impl Default for PodNames {
    fn default() -> Self {
        Self {
            pods: HashMap::new(),
            containers: HashMap::new(),
            former_pods: Bounded::new(Self::FORMER_MAX),
            former_containers: Bounded::new(Self::FORMER_MAX),
            by_name: HashMap::new(),
        }
    }
}

impl PodNames {
    /// Pods, and containers, that are gone and still known.
    pub const FORMER_MAX: usize = 512;

    /// Takes the place of all that was there.
    pub fn replace(&mut self, listing: Listing) {
        if let Some(pods) = listing.pods {
            replace(&mut self.pods, pods, &mut self.former_pods);
            self.by_name.clear();
            for pod in self.pods.values() {
                name(&mut self.by_name, pod);
            }
        }
        if let Some(containers) = listing.containers {
            replace(&mut self.containers, containers, &mut self.former_containers);
        }
    }

    /// One pod more, from elsewhere than a listing.
    pub fn learn_pod(&mut self, uid: PodUid, pod: Pod) {
        if self.pod(uid).is_none() {
            let pod = Arc::new(pod);
            name(&mut self.by_name, &pod);
            self.former_pods.insert(uid, pod);
        }
    }

    /// One container more, from elsewhere than a listing.
    pub fn learn_container(&mut self, id: ContainerId, container: Container) {
        self.former_containers.insert(id, Arc::new(container));
    }

    /// The pod of a uid.
    pub fn pod(&self, uid: PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(&uid).or_else(|| self.former_pods.get(uid))
    }

    /// The uid of the newest pod of this name that lives, as far as that is known.
    pub fn uid(&self, namespace: &str, pod: &str) -> Option<&str> {
        self.by_name.get(namespace)?.get(pod).map(|pod| pod.uid.as_str())
    }

    /// Whether nothing is missing that [`Self::fill`] would fill in.
    pub fn has(&self, (uid, container): (PodUid, Option<ContainerId>)) -> bool {
        self.pod(uid).is_some() && container.is_none_or(|id| self.container(id).is_some())
    }

    /// Fills in the names of a pod's process.
    pub fn fill(&self, workload: &mut Workload) {
        let Some((uid, container)) = of(workload) else { return };
        let container = container.and_then(|id| self.container(id));
        let (namespace, pod) = match (self.pod(uid), container) {
            (Some(pod), _) => (&pod.namespace, &pod.name),
            (None, Some(container)) => (&container.namespace, &container.pod),
            (None, None) => return,
        };
        let own = container.filter(|c| (&c.namespace, &c.pod) == (namespace, pod));
        workload.container = own.map(|container| container.name.clone());
        (workload.namespace, workload.pod) = (Some(namespace.clone()), Some(pod.clone()));
    }

    fn container(&self, id: ContainerId) -> Option<&Arc<Container>> {
        self.containers.get(&id).or_else(|| self.former_containers.get(id))
    }
}

/// By what a workload's names are found; `None` for what is no pod's.
pub fn of(workload: &Workload) -> Option<(PodUid, Option<ContainerId>)> {
    let uid = PodUid::parse(workload.pod_uid.as_deref()?)?;
    Some((uid, workload.container_id.as_deref().and_then(ContainerId::parse)))
}

fn replace<K: Copy + Eq + Hash, V: PartialEq>(
    all: &mut HashMap<K, Arc<V>>,
    now: Vec<(K, V)>,
    former: &mut Bounded<K, Arc<V>>,
) {
    let mut before = std::mem::take(all);
    for (key, value) in now {
        let same = before.remove(&key).filter(|known| **known == value);
        all.insert(key, same.unwrap_or_else(|| Arc::new(value)));
    }
    before.into_iter().for_each(|(key, value)| former.insert(key, value));
}

fn name(by_name: &mut HashMap<String, HashMap<String, Arc<Pod>>>, pod: &Arc<Pod>) {
    let pods = by_name.entry(pod.namespace.clone()).or_default();
    if pods.get(&pod.name).is_none_or(|known| rank(known) <= rank(pod)) {
        pods.insert(pod.name.clone(), Arc::clone(pod));
    }
}

/// Two of the same age: the larger uid, so that the order of the listing means nothing.
fn rank(pod: &Pod) -> (bool, u64, &str) {
    (pod.lives, pod.made_ns, &pod.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";
    const NEWER: &str = "00000000-1111-2222-3333-444455556666";
    const STATIC: &str = "3f5e0c0d9a8b7c6d5e4f3a2b1c0d9e8f";

    fn pod(uid: &str, name: &str, made_ns: u64) -> (PodUid, Pod) {
        let pod = Pod { uid: uid.into(), namespace: "ml".into(), name: name.into(), made_ns, lives: false };
        (PodUid::parse(uid).unwrap(), pod)
    }

    fn container(digit: &str, pod: &str, name: &str) -> (ContainerId, Container) {
        let container = Container { namespace: "ml".into(), pod: pod.into(), name: name.into() };
        (ContainerId::parse(&digit.repeat(64)).unwrap(), container)
    }

    /// The names of a process, as `namespace/pod/container`.
    fn named(names: &PodNames, uid: Option<&str>, digit: &str) -> String {
        let (container_id, pod_uid) = (Some(digit.repeat(64)), uid.map(str::to_owned));
        let mut workload = Workload { container_id, pod_uid, ..Workload::default() };
        names.fill(&mut workload);
        let Workload { namespace, pod, container, .. } = workload;
        [namespace, pod, container].map(|name| name.unwrap_or_else(|| "-".into())).join("/")
    }

    #[test]
    fn uids_and_ids_have_their_forms() {
        assert_eq!(PodUid::parse(UID), Some(PodUid(0x0a1b_2c3d_1111_2222_3333_4444_5555_6666)));
        assert!(PodUid::parse(STATIC).is_some() && ContainerId::parse(&"0f".repeat(32)).is_some());
        for text in ["", "0a1b2c3d-1111-2222-3333-44445555666", &UID.replace('-', "_"), &"é".repeat(18)] {
            assert_eq!(PodUid::parse(text), None, "{text}");
        }
        assert_eq!(PodUid::parse("0a1b2c3d1-111-2222-3333-444455556666"), None);
        for text in ["0".repeat(63), "0".repeat(65), "F".repeat(64), "+".repeat(64), "é".repeat(32)] {
            assert_eq!(ContainerId::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_process_is_named_by_uid_and_container_id() {
        let mut names = PodNames::default();
        let pods = vec![pod(UID, "train-0", 0), pod(STATIC, "proxy-node7", 0)];
        let containers = vec![container("a", "train-0", "main"), container("b", "proxy-node7", "proxy")];
        names.replace(Listing { pods: Some(pods), containers: Some(containers) });
        for (uid, digit, want) in [
            (Some(UID), "a", "ml/train-0/main"),
            (Some(UID), "c", "ml/train-0/-"),
            (Some(UID), "b", "ml/train-0/-"), // another pod's container
            (Some(STATIC), "b", "ml/proxy-node7/proxy"),
            (Some(NEWER), "a", "ml/train-0/main"), // of a pod that has no folder
            (Some(NEWER), "c", "-/-/-"),
            (None, "a", "-/-/-"), // whoever may make cgroups names them as he likes
            (Some("x"), "a", "-/-/-"),
        ] {
            assert_eq!(named(&names, uid, digit), want, "{uid:?} {digit}");
        }
    }

    #[test]
    fn the_newest_pod_has_the_name_and_the_older_keeps_its_own() {
        let mut names = PodNames::default();
        let listing = |pods: &[(PodUid, Pod)]| Listing { pods: Some(pods.to_vec()), containers: None };
        names.replace(listing(&[pod(UID, "db-0", 5)]));
        assert_eq!((names.uid("ml", "db-0"), names.uid("other", "db-0")), (Some(UID), None));
        for both in
            [[pod(UID, "db-0", 5), pod(NEWER, "db-0", 6)], [pod(NEWER, "db-0", 6), pod(UID, "db-0", 5)]]
        {
            names.replace(listing(&both));
            assert_eq!(names.uid("ml", "db-0"), Some(NEWER));
        }
        assert_eq!(named(&names, Some(UID), "a"), "ml/db-0/-");
        names.replace(listing(&[]));
        assert_eq!((names.uid("ml", "db-0"), named(&names, Some(UID), "a")), (None, "ml/db-0/-".into()));
    }

    #[test]
    fn an_older_pod_that_lives_has_the_name_before_a_newer_one_that_does_not() {
        let with = |lives| move |(uid, pod): (PodUid, Pod)| (uid, Pod { lives, ..pod });
        for (older, newer, want) in
            [(true, false, UID), (true, true, NEWER), (false, true, NEWER), (false, false, NEWER)]
        {
            let both = vec![with(newer)(pod(NEWER, "db-0", 6)), with(older)(pod(UID, "db-0", 5))];
            let mut names = PodNames::default();
            names.replace(Listing { pods: Some(both), containers: None });
            assert_eq!(names.uid("ml", "db-0"), Some(want), "{older} {newer}");
        }
    }

    #[test]
    fn of_what_is_gone_the_latest_are_known() {
        let mut names = PodNames::default();
        let all: Vec<_> = (0..PodNames::FORMER_MAX + 2).map(|n| pod(&format!("{n:032x}"), "x", 0)).collect();
        for one in &all {
            names.replace(Listing { pods: Some(vec![one.clone()]), containers: None });
        }
        let known = |n: usize| names.pod(all[n].0).is_some();
        assert_eq!((known(0), known(1), known(PodNames::FORMER_MAX + 1)), (false, true, true));
        assert_eq!(names.pods.len(), 1);
    }
}
