//! The kubelet's folders of logs → names of pods and containers.
//!
//! In: /var/log/pods (`<namespace>_<pod>_<uid>/<container>/`) and /var/log/containers
//! (`<pod>_<namespace>_<container>-<container id>.log`), of which only the names are read: no link is followed and no
//! log opened. Out: a [`Listing`], when something changed since the last one.
//! What can go wrong: the folders are not there or not readable; more entries than are read; names that no kubelet gives
//! are passed over.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::pod_names::{Container, ContainerId, Listing, Pod, PodUid};
use crate::host::{HostRoot, wall_anchor};
use crate::model::MonoNs;

/// Entries read of one folder: ten times what a full node of 500 pods has.
const ENTRIES_MAX: usize = 20_000;
/// Containers read of one pod.
const CONTAINERS_MAX: usize = 256;
/// The shortest time between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A folder that changed so shortly before it was read may have changed once more within one tick of its clock.
const SETTLED: Duration = Duration::from_secs(2);

/// What a look gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing new, or the last look is too young for another.
    Same,
    /// This is there now.
    New(Listing),
}

/// The folders, and what they were like when they were read.
#[derive(Debug)]
pub struct LogLinks {
    pods: PathBuf,
    containers: PathBuf,
    looked: Option<MonoNs>,
    /// `None`: one of them may have changed.
    read: Option<[Stamp; 2]>,
    readable: bool,
    told: bool,
}

/// By what a changed folder is known; both 0 for one that cannot be read.
type Stamp = (u64, i128);

impl LogLinks {
    /// The folders of this host; nothing is read yet.
    pub fn new(host: &HostRoot) -> Self {
        let (pods, containers) = (host.var_log("pods"), host.var_log("containers"));
        Self { pods, containers, looked: None, read: None, readable: false, told: false }
    }

    /// Looks whether something changed, and then reads all; both at most once a second.
    pub fn look(&mut self, now: MonoNs) -> Look {
        if self.looked.is_some_and(|looked| now.since(looked).is_none_or(|age| age < LOOK_AGAIN)) {
            return Look::Same;
        }
        self.looked = Some(now);
        let stamps = [stamp(&self.pods), stamp(&self.containers)];
        if self.read == Some(stamps) {
            return Look::Same;
        }
        let wall_ns = i128::from(wall_anchor().wall.0);
        let settled = stamps.iter().all(|(_, changed)| SETTLED.as_nanos() as i128 <= wall_ns - changed);
        let pods = entries(&self.pods, ENTRIES_MAX);
        let containers = entries(&self.containers, ENTRIES_MAX);
        self.readable = pods.is_ok() && containers.is_ok();
        let failed = [(&self.pods, &pods), (&self.containers, &containers)];
        for (folder, what) in failed.into_iter().filter_map(|(at, read)| Some((at, read.as_ref().err()?))) {
            if !std::mem::replace(&mut self.told, true) {
                tracing::warn!(
                    folder = %folder.display(),
                    %what,
                    remedy = "mount the host's /var/log/pods and /var/log/containers, and name /var/log by --host-var-log",
                    "Pods and containers have no names, but for those the kubelet tells; their uids are there."
                );
            }
        }
        self.read = (settled && self.readable).then_some(stamps);
        let named = |link: &DirEntry| container(link.file_name().to_str()?);
        let containers = containers.ok().map(|links| links.iter().filter_map(named).collect());
        Look::New(Listing { pods: pods.ok().map(|dirs| self.pods_of(&dirs)), containers })
    }

    /// Whether both folders could be read at the last look.
    pub fn readable(&self) -> bool {
        self.readable
    }

    /// The container of a pod that has one only. The kubelet makes a container's folder before it starts it, so this is
    /// true of a container seen running before. For links whose names the kubelet had to cut short.
    pub fn only_container(&self, pod: &Pod) -> Option<String> {
        let path = self.pods.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid));
        if !fs::symlink_metadata(&path).ok()?.is_dir() {
            return None;
        }
        let inside = entries(&path, CONTAINERS_MAX).ok()?;
        match inside.as_slice() {
            [only] if is_dir(only) => {
                only.file_name().to_str().filter(|name| is_label(name)).map(str::to_owned)
            }
            _ => None,
        }
    }

    fn pods_of(&self, dirs: &[DirEntry]) -> Vec<(PodUid, Pod)> {
        let named = |dir: &DirEntry| pod(dir.file_name().to_str()?);
        let mut pods: Vec<(PodUid, Pod)> = dirs.iter().filter(|dir| is_dir(dir)).filter_map(named).collect();
        pods.sort_unstable_by(|(_, a), (_, b)| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        // Only the age of those that share a name matters.
        let same =
            |a: &(PodUid, Pod), b: &(PodUid, Pod)| a.1.namespace == b.1.namespace && a.1.name == b.1.name;
        for group in pods.chunk_by_mut(same).filter(|group| 1 < group.len()) {
            for (_, pod) in group {
                pod.made_ns = made_ns(&self.pods.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid)));
            }
        }
        pods
    }
}

