//! Which fields are watched on which entities.
//!
//! In: the configured groups and the [`Inventory`]. Out: [`Want`]s for the watcher, and the fields that no device
//! here can have. What can go wrong: a name that nobody knows; it is reported and the rest is watched.
//!
//! A field is read at its own level and nowhere below: DCGM would repeat the parent's value there. Where a GPU is
//! parted into instances, what they measure themselves is not read from the GPU again (but its name, uuid and XIDs).
//! Compute instances of one GPU instance share its memory: memory is read from the lowest of them only.

use std::time::Duration;

use dcgm_ffi::field_table::{self, Needs};

use super::engine::{Entity, EntityGroup};
use super::inventory::Inventory;
use crate::wire::order;

/// XIDs; read by [`super::xid`].
pub(super) const XID: u16 = 230;
/// The driver is about to be taken from a GPU, or is back.
pub(super) const BIND: u16 = 6;
/// Fields with a sample per event: they neither age nor miss. 856 and 857 are the SXIDs of a switch.
pub(super) const EVENTS: [u16; 4] = [BIND, XID, 856, 857];
/// Read from an instance and from the parted GPU: they name the device, and XIDs come to either.
const ON_BOTH: [u16; 3] = [50, 54, XID];
/// Memory of a GPU instance, which its compute instances share: BAR1 and framebuffer.
const SHARED: [u16; 8] = [90, 92, 93, 250, 251, 252, 253, 254];

/// A field as it is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) id: u16,
    pub(super) level: EntityGroup,
    pub(super) profiling: bool,
}

/// A configured group, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) every: Duration,
    pub(super) fields: Vec<Watched>,
}

/// Fields to watch on entities, all of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) entities: Vec<Entity>,
    pub(super) fields: Vec<u16>,
    pub(super) every: Duration,
    /// The GPU, where the fields are profiling fields of that one.
    pub(super) profiling: Option<u32>,
}

/// A configured field that cannot be watched anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoField {
    pub(super) group: String,
    pub(super) name: String,
}

/// Looks the configured fields up; each counts once per group. `level_of` asks the library about ids that the table
/// does not have.
pub(super) fn resolve(
    groups: &[order::Group],
    level_of: impl Fn(u16) -> Option<EntityGroup>,
) -> (Vec<Group>, Vec<NoField>) {
    let mut resolved = Vec::new();
    let mut unknown = Vec::new();
    for group in groups {
        let mut fields: Vec<Watched> = Vec::new();
        for name in &group.fields {
            let field = match field_table::by_name(name) {
                Some(row) => Some(Watched {
                    id: row.id,
                    level: row.level,
                    profiling: row.needs == Some(Needs::Profiling) || is_profiling(row.id),
                }),
                None => name.trim().parse().ok().and_then(|id: u16| {
                    Some(Watched { id, level: level_of(id)?, profiling: is_profiling(id) })
                }),
            };
            match field {
                Some(field) if fields.iter().all(|f| f.id != field.id) => fields.push(field),
                Some(_) => {}
                None => unknown.push(NoField { group: group.name.clone(), name: name.clone() }),
            }
        }
        // The engine honours an interval of 0 silently, and spins.
        let every = Duration::from_millis(group.interval_ms.max(10));
        resolved.push(Group { name: group.name.clone(), every, fields });
    }
    (resolved, unknown)
}

fn is_profiling(id: u16) -> bool {
    matches!(id, 1001..=1096 | 1532 | 1533)
}

