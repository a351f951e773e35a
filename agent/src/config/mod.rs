//! Configuration, as checked: stages see only these types.
//!
//! In: flags, environment and a YAML file, read by the modules beside this one. Out: [`Config`].
//! What can go wrong: every problem is collected and printed, then the agent refuses to start (exit status 78).

pub mod bytes;
mod document;
pub mod duration;
pub mod facility;
pub mod file;
pub mod flags;
pub mod kubelet;
pub mod otel_env;
pub mod worker;
mod worker_file;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::HostRoot;
pub use kubelet::KubeletConfig;
pub use worker::{WatchGroup, WorkerConfig};

/// Everything that can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the host's file systems are.
    pub host: HostRoot,
    /// Where state that must survive a restart is kept (0700); `None` keeps none.
    pub state_dir: Option<PathBuf>,
    /// Where the control socket is (0700); `None`: no control socket.
    pub run_dir: Option<PathBuf>,
    /// The kernel-log source.
    pub kernel_log: KernelLogConfig,
    /// The driver probes.
    pub probes: ProbesConfig,
    /// DCGM and NVML, in a process of their own.
    pub worker: WorkerConfig,
    /// The correlation.
    pub correlate: CorrelateConfig,
    /// The exporters.
    pub export: ExportConfig,
    /// Values of the host about its devices.
    pub host_values: HostValuesConfig,
    /// What is asked of the kubelet.
    pub kubelet: KubeletConfig,
    /// The job mapping directory.
    pub hpc_jobs: HpcJobsConfig,
}

/// The kernel-log source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLogConfig {
    /// Read it at all.
    pub enabled: bool,
    /// Syslog facilities believed: 0 is the kernel, 1 is user space, which can write anything.
    pub facilities: Vec<u8>,
}

/// The driver probes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbesConfig {
    /// The kill switch: `false` loads nothing into the kernel.
    pub enabled: bool,
    /// Character-device majors to watch instead of NVIDIA's, which are looked up by name in /proc/devices.
    pub majors: Option<Vec<u32>>,
    /// Path prefix whose opens are watched.
    pub open_prefix: String,
    /// Which hierarchy the cgroup id comes from.
    pub cgroup: CgroupChoice,
    /// How often calls in flight are looked at.
    pub scan_interval: Duration,
    /// How often finished calls are read from the kernel.
    pub read_interval: Duration,
    /// What all kernel programs together may use before probes are given up. Unit: CPUs. `None`: by the machine's size.
    pub budget: Option<f64>,
}

/// Which cgroup hierarchy carries the containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupChoice {
    /// Decided by what is mounted.
    Auto,
    /// The pids controller of a v1 or hybrid host.
    V1,
    /// The unified hierarchy.
    V2,
}

/// Values of the host about its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostValuesConfig {
    /// Read them at all.
    pub enabled: bool,
    /// How often. Range: 1 s to 1 h.
    pub interval: Duration,
}

/// The directory in which a batch scheduler says which jobs have which GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HpcJobsConfig {
    /// Where it is; `None`: there is none.
    pub directory: Option<PathBuf>,
    /// How often it is read. Range: 1 s to 1 h.
    pub interval: Duration,
}

/// The correlation.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrelateConfig {
    /// A call longer than this is a stall.
    pub call_threshold: Duration,
    /// Other thresholds by operation name, for calls that wait by design.
    pub call_thresholds: BTreeMap<String, Duration>,
}

/// The exporters.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportConfig {
    /// Push to a collector; `None` where no endpoint is set: then the console is the exporter.
    pub otlp: Option<OtlpConfig>,
    /// Print findings on standard output even though a collector is set.
    pub console: bool,
    /// How often metrics leave.
    pub metric_interval: Duration,
    /// `service.name`.
    pub service_name: String,
    /// `OTEL_RESOURCE_ATTRIBUTES`, in its order.
    pub resource_attributes: Vec<(String, String)>,
    /// Send the agent's own log lines as OTLP records too.
    pub own_logs: bool,
}

/// The OTLP exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpConfig {
    /// `http://host:port` or `https://host:port`.
    pub endpoint: String,
    /// `OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: Vec<(String, String)>,
    /// `OTEL_EXPORTER_OTLP_TIMEOUT`: one export call.
    pub timeout: Duration,
    /// `OTEL_EXPORTER_OTLP_COMPRESSION`: gzip.
    pub gzip: bool,
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE`: trusted roots, PEM, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE` and `_KEY`: both or neither, PEM.
    pub client_identity: Option<(PathBuf, PathBuf)>,
    /// Most log records kept while the collector is away; the oldest is dropped, counted.
    pub queue_records: usize,
}

