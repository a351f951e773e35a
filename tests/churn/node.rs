//! The node's files: what the agent's look-ups read of processes, cgroups and the kubelet's logs.
//!
//! In: pods that begin and end. Out: /proc/PID, cgroups and folders of logs below one folder, gone with their pod.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use warpgauge::host::HostRoot;
use warpgauge::model::CgroupId;

use crate::pod::Pod;

/// Where everything is.
pub(crate) struct Node {
    pub(crate) host: HostRoot,
}

impl Node {
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let [proc, sys, dev, var_log] = ["proc", "sys", "dev", "log"].map(|name| folder.join(name));
        let node = Self { host: HostRoot { proc, sys, dev, var_log } };
        for folder in [node.pods(), node.links(), node.cgroups(), node.host.proc("self")] {
            fs::create_dir_all(folder)?;
        }
        Ok(node)
    }

    /// The root of the hierarchy.
    pub(crate) fn cgroups(&self) -> PathBuf {
        self.host.sys("fs/cgroup")
    }

    fn pods(&self) -> PathBuf {
        self.host.var_log("pods")
    }

    fn links(&self) -> PathBuf {
        self.host.var_log("containers")
    }

    /// The pod's files are made; its cgroup has a number then.
    pub(crate) fn add(&self, number: u64, second: u64) -> anyhow::Result<Pod> {
        let mut pod = Pod::new(number, second);
        let cgroup = self.cgroups().join(pod.path());
        fs::create_dir_all(&cgroup)?;
        pod.cgroup = CgroupId(fs::metadata(&cgroup)?.ino());
        let proc = self.host.proc(pod.pid().to_string());
        fs::create_dir_all(&proc)?;
        fs::write(proc.join("cgroup"), format!("0::/{}\n", pod.path()))?;
        let zeros = "0 ".repeat(18);
        fs::write(proc.join("stat"), format!("{} (python3) S {zeros}{} 0 0\n", pod.pid(), pod.start()))?;
        fs::create_dir_all(self.pods().join(pod.log_folder()).join("main"))?;
        symlink("/nowhere", self.links().join(pod.log_link()))?;
        Ok(pod)
    }

    /// And gone.
    pub(crate) fn remove(&self, pod: &Pod) -> anyhow::Result<()> {
        let cgroup = self.cgroups().join(pod.path());
        fs::remove_dir(&cgroup)?;
        fs::remove_dir(cgroup.parent().unwrap_or(&cgroup))?;
        fs::remove_dir_all(self.host.proc(pod.pid().to_string()))?;
        fs::remove_dir_all(self.pods().join(pod.log_folder()))?;
        fs::remove_file(self.links().join(pod.log_link()))?;
        Ok(())
    }

    /// What is left of pods.
    pub(crate) fn files(&self) -> anyhow::Result<usize> {
        Ok(fs::read_dir(self.links())?.count())
    }
}
