//! What the core needs of NVML, as a trait: the real one is `library.rs`, tests have a scripted one.
//!
//! In: nothing. Out: [`Driver`]. What can go wrong: see [`Fault`].

use crate::model::signal::GpuContext;
use crate::model::{Absence, Pid};
use crate::wire::report::Content;

/// An answer of NVML.
pub(super) type Said<T> = Result<T, Fault>;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// This GPU or this driver cannot do it.
    NotSupported,
    NotPermitted,
    /// Nothing there: no sample, no such device.
    NotFound,
    /// The GPU does not answer any more.
    Lost,
    /// The library has lost its driver: it is to be opened anew.
    NoDriver(String),
    Other(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotSupported => "this driver cannot do it",
            Self::NotPermitted => "it is not permitted",
            Self::NotFound => "there is no such thing",
            Self::Lost => "a GPU does not answer any more",
            Self::NoDriver(words) | Self::Other(words) => words,
        })
    }
}

impl Fault {
    /// The same as a field's absence.
    pub(super) fn absence(&self) -> Absence {
        match self {
            Self::NotSupported => Absence::NotSupported,
            Self::NotPermitted => Absence::NotPermitted,
            Self::NotFound => Absence::NotFound,
            Self::Lost => Absence::DeviceLost,
            Self::NoDriver(_) => Absence::SourceDown,
            Self::Other(_) => Absence::Blank,
        }
    }
}

/// Where a device is found: a GPU by its index, a MIG device by its index on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    Gpu(u32),
    Mig(u32, u32),
}

/// A GPU. What the driver does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gpu {
    pub(super) uuid: String,
    pub(super) minor: Option<u32>,
    /// As NVML writes it: `00000000:3B:00.0`.
    pub(super) pci: Option<String>,
    pub(super) model: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) architecture: Option<String>,
    pub(super) cpu_affinity: Option<String>,
}

/// A MIG device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mig {
    pub(super) uuid: String,
    /// Its index on the GPU.
    pub(super) index: u32,
    /// The exact profile, with suffixes: `1g.12gb+me`.
    pub(super) profile: Option<String>,
    /// Ids of its GPU instance and of its compute instance.
    pub(super) ids: (Option<u32>, Option<u32>),
    /// First memory slice of its GPU instance; only root is told.
    pub(super) start: Option<u32>,
}

/// A process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// Bytes.
    pub(super) memory: Option<u64>,
}

/// A sample of what a process used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) pid: u32,
    /// Microseconds since 1970.
    pub(super) at_us: u64,
    /// Percent.
    pub(super) sm: u32,
}

/// One question that gives one or more fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Query {
    Temperature,
    Power,
    Utilization,
    Encoder,
    Decoder,
    SmClock,
    MemoryClock,
    EventReasons,
    Memory,
    PState,
    PcieReplays,
    /// NVML field values: DCGM's id and NVML's.
    Values(Vec<(u16, u32)>),
}

/// Takes one field's value.
pub(super) type Each<'a> = &'a mut dyn FnMut(u16, Result<Content, Absence>);

/// NVML at work. `about` is the device's name, for the notes of calls in flight.
pub(super) trait Driver {
    /// Release of the driver, and of the library.
    fn versions(&self) -> Said<(String, String)>;
    fn count(&self) -> Said<u32>;
    /// Name of a GPU: proof that it answers.
    fn uuid(&self, index: u32) -> Said<String>;
    /// All that names it; it stays as it is.
    fn gpu(&self, index: u32) -> Said<Gpu>;
    fn instances(&self, index: u32, about: &str) -> Said<Vec<Mig>>;
    fn processes(&self, place: Place, kind: GpuContext, about: &str) -> Said<Vec<Process>>;
    /// Samples after a time.
    fn used_since(&self, index: u32, since_us: u64, about: &str) -> Said<Vec<Used>>;
    fn read(&self, place: Place, query: &Query, about: &str, each: Each<'_>) -> Said<()>;
}
