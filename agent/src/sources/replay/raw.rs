//! The keys of a replay line, as written.
//!
//! In: JSON. Out: what `line` checks and turns into signals; nothing else uses these types.
//! Unknown keys are refused, so that a misspelt one is not passed over in silence.

use serde::Deserialize;
use serde_json::Value;

use crate::model::signal::{DeviceKind, DeviceState};

#[derive(Deserialize)]
pub(super) struct Line {
    pub(super) t: f64,
    #[serde(flatten)]
    pub(super) kind: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGpu {
    pub(super) hw_id: String,
    pub(super) index: Option<u32>,
    pub(super) minor: Option<u32>,
    pub(super) pci: Option<String>,
    pub(super) model: Option<String>,
    pub(super) parent: Option<String>,
    #[serde(default)]
    pub(super) kind: RawKind,
    pub(super) serial: Option<String>,
    pub(super) architecture: Option<String>,
    pub(super) mig_profile: Option<String>,
    pub(super) mig_profile_source: Option<RawTeller>,
    pub(super) numa_node: Option<u32>,
    pub(super) cpu_affinity: Option<String>,
    pub(super) mig_index: Option<u32>,
    pub(super) gpu_instance: Option<u32>,
    pub(super) compute_instance: Option<u32>,
    pub(super) mig_start: Option<u32>,
    #[serde(default)]
    pub(super) nvlink_peers: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawKind {
    #[default]
    Gpu,
    Mig,
    Switch,
    Cpu,
    Nic,
}

impl From<RawKind> for DeviceKind {
    fn from(raw: RawKind) -> Self {
        match raw {
            RawKind::Gpu => Self::Gpu,
            RawKind::Mig => Self::Mig,
            RawKind::Switch => Self::Switch,
            RawKind::Cpu => Self::Cpu,
            RawKind::Nic => Self::Nic,
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawTeller {
    Nvml,
    Dcgm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDriver {
    pub(super) version: Option<String>,
    pub(super) flavour: Option<String>,
    pub(super) state: RawModuleState,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawModuleState {
    Loaded,
    Unloading,
    Unloaded,
    Suspending,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGpuState {
    pub(super) hw_id: String,
    pub(super) state: RawDeviceState,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawDeviceState {
    Ok,
    Lost,
    Resetting,
    Gone,
}

impl From<RawDeviceState> for DeviceState {
    fn from(raw: RawDeviceState) -> Self {
        match raw {
            RawDeviceState::Ok => Self::Ok,
            RawDeviceState::Lost => Self::Lost,
            RawDeviceState::Resetting => Self::Resetting,
            RawDeviceState::Gone => Self::Gone,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSample {
    pub(super) hw_id: String,
    pub(super) field: RawField,
    pub(super) value: Value,
    pub(super) link: Option<u32>,
    pub(super) core: Option<u32>,
    pub(super) port: Option<u32>,
    pub(super) origin: Option<RawTeller>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum RawField {
    Number(u16),
    Name(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUses {
    pub(super) pid: u32,
    pub(super) hw_id: String,
    pub(super) evidence: String,
    pub(super) role: Option<String>,
    #[serde(default)]
    pub(super) end: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProcess {
    pub(super) pid: u32,
    pub(super) start: Option<u64>,
    pub(super) comm: Option<String>,
    pub(super) cgroup: Option<String>,
    #[serde(default)]
    pub(super) missing: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExit {
    pub(super) pid: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCall {
    pub(super) pid: u32,
    pub(super) tid: Option<u32>,
    pub(super) layer: String,
    #[serde(default)]
    pub(super) op: u32,
    pub(super) drv: Option<String>,
    pub(super) dev: Option<String>,
    pub(super) edge: RawEdge,
    pub(super) rm: Option<RawRm>,
    pub(super) status: Option<String>,
    pub(super) ret: Option<i64>,
    #[serde(rename = "fn")]
    pub(super) function: Option<String>,
    pub(super) lock: Option<String>,
    pub(super) mode: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawEdge {
    Enter,
    Exit,
    Release,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRm {
    pub(super) cmd: Option<String>,
    pub(super) class: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawThread {
    pub(super) pid: u32,
    pub(super) tid: Option<u32>,
    pub(super) state: Option<char>,
    pub(super) wait: Option<String>,
    #[serde(default)]
    pub(super) launcher: bool,
    pub(super) inside: RawInside,
    pub(super) utime: Option<f64>,
    pub(super) stime: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawInside {
    Inside,
    Outside,
    Unknown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawKmsg {
    pub(super) prio: u32,
    pub(super) seq: Option<u64>,
    pub(super) text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAllocation {
    pub(super) hw_id: String,
    pub(super) pod_uid: Option<String>,
    pub(super) pod: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) container: Option<String>,
    pub(super) job: Option<String>,
    #[serde(default)]
    pub(super) shares: Vec<u32>,
    #[serde(default)]
    pub(super) end: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSource {
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) reason: Option<String>,
    pub(super) late: Option<RawLate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLate {
    pub(super) call: String,
    pub(super) hw_id: Option<String>,
    pub(super) began: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHealth {
    pub(super) hw_id: String,
    pub(super) subsystem: String,
    pub(super) level: RawLevel,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawLevel {
    Pass,
    Warn,
    Fail,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProcesses {
    pub(super) hw_id: String,
    pub(super) processes: Vec<RawGpuProcess>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGpuProcess {
    pub(super) pid: u32,
    pub(super) memory: Option<u64>,
    pub(super) sm: Option<f64>,
}
