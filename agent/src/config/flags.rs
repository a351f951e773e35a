//! Flags and their environment variables; both override the file.
//!
//! In: the command line (`clap`). Out: changes to [`Config`]. What can go wrong: a value that is not in its range;
//! the problem names the flag.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CgroupChoice, Config, duration, facility, kubelet, limits};

/// What can be set from the command line.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Configuration file (YAML)
    #[arg(long, value_name = "FILE", env = "WARPGAUGE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Directory for state that survives a restart; `none` keeps none [default: /var/lib/warpgauge]
    #[arg(long, value_name = "DIR", env = "WARPGAUGE_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// Directory of the control socket; `none` opens none [default: /run/warpgauge]
    #[arg(long, value_name = "DIR", env = "WARPGAUGE_RUN_DIR")]
    pub run_dir: Option<PathBuf>,
    /// The worker process with DCGM and NVML; `off` starts none [default: on]
    #[arg(long, value_enum, env = "WARPGAUGE_WORKER")]
    pub worker: Option<Switch>,
    /// DCGM's engine: auto, embedded, or host[:port], tcp://…, unix://…, vsock://… [default: auto]
    #[arg(long, value_name = "ENGINE", env = "WARPGAUGE_ENGINE")]
    pub engine: Option<String>,
    /// Driver probes; `off` is the kill switch [default: on]
    #[arg(long, value_enum, env = "WARPGAUGE_PROBES")]
    pub probes: Option<Switch>,
    /// Watch these character-device majors instead of NVIDIA's, separated by commas
    #[arg(long, value_name = "N,…", value_delimiter = ',', env = "WARPGAUGE_PROBE_MAJORS")]
    pub probe_majors: Option<Vec<String>>,
    /// Hierarchy that the cgroup id is taken from [default: auto]
    #[arg(long, value_enum, env = "WARPGAUGE_CGROUP")]
    pub cgroup: Option<CgroupFlag>,
    /// Kernel log [default: on]
    #[arg(long, value_enum, env = "WARPGAUGE_KERNEL_LOG")]
    pub kernel_log: Option<Switch>,
    /// Syslog facilities believed, separated by commas; user space can write any but `kernel` [default: kernel]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', env = "WARPGAUGE_KERNEL_LOG_FACILITIES")]
    pub kernel_log_facilities: Option<Vec<String>>,
    /// A driver call longer than this is a stall [default: 1s]
    #[arg(long, value_name = "TIME", env = "WARPGAUGE_CALL_THRESHOLD")]
    pub call_threshold: Option<String>,
    /// Socket of the kubelet's PodResources service; `off` asks nobody [default: /var/lib/kubelet/pod-resources/kubelet.sock]
    #[arg(long, value_name = "PATH", env = "DCGM_POD_RESOURCES_KUBELET_SOCKET")]
    pub pod_resources_kubelet_socket: Option<String>,
    /// Resources that are NVIDIA's beside nvidia.com/*, separated by commas; * stands for any text
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', env = "NVIDIA_RESOURCE_NAMES")]
    pub nvidia_resource_names: Option<Vec<String>>,
    /// Print findings on standard output even with an OTLP endpoint
    #[arg(long, env = "WARPGAUGE_CONSOLE")]
    pub console: bool,
    /// Directory in which a batch scheduler says which jobs have which GPUs; `none` for none [default: none]
    #[arg(long, value_name = "DIR", env = "DCGM_HPC_JOB_MAPPING_DIR")]
    pub hpc_job_mapping_dir: Option<PathBuf>,
    /// Where the host's /proc is mounted
    #[arg(long, value_name = "DIR", env = "WARPGAUGE_HOST_PROC")]
    pub host_proc: Option<PathBuf>,
    /// Where the host's /sys is mounted
    #[arg(long, value_name = "DIR", env = "WARPGAUGE_HOST_SYS")]
    pub host_sys: Option<PathBuf>,
    /// Where the host's /dev is mounted
    #[arg(long, value_name = "DIR", env = "WARPGAUGE_HOST_DEV")]
    pub host_dev: Option<PathBuf>,
    /// Where the host's /var/log is mounted: names of pods and containers come from its folders `pods` and `containers`
    #[arg(long, value_name = "DIR", env = "WARPGAUGE_HOST_VAR_LOG")]
    pub host_var_log: Option<PathBuf>,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the words themselves")]
