//! Events of a scenario: XIDs and health incidents.
//!
//! In: YAML by way of serde. Out: plain data. Times are seconds since the simulator's start. Nothing can go wrong here.

use serde::Deserialize;

/// An XID.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xid {
    /// When it is raised or written. Unit: s; before 0: it stands in the log already when the engine starts.
    #[serde(default)]
    pub t: f64,
    /// GPU number; one that does not exist: the engine cannot place the event and drops it.
    pub gpu: u32,
    /// The XID.
    pub code: u32,
    /// Where it comes from.
    #[serde(default)]
    pub source: XidSource,
    /// How old a kernel-log line is when it is written: its own time is `t - late_s`. Unit: s.
    #[serde(default)]
    pub late_s: f64,
    /// GPU instance id of the driver.
    #[serde(default)]
    pub gi: Option<u32>,
    /// Compute instance id of the driver.
    #[serde(default)]
    pub ci: Option<u32>,
}

/// Where an XID comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XidSource {
    /// NVML's event set, drained one a second.
    #[default]
    Nvml,
    /// The kernel log: only 79, 119 and 120 are taken from there, up to 1 s late and with their own time.
    Kmsg,
}

/// A health incident, seen at the engine's next health sample after `t`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    /// When it begins. Unit: s.
    #[serde(default)]
    pub t: f64,
    /// When it is gone. Unit: s.
    #[serde(default)]
    pub until: Option<f64>,
    /// GPU number.
    pub gpu: u32,
    /// DCGM's bit of the health system.
    pub system: u32,
    /// 10: warning, 20: failure.
    pub level: u32,
    /// DCGM's error code.
    pub code: u32,
    /// The engine's text.
    #[serde(default)]
    pub text: String,
}
