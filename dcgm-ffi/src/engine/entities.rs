//! Entities of a kind, and MIG instances with what they are parts of.
//!
//! In: an engine. Out: entities. What can go wrong: see [`Engine`]; the ids of MIG instances end when MIG is
//! reconfigured. Source: `dcgm_agent.h`, `dcgm_structs.h`.

use std::ffi::c_int;

use super::{Engine, check};
use crate::abi::{self, mig::MigHierarchy, mig::MigNode};
use crate::entity::{Entity, EntityGroup};
use crate::error::Error;
use crate::return_code::ReturnCode;

/// First and last size of the list of entities; it grows when the engine says that it is too small.
const FIRST: usize = 64;
const LAST: usize = 1 << 16;

/// A MIG instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigEntity {
    /// The instance: a [`EntityGroup::GpuInstance`] or a [`EntityGroup::ComputeInstance`].
    pub entity: Entity,
    /// The GPU of a GPU instance, the GPU instance of a compute instance.
    pub parent: Entity,
    /// `GPU-…` of the physical GPU.
    pub gpu_uuid: String,
    /// NVML's index of the physical GPU.
    pub nvml_gpu_index: u32,
    /// NVML's id of the GPU instance on that GPU.
    pub gpu_instance_id: u32,
    /// NVML's id of the compute instance in its GPU instance; None for a GPU instance.
    pub compute_instance_id: Option<u32>,
    /// NVML's number of the profile. The name is field 50 of the instance.
    pub profile_id: u32,
    /// Slices of the profile.
    pub slices: u32,
}

impl Engine<'_> {
    /// All entities of a kind, unsupported ones too. GPUs, switches, MIG instances and network adapters can
    /// be listed, CPUs and cores where the engine's module for them loads; links cannot, see
    /// [`Engine::links`].
    ///
    /// # Errors
    /// [`Error::Call`]: `NOT_SUPPORTED` for a kind that cannot be listed, `MODULE_NOT_LOADED` for CPUs
    /// elsewhere than on Grace.
    pub fn entities(&self, group: EntityGroup) -> Result<Vec<Entity>, Error> {
        let list = self.library.symbols.entities()?;
        let mut size = FIRST;
        loop {
            let mut ids = vec![0u32; size];
            let mut count = c_int::try_from(size).unwrap_or(c_int::MAX);
            // SAFETY: the array has the places that the count says.
            let code = unsafe { list(self.handle, group.raw(), ids.as_mut_ptr(), &raw mut count, 0) };
            let count = usize::try_from(count).unwrap_or(0);
            if ReturnCode(code) == ReturnCode::INSUFFICIENT_SIZE && size < LAST {
                size = count.max(2 * size).min(LAST);
                continue;
            }
            check("dcgmGetEntityGroupEntities", code)?;
            ids.truncate(count);
            return Ok(ids.into_iter().map(|id| Entity::new(group, id)).collect());
        }
    }

    /// All MIG instances with their parents; none without MIG.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn mig_hierarchy(&self) -> Result<Vec<MigEntity>, Error> {
        let ask = self.library.symbols.mig_hierarchy()?;
        let mut raw = abi::stamped::<MigHierarchy>();
        // SAFETY: the structure is ours for the time of the call and carries its version.
        check("dcgmGetGpuInstanceHierarchy", unsafe { ask(self.handle, &raw mut *raw) })?;
        let count = usize::try_from(raw.count).unwrap_or(usize::MAX);
        Ok(raw.entities.iter().take(count).filter_map(of_raw).collect())
    }
}

/// None: a kind of entity that we do not know.
fn of_raw(raw: &MigNode) -> Option<MigEntity> {
    let entity = |pair: &abi::group::Pair| Some(Entity::new(EntityGroup::from_raw(pair.group)?, pair.id));
    let info = &raw.info;
    Some(MigEntity {
        entity: entity(&raw.entity)?,
        parent: entity(&raw.parent)?,
        gpu_uuid: abi::text(&info.gpu_uuid),
        nvml_gpu_index: info.nvml_gpu_index,
        gpu_instance_id: info.nvml_instance_id,
        compute_instance_id: Some(info.nvml_compute_instance_id).filter(|id| *id != u32::MAX),
        profile_id: info.nvml_profile_id,
        slices: info.nvml_profile_slices,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::zeroed;

    #[test]
    fn an_instance_knows_its_parent() {
        let mut raw = zeroed::<MigNode>();
        (raw.entity.group, raw.entity.id) = (4, 7);
        (raw.parent.group, raw.parent.id) = (1, 1);
        raw.info.nvml_compute_instance_id = u32::MAX;
        let mig = of_raw(&raw).unwrap();
        assert_eq!((mig.entity, mig.parent), (Entity::new(EntityGroup::GpuInstance, 7), Entity::gpu(1)));
        assert_eq!(mig.compute_instance_id, None);
        raw.info.nvml_compute_instance_id = 0;
        assert_eq!(of_raw(&raw).unwrap().compute_instance_id, Some(0));
        raw.parent.group = 99;
        assert_eq!(of_raw(&raw), None);
    }
}
