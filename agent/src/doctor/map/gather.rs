//! What the map is made of: the answers of the kubelet, the scheduler, the libraries and the kernel.
//!
//! In: the configuration. Out: [`Gathered`]. Each is asked once, all at the same time, and none beyond its patience.
//! What can go wrong: each by itself; what is missing then is said in a line.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;

use super::super::{Check, Verdict, kubelet, log_folders, vendor};
use super::failure::Failure;
use super::open_nodes::{self, OpenNodes};
use super::processes::Evidence;
use crate::config::Config;
use crate::model::PodDevices;
use crate::sources::hpc_jobs::files::{self, Listing};
use crate::sources::kubelet::failure::Reason;
use crate::sources::worker::listed::Listed;

/// Answers.
#[derive(Debug)]
pub struct Gathered {
    /// How the kubelet answered.
    pub kubelet: Check,
    /// Why it did not, where it should have.
    pub kubelet_failure: Option<Failure>,
    /// What it gave to whom.
    pub grants: Option<PodDevices>,
    /// The job mapping files; `None`: no directory is configured.
    pub jobs: Option<Result<Listing, String>>,
    /// The folders of names.
    pub log_folders: Check,
    /// How the libraries answered.
    pub libraries: Check,
    /// Their devices.
    pub devices: Vec<Listed>,
    /// Who has device nodes open; only where no library lists processes.
    pub nodes: Option<OpenNodes>,
    /// Names of sources that have not answered in time.
    pub late: Vec<&'static str>,
}

impl Gathered {
    /// Pids by device, and how that is known.
    pub fn pids(&self) -> (BTreeMap<String, Vec<u32>>, Evidence) {
        let Some(nodes) = &self.nodes else {
            let listed = self.devices.iter().filter_map(|d| Some((d.hw_id.clone(), d.processes.clone()?)));
            return (listed.filter(|(_, pids)| !pids.is_empty()).collect(), Evidence::Nvml);
        };
        let mut pids: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (pid, minor) in nodes.minors.iter().flat_map(|(pid, all)| all.iter().map(move |n| (*pid, *n))) {
            let board = self.devices.iter().find(|d| d.parent.is_none() && d.minor == Some(minor));
            // What the node is of is not known without a library; its name is.
            let name = board.map_or_else(|| format!("/dev/nvidia{minor}"), |board| board.hw_id.clone());
            pids.entry(name).or_default().push(pid);
        }
        (pids, Evidence::OpenFd)
    }
}

/// Asks all of them, the kubelet of one pod alone where `only` (namespace, name) says so; must be called on a runtime.
pub async fn gather(config: &Config, only: Option<(&str, &str)>, patience: Duration) -> Gathered {
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let of_kubernetes = kubelet::is_here(&config.kubelet, in_pod);
    let (of_vendor, of_files) = (config.clone(), config.clone());
    let libraries = tokio::task::spawn_blocking(move || vendor::devices(&of_vendor));
    let files = tokio::task::spawn_blocking(move || {
        let jobs = of_files.hpc_jobs.directory.as_deref().map(|directory| {
            files::read(directory).map_err(|error| format!("{}: {error}", directory.display()))
        });
        (jobs, log_folders::check(&of_files.host, of_kubernetes))
    });
    let kubelet = async {
        match only {
            None => kubelet::ask(&config.kubelet, in_pod).await,
            Some(only) => kubelet::ask_pod(&config.kubelet, in_pod, only).await,
        }
    };
    let (kubelet, libraries, files) =
        tokio::join!(timeout(patience, kubelet), timeout(patience, libraries), timeout(patience, files));
    let mut late = Vec::new();
    let mut hangs = |name| {
        late.push(name);
        Check::unknown(name, format!("it has not answered within {} s", patience.as_secs()), "")
    };
    let (kubelet, answer) = kubelet.unwrap_or_else(|_| (hangs("kubelet"), Err(Reason::Slow)));
    let (jobs, log_folders) = match files {
        Ok(Ok(files)) => files,
        _ => (None, hangs("log folders")),
    };
    let (libraries, devices) = match libraries {
        Ok(Ok(libraries)) => libraries,
        _ => (hangs("devices"), Vec::new()),
    };
    let kubelet_failure = answer.as_ref().err().filter(|_| kubelet.verdict != Verdict::Off).map(|reason| {
        Failure { stage: "kubelet", reason: reason.name(), what: String::new(), remedy: reason.remedy() }
    });
    let mut nodes = None;
    if devices.iter().all(|device| device.processes.is_none()) {
        let host = config.host.clone();
        let read = tokio::task::spawn_blocking(move || open_nodes::read(&host, std::process::id()));
        match timeout(patience, read).await {
            Ok(Ok(read)) => nodes = Some(read),
            _ => {
                nodes = Some(OpenNodes::default());
                late.push("processes");
            }
        }
    }
    let grants = answer.ok().map(|answer| answer.devices);
    Gathered { kubelet, kubelet_failure, grants, jobs, log_folders, libraries, devices, nodes, late }
}
