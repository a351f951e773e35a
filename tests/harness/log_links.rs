//! The kubelet's folders of logs, as names of pods and containers come from them.
//!
//! In: pods and their containers. Out: `pods/<namespace>_<pod>_<uid>/<container>/` and
//! `containers/<pod>_<namespace>_<container>-<id>.log` below a folder that stands for /var/log; no log is ever written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Both folders.
#[derive(Debug)]
pub struct LogLinks(PathBuf);

impl LogLinks {
    /// Empty ones in `dir/log`.
    ///
    /// # Panics
    /// When the disk is full.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn new(dir: &Path) -> Self {
        let log = dir.join("log");
        for folder in ["pods", "containers"] {
            fs::create_dir_all(log.join(folder)).expect("a folder of logs");
        }
        Self(log)
    }

    /// What stands for /var/log.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A container (its name and its id) starts in a pod.
    ///
    /// # Panics
    /// When the disk is full.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn add(&self, [namespace, pod, uid]: [&str; 3], container: &str, id: &str) {
        let folder = self.pod([namespace, pod, uid]).join(container);
        fs::create_dir_all(&folder).expect("a folder of logs");
        let link = self.0.join("containers").join(format!("{pod}_{namespace}_{container}-{id}.log"));
        symlink(folder.join("0.log"), link).expect("a link");
    }

    /// The pod is deleted, with all its containers.
    ///
    /// # Panics
    /// When it was not there.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn remove(&self, [namespace, pod, uid]: [&str; 3]) {
        fs::remove_dir_all(self.pod([namespace, pod, uid])).expect("the pod was there");
        let links = fs::read_dir(self.0.join("containers")).expect("a folder of links").flatten();
        let own = format!("{pod}_{namespace}_");
        for link in links.filter(|link| link.file_name().to_string_lossy().starts_with(&own)) {
            fs::remove_file(link.path()).expect("a link");
        }
    }

    fn pod(&self, [namespace, pod, uid]: [&str; 3]) -> PathBuf {
        self.0.join("pods").join(format!("{namespace}_{pod}_{uid}"))
    }
}
