//! What a scenario file says about the node: its libraries, GPUs, instances, links, switches and CPUs.
//!
//! In: YAML by way of serde. Out: plain data with every default filled in by the accessors below.
//! What can go wrong: an unknown key or a value of the wrong kind; the loader names file and line.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::event::{Incident, Xid};
use crate::fault::Fault;
use crate::plan::FieldPlan;

/// Most GPUs of a node: the vendor's arrays have 32 places.
pub const GPUS_MAX: usize = 32;
/// GPU and compute instances of one GPU: entity ids are `gpu × 7 + place`.
pub const INSTANCES_MAX: u32 = 7;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Version of this format; 1.
    pub version: u32,
    /// Version of libdcgm, `3.1.8` … `4.6.0`: decides which structs and calls are taken.
    pub library: String,
    /// Version of the engine behind it; the library's when left out. An older one answers latest values with -20.
    pub engine_version: Option<String>,
    /// The driver's version; `none`: no driver on this node.
    pub driver: String,
    /// NVML's version.
    pub nvml: String,
    /// CUDA's version as NVML says it: major × 1000 + minor × 10.
    pub cuda: i32,
    /// How long a request waits for a hung engine. Unit: s.
    pub request_timeout: f64,
    /// The part of a second at which the engine drains XID events. Unit: s.
    pub drain_phase: f64,
    /// How long detaching the driver takes; there are no samples meanwhile. Unit: s.
    pub detach_s: f64,
    /// How long attaching it takes. Unit: s.
    pub attach_s: f64,
    /// What a live read of a profiling field does: the real engine dies by SIGSEGV.
    pub live_profiling_crashes: bool,
    /// Keys that all GPUs take over when they do not say them themselves.
    pub defaults: Gpu,
    /// The GPUs, in the order of their numbers.
    pub gpus: Vec<Gpu>,
    /// NVSwitches.
    pub switches: Vec<Switch>,
    /// CPUs that the engine's system monitor knows (Grace); none: that module fails to load.
    pub cpus: Vec<Cpu>,
    /// XIDs, by time.
    pub xids: Vec<Xid>,
    /// Health incidents, by time.
    pub health: Vec<Incident>,
    /// What breaks, and when.
    pub faults: Vec<Fault>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            version: 1,
            library: "4.6.0".into(),
            engine_version: None,
            driver: "570.86.15".into(),
            nvml: "12.570.86.15".into(),
            cuda: 12_080,
            request_timeout: 60.0,
            drain_phase: 0.267,
            detach_s: 0.0,
            attach_s: 0.0,
            live_profiling_crashes: true,
            defaults: Gpu::default(),
            gpus: Vec::new(),
            switches: Vec::new(),
            cpus: Vec::new(),
            xids: Vec::new(),
            health: Vec::new(),
            faults: Vec::new(),
        }
    }
}

/// One GPU; a key left out is taken from `defaults`, then from what its number gives.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gpu {
    /// This many GPUs of the same kind.
    pub count: Option<u32>,
    /// `GPU-…`.
    pub uuid: Option<String>,
    /// Marketing name.
    pub name: Option<String>,
    /// `domain:bus:device.function`, as NVML writes it.
    pub pci: Option<String>,
    /// Minor number of `/dev/nvidia<minor>`.
    pub minor: Option<u32>,
    /// Serial number.
    pub serial: Option<String>,
    /// Architecture.
    pub architecture: Option<Architecture>,
    /// Framebuffer. Unit: MiB.
    pub memory_mib: Option<u64>,
    /// MIG instances; present (even empty): MIG mode is on.
    pub mig: Option<Vec<Mig>>,
    /// NVLink links.
    pub nvlinks: Option<NvLinks>,
    /// NUMA node; -1: none.
    pub numa: Option<i32>,
    /// CPUs near to it, first and last.
    pub cpu_affinity: Option<Vec<(u32, u32)>>,
    /// Who serves profiling fields.
    pub profiling: Option<Profiling>,
    /// What single fields say, by field id.
    pub fields: BTreeMap<u16, FieldPlan>,
    /// Processes on it.
    pub processes: Option<Vec<Process>>,
}