fn entries(folder: &Path, most: usize) -> io::Result<Vec<DirEntry>> {
    Ok(fs::read_dir(folder)?.flatten().take(most).collect())
}

/// Of the entry itself, not of what a link points to.
fn is_dir(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

fn stamp(folder: &Path) -> Stamp {
    let stamp =
        |m: fs::Metadata| (m.ino(), i128::from(m.mtime()) * 1_000_000_000 + i128::from(m.mtime_nsec()));
    fs::metadata(folder).map(stamp).unwrap_or_default()
}

/// When a folder was made; where its file system does not keep that, when something was last made in it.
fn made_ns(path: &Path) -> u64 {
    let made = fs::symlink_metadata(path).and_then(|m| m.created().or_else(|_| m.modified()));
    let since = |made: SystemTime| made.duration_since(UNIX_EPOCH).ok();
    made.ok().and_then(since).map_or(0, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX))
}

/// `<namespace>_<pod>_<uid>`.
fn pod(name: &str) -> Option<(PodUid, Pod)> {
    let [namespace, pod, uid] = three(name)?;
    let valid = is_label(namespace) && is_subdomain(pod) && !uid.bytes().any(|b| b.is_ascii_uppercase());
    let key = PodUid::parse(uid).filter(|_| valid)?;
    let (uid, namespace, name) = (uid.to_owned(), namespace.to_owned(), pod.to_owned());
    Some((key, Pod { uid, namespace, name, made_ns: 0, lives: false }))
}

