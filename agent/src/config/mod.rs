//! Configuration, as checked: stages see only these types.
//!
//! In: flags, environment and a YAML file, read by the modules beside this one. Out: [`Config`].
//! What can go wrong: every problem is collected and printed, then the agent refuses to start (exit status 78).

pub mod file;
pub mod flags;
pub mod otel_env;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::HostRoot;

/// Everything that can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the host's file systems are.
    pub host: HostRoot,
    /// Where state that must survive a restart is kept (0700); `None` keeps none.
    pub state_dir: Option<PathBuf>,
    /// The kernel-log source.
    pub kernel_log: KernelLogConfig,
    /// The driver probes.
    pub probes: ProbesConfig,
    /// The correlation.
    pub correlate: CorrelateConfig,
    /// The exporters.
    pub export: ExportConfig,
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