/// Architectures, with the numbers that DCGM and NVML use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the vendor's names")]
pub enum Architecture {
    Volta = 5,
    Turing = 6,
    Ampere = 7,
    Ada = 8,
    Hopper = 9,
    Blackwell = 10,
}

/// Who serves profiling fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profiling {
    /// The engine's core, by NVML's GPM (Hopper and newer).
    Gpm,
    /// The profiling module, which is there.
    Module,
    /// The profiling module, which is missing: -33.
    Missing,
    /// The GPU has no such counters: -36 for the metric groups, -6 for a watch.
    None,
}

/// NVLink links of one GPU.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NvLinks {
    /// Links for which the driver has counters.
    pub count: u32,
    /// State of each: `up`, `down`, `disabled`, `none`; the last holds for the rest. Left out: up.
    pub states: Vec<LinkState>,
    /// GPUs that they lead to, each with the number of links; the recordings have none.
    pub peers: Vec<(u32, u32)>,
}

/// State of a link, with DCGM's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the vendor's names")]
pub enum LinkState {
    None = 0,
    Disabled = 1,
    Down = 2,
    Up = 3,
}

impl NvLinks {
    /// State of link `index`.
    pub fn state(&self, index: u32) -> LinkState {
        if self.count <= index {
            return LinkState::None;
        }
        let said = self.states.get(index as usize).or(self.states.last());
        said.copied().unwrap_or(LinkState::Up)
    }
}

/// A GPU instance with its one compute instance.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mig {
    /// NVML's profile name, `1g.12gb`.
    pub profile: String,
    /// What DCGM's field 50 says where the driver names it otherwise.
    #[serde(default)]
    pub dcgm_profile: Option<String>,
    /// `MIG-…`.
    pub uuid: String,
    /// GPU instance id of the driver; left out: place + 1.
    #[serde(default)]
    pub gi: Option<u32>,
    /// Compute instance id of the driver.
    #[serde(default)]
    pub ci: u32,
    /// Framebuffer. Unit: MiB. Left out: the profile's GB × 985.6.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// What single fields of the instance say.
    #[serde(default)]
    pub fields: BTreeMap<u16, FieldPlan>,
}

impl Mig {
    /// Compute slices, from the profile's first number.
    pub fn slices(&self) -> u32 {
        let digits: String = self.profile.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(1)
    }

    /// Framebuffer. Unit: MiB.
    pub fn memory_mib(&self) -> u64 {
        let from_name = || {
            let gigabytes = self.profile.split('.').nth(1).and_then(|g| g.split("gb").next());
            gigabytes.and_then(|g| g.parse::<u64>().ok()).unwrap_or(10).saturating_mul(9856) / 10
        };
        self.memory_mib.unwrap_or_else(from_name)
    }

    /// NVML's number of the GPU instance profile as DCGM reports it (19: 1 slice, 14: 2, 9: 3, 5: 4, 0: 7).
    pub fn profile_id(&self) -> u32 {
        match self.slices() {
            1 => 19,
            2 => 14,
            3 => 9,
            4 => 5,
            _ => 0,
        }
    }
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Process id in the host's namespace.
    pub pid: u32,
    /// Framebuffer in use. Unit: MiB. Left out: the driver does not know.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// SM utilisation. Unit: percent.
    #[serde(default)]
    pub sm: u32,
    /// Memory utilisation. Unit: percent.
    #[serde(default)]
    pub mem: u32,
    /// What it runs.
    #[serde(default)]
    pub context: Context,
    /// GPU instance it runs on.
    #[serde(default)]
    pub gi: Option<u32>,
}

/// Kind of a process' context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the vendor's names")]
pub enum Context {
    #[default]
    Compute,
    Graphics,
    Mps,
}

/// An NVSwitch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Entity id.
    pub id: u32,
    /// Its links.
    #[serde(default)]
    pub links: NvLinks,
    /// What single fields say.
    #[serde(default)]
    pub fields: BTreeMap<u16, FieldPlan>,
}

/// A CPU of the system monitor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Entity id.
    pub id: u32,
    /// First and last core.
    pub cores: (u32, u32),
    /// Serial number (hierarchy v2).
    #[serde(default)]
    pub serial: String,
    /// What single fields say.
    #[serde(default)]
    pub fields: BTreeMap<u16, FieldPlan>,
}