impl OtlpConfig {
    /// Default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
    pub const TIMEOUT: Duration = Duration::from_secs(10);
    /// Log records kept while the collector is away.
    pub const QUEUE_RECORDS: usize = 16_384;

    /// The specification's defaults, for an endpoint.
    pub fn to(endpoint: String) -> Self {
        Self {
            endpoint,
            headers: Vec::new(),
            timeout: Self::TIMEOUT,
            gzip: false,
            ca_file: None,
            client_identity: None,
            queue_records: Self::QUEUE_RECORDS,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: HostRoot::default(),
            state_dir: Some("/var/lib/warpgauge".into()),
            run_dir: Some("/run/warpgauge".into()),
            kernel_log: KernelLogConfig { enabled: true, facilities: vec![0] },
            probes: ProbesConfig {
                enabled: true,
                majors: None,
                open_prefix: "/dev/nvidia".to_owned(),
                cgroup: CgroupChoice::Auto,
                scan_interval: Duration::from_millis(250),
                read_interval: Duration::from_secs(1),
                budget: None,
            },
            worker: WorkerConfig::default(),
            correlate: CorrelateConfig {
                call_threshold: Duration::from_secs(1),
                call_thresholds: BTreeMap::new(),
            },
            export: ExportConfig {
                otlp: None,
                console: false,
                metric_interval: Duration::from_secs(10), // the specification's 60 s hide a lost minute
                service_name: "warpgauge".to_owned(),
                resource_attributes: Vec::new(),
                own_logs: true,
            },
            host_values: HostValuesConfig { enabled: true, interval: Duration::from_secs(10) },
            kubelet: KubeletConfig::default(),
            hpc_jobs: HpcJobsConfig { directory: None, interval: Duration::from_secs(5) },
        }
    }
}

/// Ranges of durations, least and most.
mod limits {
    use std::time::Duration;

    /// Below 250 ms a call is not followed, above an hour it is no threshold.
    pub(super) const THRESHOLD: (Duration, Duration) =
        (Duration::from_millis(250), Duration::from_secs(3_600));
    pub(super) const SCAN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
    pub(super) const READ: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
    pub(super) const HOST_VALUES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
    /// The kubelet serves everybody on the node.
    pub(super) const KUBELET: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
    pub(super) const KUBELET_CALL: (Duration, Duration) =
        (Duration::from_millis(100), Duration::from_secs(60));
    pub(super) const HPC_JOBS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
    /// The driver answers some questions no faster than ten times a second.
    pub(super) const NVML: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
    pub(super) const GROUP: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));
    /// 0 is never.
    pub(super) const HEALTH: (Duration, Duration) = (Duration::ZERO, Duration::from_secs(3_600));
    pub(super) const METRIC_INTERVAL: (Duration, Duration) =
        (Duration::from_millis(100), Duration::from_secs(3_600));
}

/// All of the configuration: defaults, then the file, then the environment, then flags.
///
/// # Errors
/// Every problem found, as texts for people.
pub fn load(flags: flags::Flags, env: impl Fn(&str) -> Option<String>) -> Result<Config, Vec<String>> {
    let (mut config, mut problems) = (Config::default(), Vec::new());
    if let Some(path) = &flags.config {
        file::apply(path, &mut config, &mut problems);
    }
    let (export, otel_problems) = otel_env::read(env, config.export);
    config.export = export;
    problems.extend(otel_problems);
    flags.apply(&mut config, &mut problems);
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// The least is what nothing but the end of processes costs.
fn check_budget(cpus: f64) -> Result<f64, String> {
    if (0.001..=64.0).contains(&cpus) {
        Ok(cpus)
    } else {
        Err(format!("{cpus}: must be from 0.001 to 64 CPUs"))
    }
}

fn check_number_of_majors(number: usize) -> Result<(), String> {
    const MOST: usize = 8; // slots of the kernel program's table
    match number {
        0 => Err("must name at least one major".to_owned()),
        1..=MOST => Ok(()),
        _ => Err(format!("{number} majors: must be at most {MOST}")),
    }
}

/// The kernel's majors have 12 bits; 0 is no device.
fn parse_major(text: &str) -> Result<u32, String> {
    let major = text.trim().parse().ok().filter(|major| (1..4096).contains(major));
    major.ok_or_else(|| format!("{text}: must be from 1 to 4095"))
}

fn check_open_prefix(prefix: &str) -> Result<(), String> {
    let right = prefix.starts_with("/dev/") && (6..=31).contains(&prefix.len()) && !prefix.contains('\0');
    right.then_some(()).ok_or_else(|| {
        format!("{}: must begin with /dev/ and have at most 31 bytes, none of them 0", prefix.escape_debug())
    })
}