/// What is to be watched. XIDs and the bind event are not in it: they are read in their own way.
pub(super) fn wants(groups: &[Group], found: &Inventory) -> Vec<Want> {
    let mut wants = Vec::new();
    for (place, group) in groups.iter().enumerate() {
        // An engine keeps one watch of a field and entity for a connection; a second one would replace it.
        let is_mine = |field: &&Watched| fastest(groups, field.id) == Some(place);
        let fields = group.fields.iter().filter(|f| f.id != XID && f.id != BIND).filter(is_mine);
        let (profiling, plain): (Vec<Watched>, Vec<Watched>) = fields.partition(|f| f.profiling);
        by_kind(&plain, found, None, group.every, &mut wants);
        for &(gpu, _) in &found.gpus {
            by_kind(&profiling, found, Some(gpu), group.every, &mut wants);
        }
    }
    wants
}

/// The group that samples a field most often, the first of equals: it serves the others.
fn fastest(groups: &[Group], field: u16) -> Option<usize> {
    let has = groups.iter().enumerate().filter(|(_, g)| g.fields.iter().any(|f| f.id == field));
    has.min_by_key(|(_, g)| g.every).map(|(place, _)| place)
}

/// Fields with no entity of their level here, for the devices they could have been on: (field, entities).
pub(super) fn homeless(groups: &[Group], found: &Inventory) -> Vec<u16> {
    let mut fields: Vec<u16> = groups
        .iter()
        .flat_map(|group| &group.fields)
        .filter(|f| f.id != BIND && entities(**f, found, None).is_empty())
        .map(|f| f.id)
        .collect();
    fields.sort_unstable();
    fields.dedup();
    fields
}

/// Adds wants for one set of fields; entities with the same fields share one.
fn by_kind(fields: &[Watched], found: &Inventory, only: Option<u32>, every: Duration, wants: &mut Vec<Want>) {
    let from = wants.len();
    for field in fields {
        for list in by_group(entities(*field, found, only)) {
            let mine = wants.get_mut(from..).unwrap_or_default();
            match mine.iter_mut().find(|want| want.entities == list) {
                Some(want) => want.fields.push(field.id),
                None => wants.push(Want { entities: list, fields: vec![field.id], every, profiling: only }),
            }
        }
    }
}

fn by_group(mut entities: Vec<Entity>) -> Vec<Vec<Entity>> {
    entities.sort_unstable();
    entities.chunk_by(|a, b| a.group == b.group).map(<[Entity]>::to_vec).collect()
}

/// The entities a field is read from; with `only`, those of one GPU.
pub(super) fn entities(field: Watched, found: &Inventory, only: Option<u32>) -> Vec<Entity> {
    let on = |gpu: Option<u32>| only.is_none() || gpu == only;
    // A GPU that never had a name has no target: its values could not be reported.
    let gpus = || found.gpus.iter().map(|(gpu, _)| *gpu).filter(|gpu| on(Some(*gpu)));
    let instances = |group: EntityGroup| {
        found.instances.iter().filter(move |i| i.entity.group == group && on(Some(i.gpu)))
    };
    let whole =
        || gpus().filter(|gpu| ON_BOTH.contains(&field.id) || !found.is_parted(*gpu)).map(Entity::gpu);
    let listed: Vec<Entity> = match field.level {
        EntityGroup::Gpu | EntityGroup::None => gpus().map(Entity::gpu).collect(),
        EntityGroup::GpuInstance => {
            whole().chain(instances(EntityGroup::GpuInstance).map(|i| i.entity)).collect()
        }
        EntityGroup::ComputeInstance => {
            let own = instances(EntityGroup::ComputeInstance);
            whole().chain(own.filter(|i| i.first || !SHARED.contains(&field.id)).map(|i| i.entity)).collect()
        }
        EntityGroup::Link => found.links.iter().filter(|(_, gpu)| on(*gpu)).map(|(link, _)| *link).collect(),
        EntityGroup::Switch => found.switches.clone(),
        EntityGroup::Cpu => found.cpus.clone(),
        EntityGroup::CpuCore => found.cores.clone(),
        EntityGroup::Vgpu | EntityGroup::ConnectX => Vec::new(),
    };
    listed.into_iter().filter(|entity| found.targets.contains_key(entity)).collect()
}
