//! What DCGM measures: entities, each in a group of its kind.
//!
//! In: numbers as libdcgm writes them. Out: [`EntityGroup`] and [`Entity`]. What can go wrong: a library
//! newer than this table knows a group that we do not; it stays a number and is no entity here.

use std::fmt;

/// A kind of entity. Source: `dcgm_fields.h`, `dcgm_field_entity_group_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntityGroup {
    /// The node as a whole: fields like the driver's version.
    None = 0,
    /// A physical GPU.
    Gpu = 1,
    /// A virtual GPU of a hypervisor.
    Vgpu = 2,
    /// An NVSwitch.
    Switch = 3,
    /// A MIG GPU instance.
    GpuInstance = 4,
    /// A MIG compute instance.
    ComputeInstance = 5,
    /// An NVLink link of a GPU or switch; the id is packed, see [`crate::link`].
    Link = 6,
    /// A CPU socket (Grace). From DCGM 3.3.
    Cpu = 7,
    /// A CPU core. From DCGM 3.3.
    CpuCore = 8,
    /// A ConnectX network adapter. From DCGM 4.1.
    ConnectX = 9,
}

impl EntityGroup {
    /// All groups, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::None,
        Self::Gpu,
        Self::Vgpu,
        Self::Switch,
        Self::GpuInstance,
        Self::ComputeInstance,
        Self::Link,
        Self::Cpu,
        Self::CpuCore,
        Self::ConnectX,
    ];

    /// The group of DCGM's number, if we know it.
    pub fn from_raw(raw: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(raw).ok()?).copied()
    }

    /// DCGM's number.
    pub fn raw(self) -> u32 {
        self as u32
    }

    /// A short name, as in the field table: `gpu`, `gpu_instance`, …; `global` for the node.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "global",
            Self::Gpu => "gpu",
            Self::Vgpu => "vgpu",
            Self::Switch => "nvswitch",
            Self::GpuInstance => "gpu_instance",
            Self::ComputeInstance => "compute_instance",
            Self::Link => "link",
            Self::Cpu => "cpu",
            Self::CpuCore => "cpu_core",
            Self::ConnectX => "connectx",
        }
    }

    /// The group of a short name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}

/// One entity. Ids of GPUs are stable for the life of the engine only; ids of MIG instances until MIG is
/// reconfigured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entity {
    /// Its kind.
    pub group: EntityGroup,
    /// The engine's number of it within its kind.
    pub id: u32,
}

impl Entity {
    /// An entity of a kind.
    pub const fn new(group: EntityGroup, id: u32) -> Self {
        Self { group, id }
    }

    /// A physical GPU.
    pub const fn gpu(id: u32) -> Self {
        Self::new(EntityGroup::Gpu, id)
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.group.name(), self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_the_group() {
        for (at, group) in EntityGroup::ALL.into_iter().enumerate() {
            assert_eq!(group.raw(), u32::try_from(at).unwrap());
            assert_eq!(EntityGroup::from_raw(group.raw()), Some(group));
            assert_eq!(EntityGroup::from_name(group.name()), Some(group));
        }
        assert_eq!(EntityGroup::from_raw(10), None);
        assert_eq!(EntityGroup::from_raw(u32::MAX), None);
        assert_eq!(EntityGroup::from_name("cpus"), None);
    }
}