pub enum Switch {
    On,
    Off,
}

/// `--cgroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the words themselves")]
pub enum CgroupFlag {
    Auto,
    V1,
    V2,
}

impl From<CgroupFlag> for CgroupChoice {
    fn from(flag: CgroupFlag) -> Self {
        match flag {
            CgroupFlag::Auto => Self::Auto,
            CgroupFlag::V1 => Self::V1,
            CgroupFlag::V2 => Self::V2,
        }
    }
}

impl Flags {
    /// Puts what was given over `config`.
    pub fn apply(self, config: &mut Config, problems: &mut Vec<String>) {
        if let Some(dir) = self.state_dir {
            config.state_dir = (dir.as_os_str() != "none").then_some(dir);
        }
        if let Some(dir) = self.run_dir {
            config.run_dir = (dir.as_os_str() != "none").then_some(dir);
        }
        if let Some(worker) = self.worker {
            config.worker.enabled = worker == Switch::On;
        }
        if let Some(text) = self.engine {
            match super::worker::check_engine(&text) {
                Ok(()) => config.worker.engine = text,
                Err(e) => problems.push(format!("--engine: {e}")),
            }
        }
        if let Some(probes) = self.probes {
            config.probes.enabled = probes == Switch::On;
        }
        if let Some(majors) = self.probe_majors {
            let mut problem = |problem| problems.push(format!("--probe-majors: {problem}"));
            super::check_number_of_majors(majors.len()).unwrap_or_else(&mut problem);
            let parse = |text: String| super::parse_major(&text).map_err(&mut problem).ok();
            config.probes.majors = Some(majors.into_iter().filter_map(parse).collect());
        }
        if let Some(cgroup) = self.cgroup {
            config.probes.cgroup = cgroup.into();
        }
        if let Some(kernel_log) = self.kernel_log {
            config.kernel_log.enabled = kernel_log == Switch::On;
        }
        if let Some(names) = self.kernel_log_facilities {
            match names.iter().map(|name| facility::parse(name)).collect() {
                Ok(facilities) => config.kernel_log.facilities = facilities,
                Err(e) => problems.push(format!("--kernel-log-facilities: {e}")),
            }
        }
        if let Some(text) = self.call_threshold {
            match duration::parse_within(&text, limits::THRESHOLD.0, limits::THRESHOLD.1) {
                Ok(threshold) => config.correlate.call_threshold = threshold,
                Err(e) => problems.push(format!("--call-threshold: {e}")),
            }
        }
        if let Some(text) = self.pod_resources_kubelet_socket {
            match kubelet::check_socket(&text) {
                Ok(socket) => config.kubelet.socket = socket,
                Err(e) => problems.push(format!("--pod-resources-kubelet-socket: {e}")),
            }
        }
        if let Some(names) = self.nvidia_resource_names {
            match kubelet::check_names(names) {
                Ok(names) => config.kubelet.resource_names = names,
                Err(e) => problems.push(format!("--nvidia-resource-names: {e}")),
            }
        }
        config.export.console |= self.console;
        if let Some(dir) = self.hpc_job_mapping_dir {
            config.hpc_jobs.directory = (dir.as_os_str() != "none").then_some(dir);
        }
        config.host.proc = self.host_proc.unwrap_or_else(|| config.host.proc.clone());
        config.host.sys = self.host_sys.unwrap_or_else(|| config.host.sys.clone());
        config.host.dev = self.host_dev.unwrap_or_else(|| config.host.dev.clone());
        config.host.var_log = self.host_var_log.unwrap_or_else(|| config.host.var_log.clone());
    }
}