/// `<pod>_<namespace>_<container>-<container id>.log`.
fn container(name: &str) -> Option<(ContainerId, Container)> {
    let (names, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let [pod, namespace, container] = three(names)?;
    let valid = is_subdomain(pod) && is_label(namespace) && is_label(container);
    let id = ContainerId::parse(id).filter(|_| valid)?;
    Some((id, Container { namespace: namespace.into(), pod: pod.into(), name: container.into() }))
}

/// No name has a `_` in it.
fn three(name: &str) -> Option<[&str; 3]> {
    let mut parts = name.split('_');
    let three = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(three)
}

/// What Kubernetes takes for a namespace or a container: a label of RFC 1123.
fn is_label(text: &str) -> bool {
    let end = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    let inside = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    bytes.len() <= 63 && end(bytes.first()) && end(bytes.last()) && bytes.iter().all(inside)
}

/// What it takes for a pod: labels with dots between them, which may be longer.
fn is_subdomain(text: &str) -> bool {
    let end = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inside = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        end(bytes.first()) && end(bytes.last()) && bytes.iter().all(inside)
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::test_dir::TestDir;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    fn second(s: u64) -> MonoNs {
        MonoNs(s * 1_000_000_000)
    }

    fn host(dir: &TestDir) -> HostRoot {
        HostRoot { var_log: dir.path().to_owned(), ..HostRoot::default() }
    }

    /// The folder looks as if it had last changed then, after 1970.
    fn changed(dir: &TestDir, folder: &str, at: u64) {
        File::open(dir.path().join(folder))
            .unwrap()
            .set_modified(UNIX_EPOCH + Duration::from_secs(at))
            .unwrap();
    }

    fn listed(look: Look) -> (Vec<String>, Vec<String>) {
        let Look::New(listing) = look else { panic!("nothing new") };
        let pods = listing
            .pods
            .iter()
            .flatten()
            .map(|(_, pod)| format!("{}/{} {}", pod.namespace, pod.name, pod.uid));
        let containers = listing.containers.iter().flatten();
        let containers = containers.map(|(_, c)| format!("{}/{}/{}", c.namespace, c.pod, c.name));
        let (mut pods, mut containers): (Vec<_>, Vec<_>) = (pods.collect(), containers.collect());
        pods.sort();
        containers.sort();
        (pods, containers)
    }

    #[test]
    fn names_are_the_kubelets_or_nothing() {
        let long = "a".repeat(64);
        let id = "0f".repeat(32);
        let static_uid = UID.replace('-', "");
        for (name, want) in [
            (format!("ml_train-0_{UID}"), Some("ml/train-0")),
            (format!("ml_a.b-c.d_{static_uid}"), Some("ml/a.b-c.d")),
            (format!("ml_{}_{UID}", "a".repeat(64)), Some(&*format!("ml/{long}"))),
            (format!("ml_{}_{UID}", "a".repeat(254)), None),
            (format!("{long}_x_{UID}"), None),
            (format!("ml_x_y_{UID}"), None),
            (format!("ml_x_{UID}_"), None),
            (format!("_x_{UID}"), None),
            (format!("ml__{UID}"), None),
            (format!("ml_-x_{UID}"), None),
            (format!("ml_x-_{UID}"), None),
            (format!("ml_a..b_{UID}"), None),
            (format!("ml_X_{UID}"), None),
            (format!("ml_x_{}", UID.to_uppercase()), None),
            (format!("m.l_x_{UID}"), None),
            (format!("ml_x\u{1b}_{UID}"), None),
            ("ml_x_0a1b2c3d".to_owned(), None),
            ("ml_x".to_owned(), None),
            (String::new(), None),
        ] {
            let found = pod(&name).map(|(_, pod)| format!("{}/{}", pod.namespace, pod.name));
            assert_eq!(found.as_deref(), want, "{name}");
        }
        for (name, want) in [
            (format!("train-0_ml_main-{id}.log"), Some("ml/train-0/main")),
            (format!("a.b_ml_side-car-{id}.log"), Some("ml/a.b/side-car")),
            (format!("train-0_ml_main-{id}"), None),
            (format!("train-0_ml_main-{}.log", &id[1..]), None),
            (format!("train-0_ml_main-0{id}.log"), None),
            (format!("train-0_ml_-{id}.log"), None),
            (format!("train-0_ml_a.b-{id}.log"), None),
            (format!("train-0_ml_x_main-{id}.log"), None),
            (format!("train-0_ml-{id}.log"), None),
        ] {
            let found = container(&name).map(|(_, c)| format!("{}/{}/{}", c.namespace, c.pod, c.name));
            assert_eq!(found.as_deref(), want, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_refused_or_says_all_that_was_read_of_it(
            free in "\\PC{0,40}",
            near in "[a-z0-9.-]{1,9}_{1,2}[a-z0-9.A-]{1,9}_?([a-z0-9-]{1,9}-[0-9a-f]{64}\\.log|[0-9a-fA-F]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})",
        ) {
            for name in [&free, &near] {
                if let Some((_, found)) = pod(name) {
                    prop_assert_eq!(name, &format!("{}_{}_{}", found.namespace, found.name, found.uid));
                }
                if let Some((_, found)) = container(name) {
                    let read = format!("{}_{}_{}-", found.pod, found.namespace, found.name);
                    prop_assert!(name.starts_with(&read) && name.len() == read.len() + 64 + ".log".len());
                }
            }
        }
    }

    #[test]
    fn folders_are_read_again_when_they_changed_and_not_within_a_second() {
        let dir = TestDir::new();
        let mut links = LogLinks::new(&host(&dir));
        assert_eq!((links.look(second(1)), links.readable()), (Look::New(Listing::default()), false));
        let pod = dir.path().join(format!("pods/ml_train-0_{UID}"));
        fs::create_dir_all(pod.join("main")).unwrap();
        fs::create_dir(dir.path().join("containers")).unwrap();
        symlink("/nowhere", dir.path().join(format!("containers/train-0_ml_main-{}.log", "a".repeat(64))))
            .unwrap();
        symlink(&pod, dir.path().join(format!("pods/ml_linked_{UID}"))).unwrap();
        fs::write(dir.path().join(format!("pods/ml_file_{UID}")), "").unwrap();
        changed(&dir, "pods", 100);
        changed(&dir, "containers", 100);
        assert_eq!(links.look(MonoNs(1_900_000_000)), Look::Same, "too soon");
        let want = (vec![format!("ml/train-0 {UID}")], vec!["ml/train-0/main".to_owned()]);
        assert_eq!((listed(links.look(second(2))), links.readable()), (want.clone(), true));
        let known = links.read;
        assert_eq!((links.look(second(9)), known.is_some()), (Look::Same, true), "as it was");

        let other = UID.replace('0', "1");
        fs::create_dir(dir.path().join(format!("pods/ml_late_{other}"))).unwrap();
        let (pods, _) = listed(links.look(second(10)));
        assert_eq!(pods, [format!("ml/late {other}"), want.0[0].clone()]);
        assert_eq!(listed(links.look(second(11))).0, pods, "it may have changed again within the same tick");
        changed(&dir, "pods", 200);
        assert_eq!(listed(links.look(second(12))).0, pods);
        assert_eq!(links.look(second(13)), Look::Same);
    }

    #[test]
    fn pods_of_one_name_have_their_age() {
        let dir = TestDir::new();
        let newer = UID.replace('0', "1");
        for name in [format!("ml_db-0_{newer}"), format!("ml_db-0_{UID}"), "ml_x_".to_owned() + &newer] {
            fs::create_dir_all(dir.path().join("pods").join(name)).unwrap();
        }
        let Look::New(listing) = LogLinks::new(&host(&dir)).look(second(1)) else { panic!("nothing") };
        let ages: Vec<_> =
            listing.pods.iter().flatten().map(|(_, pod)| (&*pod.name, 0 < pod.made_ns)).collect();
        assert_eq!(ages, [("db-0", true), ("db-0", true), ("x", false)]);
    }

    #[test]
    fn the_only_container_of_a_pod_needs_no_link() {
        let dir = TestDir::new();
        let links = LogLinks::new(&host(&dir));
        let (_, found) = pod(&format!("ml_train-0_{UID}")).unwrap();
        assert_eq!(links.only_container(&found), None);
        let path = dir.path().join(format!("pods/ml_train-0_{UID}"));
        fs::create_dir_all(path.join("main")).unwrap();
        assert_eq!(links.only_container(&found).as_deref(), Some("main"));
        fs::create_dir(path.join("init")).unwrap();
        assert_eq!(links.only_container(&found), None, "either");
    }
}
