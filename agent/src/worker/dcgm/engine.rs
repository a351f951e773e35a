//! What the core needs of a DCGM engine, as a trait: the real one is `library.rs`, tests have a scripted one.
//!
//! In: nothing. Out: [`Dcgm`] and [`Caller`], which notes each call. What can go wrong: every call may be refused
//! with a code; two of them ([`is_gone`]) mean that the engine is to be connected to anew.

use std::time::Duration;

pub(super) use dcgm_ffi::{
    Absent, Entity, EntityGroup, FieldValue, ModuleState, ModuleStatus, ReturnCode, Value,
};

use crate::model::sample::Origin;
use crate::worker::link::Link;

/// An answer of the engine.
pub(super) type Answer<T> = Result<T, ReturnCode>;

/// What `dcgmGetDeviceAttributes` tells; what it does not know is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) uuid: Option<String>,
    pub(super) pci: Option<String>,
    pub(super) name: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) driver: Option<String>,
}

/// Whether a GPU answers. Source: `DcgmEntityStatus_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GpuState {
    Ok,
    Lost,
    /// The engine gave the driver back (4.5 and newer).
    Detached,
}

/// A GPU instance or compute instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MigEntity {
    pub(super) entity: Entity,
    pub(super) parent: Entity,
    /// NVML's ids and number of the profile, and its slices: entity ids are given anew when a GPU is parted anew.
    pub(super) ids: (u32, Option<u32>),
    pub(super) profile: u32,
    pub(super) slices: u32,
}

/// What lies next to a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Topology {
    /// CPUs in the kernel's list format.
    pub(super) affinity: Option<String>,
    /// GPUs reached over NVLink, and over how many links.
    pub(super) peers: Vec<(u32, u32)>,
}

/// What a health check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incident {
    /// Bits of `dcgmHealthSystems_t`.
    pub(super) systems: u32,
    /// 0, 10 or 20.
    pub(super) level: u32,
    pub(super) entity: Entity,
}

/// Profiling fields that the hardware measures together. Fields of one `major` and different `minor` exclude each
/// other on GPUs before Hopper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricGroup {
    pub(super) major: u16,
    pub(super) minor: u16,
    pub(super) fields: Vec<u16>,
}

/// Takes one value; must not call the engine.
pub(super) type Each<'a> = &'a mut dyn FnMut(Entity, &FieldValue<'_>);

/// A connected engine. No method asks for live values: the engine dies of that with profiling fields.
pub(super) trait Dcgm {
    /// A group of entities.
    type Group: Copy + std::fmt::Debug;
    /// A group of fields.
    type Fields: Copy + std::fmt::Debug;

    /// It says of itself that it is well.
    fn is_healthy(&self) -> Answer<bool>;
    /// Values that found no room in a reading, since the connection was made.
    fn dropped_values(&self) -> u64;
    /// Release of the engine: proof that it answers.
    fn version(&self) -> Answer<String>;
    /// Entities that one group can hold.
    fn group_limit(&self) -> usize;
    /// The library knows the field.
    fn knows(&self, field: u16) -> bool;
    fn gpus(&self) -> Answer<Vec<u32>>;
    fn gpu_state(&self, gpu: u32) -> Answer<GpuState>;
    fn attributes(&self, gpu: u32) -> Answer<Attributes>;
    fn architecture(&self, gpu: u32) -> Option<String>;
    fn switches(&self) -> Answer<Vec<u32>>;
    fn mig(&self) -> Answer<Vec<MigEntity>>;
    /// Links that are there (disabled and down ones too), as owner, number and entity; none where the version's
    /// entity ids cannot name them.
    fn links(&self) -> Answer<Vec<(Entity, u32, Entity)>>;
    /// CPUs with their cores.
    fn cpus(&self) -> Answer<Vec<(u32, Vec<u32>)>>;
    fn topology(&self, gpu: u32) -> Answer<Topology>;

    fn group(&self, name: &str, entities: &[Entity]) -> Answer<Self::Group>;
    fn destroy_group(&self, group: Self::Group) -> Answer<()>;
    fn fields(&self, name: &str, fields: &[u16]) -> Answer<Self::Fields>;
    fn destroy_fields(&self, fields: Self::Fields) -> Answer<()>;
    fn watch(&self, g: Self::Group, f: Self::Fields, every: Duration, keep: Duration) -> Answer<()>;
    fn unwatch(&self, group: Self::Group, fields: Self::Fields) -> Answer<()>;
    fn latest(&self, group: Self::Group, fields: Self::Fields, each: Each<'_>) -> Answer<()>;
    /// Values since a time in µs; answers with the time to go on from.
    fn since(&self, group: Self::Group, fields: Self::Fields, since_us: i64, each: Each<'_>) -> Answer<i64>;

    fn set_health(&self, group: Self::Group, every: Duration) -> Answer<()>;
    fn check_health(&self, group: Self::Group) -> Answer<Vec<Incident>>;
    fn metric_groups(&self, gpu: u32) -> Answer<Vec<MetricGroup>>;
    /// The engine's modules and their states.
    fn modules(&self) -> Answer<Vec<ModuleStatus>>;
    fn pause(&self) -> Answer<()>;
    fn resume(&self) -> Answer<()>;
}

/// The connection is gone, or the engine did not answer for a minute: only a new connection helps.
pub(super) fn is_gone(code: ReturnCode) -> bool {
    code == ReturnCode::CONNECTION_NOT_VALID || code == ReturnCode::TIMEOUT
}

/// The first reading tells that the engine is older than the library can talk to.
pub(super) fn is_too_old(code: ReturnCode) -> bool {
    [ReturnCode::FUNCTION_NOT_FOUND, ReturnCode::VER_MISMATCH, ReturnCode::GENERIC_ERROR].contains(&code)
}

/// An engine whose calls are noted while they are in flight.
#[derive(Debug)]
pub(super) struct Caller<'a, D> {
    dcgm: &'a D,
    pub(super) link: &'a Link,
}

impl<D> Clone for Caller<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Caller<'_, D> {}

impl<'a, D: Dcgm> Caller<'a, D> {
    pub(super) fn new(dcgm: &'a D, link: &'a Link) -> Self {
        Self { dcgm, link }
    }

    /// Makes a call about one device (`hw_id`) or about all (empty).
    pub(super) fn call<T>(
        &self,
        name: &'static str,
        hw_id: &str,
        f: impl FnOnce(&D) -> Answer<T>,
    ) -> Answer<T> {
        let calling = self.link.begin(Origin::Dcgm, name, hw_id);
        let answer = f(self.dcgm);
        calling.end(answer.is_ok());
        answer
    }

    /// What needs no call into the engine.
    pub(super) fn local(&self) -> &'a D {
        self.dcgm
    }
}
