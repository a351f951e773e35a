//! Cgroups on this host: pod-shaped ones and those of any path, v1 (pids) or v2, and one that limits processes.
//!
//! In: a path, a pod's number, or a name. Out: a cgroup, of the form the kubelet makes, or with a limit; removed at the
//! end.
//! What can go wrong: the hierarchy is not mounted; the tests that need it say so.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Child;

use super::deadline::try_for;

/// Which hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the hierarchies' names")]
pub enum Version {
    V1,
    V2,
}

/// Where the hierarchy is mounted. Format of mountinfo: proc_pid_mountinfo(5).
pub fn mount(version: Version) -> Option<PathBuf> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let wanted = match version {
            Version::V1 => kind == "cgroup" && options.split(',').any(|o| o == "pids"),
            Version::V2 => kind == "cgroup2",
        };
        wanted.then(|| left.split(' ').nth(4)).flatten().map(PathBuf::from)
    })
}

/// A cgroup of any path; removed when dropped.
#[derive(Debug)]
pub struct Cgroup {
    dir: PathBuf,
    mount: PathBuf,
    /// Above this nothing is removed.
    kept: PathBuf,
}

impl Cgroup {
    /// Makes the cgroup of this path below the hierarchy's root, as /proc/PID/cgroup has it.
    ///
    /// # Panics
    /// When it cannot be made.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn at(version: Version, path: &str) -> Self {
        let mount = mount(version).expect("the hierarchy is mounted");
        let dir = mount.join(path.trim_start_matches('/'));
        // Only tests make pods here; another folder that is there already is this machine's own.
        let of_pods =
            |path: &Path| ["kubepods", "kubepods.slice"].iter().any(|p| path.starts_with(mount.join(p)));
        let kept = dir.ancestors().skip(1).find(|path| path.is_dir() && !of_pods(path));
        let kept = kept.expect("a hierarchy has a root").to_path_buf();
        // Another test's end may take a parent away just now.
        try_for(5, || fs::create_dir_all(&dir).ok()).expect("a cgroup can be made");
        Self { dir, mount, kept }
    }

    /// The path below the hierarchy's root, as /proc/PID/cgroup has it.
    ///
    /// # Panics
    /// Never: the folder lies below the mount point.
    #[expect(clippy::expect_used, reason = "true by construction")]
    pub fn path(&self) -> String {
        format!("/{}", self.dir.strip_prefix(&self.mount).expect("below the mount").display())
    }

    /// The cgroup's id.
    ///
    /// # Panics
    /// When the folder is gone.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn id(&self) -> u64 {
        fs::metadata(&self.dir).expect("the cgroup exists").ino()
    }

    /// Moves a process in.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn admit(&self, child: &Child) {
        fs::write(self.dir.join("cgroup.procs"), child.id().to_string()).expect("a process can be moved");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has just ended may still be in it for a moment; a test that fails must not fail twice.
        let _ = try_for(5, || match fs::remove_dir(&self.dir) {
            Ok(()) => Some(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some(()),
            Err(_) => None,
        });
        for parent in self.dir.ancestors().skip(1).take_while(|p| *p != self.kept) {
            let _ = fs::remove_dir(parent); // other tests' pods may still be there
        }
    }
}

/// A cgroup shaped like a container's, as containerd and systemd make it.
#[derive(Debug)]
pub struct PodCgroup {
    cgroup: Cgroup,
    /// `k8s.pod.uid`.
    pub pod_uid: String,
    /// `container.id`.
    pub container_id: String,
}

impl PodCgroup {
    /// Makes the cgroup; `number` tells pods of one run apart.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(version: Version, number: u32) -> Self {
        let pid = std::process::id();
        let pod_uid = format!("{pid:08x}-{:04x}-4000-8000-{number:012x}", version as u32 + 1);
        let container_id = format!("{pid:08x}{number:08x}").repeat(4);
        let slice = format!("kubepods-burstable-pod{}.slice", pod_uid.replace('-', "_"));
        let path =
            format!("kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-{container_id}.scope");
        Self { cgroup: Cgroup::at(version, &path), pod_uid, container_id }
    }
}

impl std::ops::Deref for PodCgroup {
    type Target = Cgroup;

    fn deref(&self) -> &Cgroup {
        &self.cgroup
    }
}

/// A v1 cgroup that limits how many processes and threads there are in it; removed when dropped.
#[derive(Debug)]
pub struct PidsLimit {
    dir: PathBuf,
}

impl PidsLimit {
    /// Without a limit yet.
    ///
    /// # Panics
    /// When it cannot be made.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn new(name: &str) -> Self {
        let mount = mount(Version::V1).expect("the hierarchy is mounted");
        let dir = mount.join(format!("warpgauge-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a cgroup can be made");
        Self { dir }
    }

    /// From now on no more than this; what is above it stays, and nothing is added.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn set(&self, most: u32) {
        fs::write(self.dir.join("pids.max"), most.to_string()).expect("a limit can be set");
    }

    /// A program that becomes the one it is given, inside.
    pub fn wrapper(&self) -> [String; 3] {
        let enter = format!("echo $$ > {}/cgroup.procs; exec \"$0\" \"$@\"", self.dir.display());
        ["sh".to_owned(), "-c".to_owned(), enter]
    }
}

impl Drop for PidsLimit {
    fn drop(&mut self) {
        // What has just ended may still be in it for a moment; a test that fails must not fail twice.
        let _ = try_for(5, || fs::remove_dir(&self.dir).ok());
    }
}
