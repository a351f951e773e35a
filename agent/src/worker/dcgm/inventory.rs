//! What there is to measure: GPUs, MIG instances, links, switches, CPUs, and under which device each is reported.
//!
//! In: an engine's lists. Out: [`Inventory`] of wire devices and of [`Target`]s. What can go wrong: a GPU that cannot
//! be named any more (its uuid is `<<<NULL>>>` once it is lost): the name that this GPU id or PCI address had before
//! holds. One that never had a name is left out until it has one. A refused list says nothing: what was listed before
//! holds, and only a list that is given can remove something.
//!
//! A MIG device is one compute instance, as for NVML, and is named by its `MIG-…` uuid (field 54). Values that belong
//! to the whole GPU instance go to its lowest compute instance only, so that sums over devices count them once.
//! An NVSwitch is named `nvswitch-PCI-ADDRESS` (fields 866–869: the id in the engine may change), or by the engine's
//! number where it does not tell the address; a CPU `cpu-N` by its socket.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::engine::{Answer, Attributes, Caller, Dcgm, Entity, EntityGroup, GpuState, MigEntity, is_gone};
use crate::model::Part;
use crate::model::sample::Origin;
use crate::wire::report::{Device, Inventory as Report};
use crate::worker::keys::Keys;
use crate::worker::pci_text::kernel_form;

/// `Device.kind` on the wire.
const GPU: u32 = 1;
const MIG: u32 = 2;
const SWITCH: u32 = 3;
const CPU: u32 = 4;

/// Where the values of an entity are reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) key: u32,
    pub(super) part: Part,
    /// The device, for the notes of calls in flight.
    pub(super) hw_id: Arc<str>,
    /// The GPU it is on; `None` for switches and CPUs.
    pub(super) gpu: Option<u32>,
}

/// A GPU instance or compute instance that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) entity: Entity,
    pub(super) gpu: u32,
    /// For a compute instance: the lowest one of its GPU instance, which also stands for the whole of it.
    pub(super) first: bool,
}

/// Everything that is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Inventory {
    pub(super) targets: BTreeMap<Entity, Target>,
    pub(super) gpus: Vec<(u32, GpuState)>,
    pub(super) instances: Vec<Instance>,
    /// Links with the GPU they are on.
    pub(super) links: Vec<(Entity, Option<u32>)>,
    pub(super) switches: Vec<Entity>,
    pub(super) cpus: Vec<Entity>,
    pub(super) cores: Vec<Entity>,
    pub(super) devices: Vec<Device>,
    pub(super) driver: Option<String>,
}

/// Watched identity fields as text: 52 (index) and 55 (minor) of GPUs, 50 (profile) and 54 (uuid) of instances,
/// 866–869 (PCI address) of switches.
pub(super) type Texts = HashMap<(Entity, u16), String>;

/// Names that GPUs had, for when they cannot say them any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// By the engine's id; of one engine only.
    by_id: HashMap<u32, Attributes>,
    /// By PCI address: outlives the engine.
    by_pci: HashMap<String, Attributes>,
}

impl Names {
    /// The engine is another one: its ids mean something else.
    pub(super) fn forget_ids(&mut self) {
        self.by_id.clear();
    }
}

/// Lists that tell, cheaply, whether anything changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) gpus: Vec<(u32, GpuState)>,
    pub(super) mig: Vec<MigEntity>,
    pub(super) switches: Vec<u32>,
}

/// Reads the outline.
///
/// # Errors
/// The connection is gone.
pub(super) fn outline<D: Dcgm>(caller: &Caller<'_, D>, was: &Outline) -> Answer<Outline> {
    let mut gpus = Vec::new();
    let known = || was.gpus.iter().map(|(gpu, _)| *gpu).collect();
    for gpu in unless_gone_or(caller.call("dcgmGetAllDevices", "", D::gpus), known)? {
        let state = caller.call("dcgmGetGpuStatus", "", |d| d.gpu_state(gpu));
        let before = || was.gpus.iter().find(|(id, _)| *id == gpu).map_or(GpuState::Ok, |(_, state)| *state);
        gpus.push((gpu, unless_gone_or(state, before)?));
    }
    let mig = caller.call("dcgmGetGpuInstanceHierarchy", "", D::mig);
    let mig = unless_gone_or(mig, || was.mig.clone())?;
    let switches = caller.call("dcgmGetEntityGroupEntities", "", D::switches);
    let switches = unless_gone_or(switches, || was.switches.clone())?;
    Ok(Outline { gpus, mig, switches })
}

/// Reads all devices.
///
/// # Errors
/// The connection is gone.
pub(super) fn enumerate<D: Dcgm>(
    caller: &Caller<'_, D>,
    outline: &Outline,
    texts: &Texts,
    names: &mut Names,
    keys: &mut Keys,
    was: &Inventory,
) -> Answer<Inventory> {
    let mut found = Inventory { gpus: outline.gpus.clone(), ..Inventory::default() };
    for &(gpu, state) in &outline.gpus {
        add_gpu(caller, gpu, state, names, keys, &mut found)?;
    }
    name_peers(names, &mut found);
    for device in &mut found.devices {
        let entity = found.targets.iter().find(|(_, target)| target.key == device.key).map(|(e, _)| *e);
        let number = |field: u16| -> Option<u32> { texts.get(&(entity?, field))?.parse().ok() };
        (device.index, device.minor) = (number(52), number(55));
    }
    add_instances(outline, texts, keys, &mut found);
    for &switch in &outline.switches {
        add_switch(switch, texts, keys, &mut found);
    }
    let links = caller.call("dcgmGetNvLinkLinkStatus", "", D::links);
    for (owner, number, link) in unless_gone_or(links, || was.links_by_owner())? {
        let Some(target) = found.targets.get(&owner).cloned() else { continue };
        found.links.push((link, target.gpu));
        found.targets.insert(link, Target { part: Part::Link(number), ..target });
    }
    let cpus = caller.call("dcgmGetCpuHierarchy_v2", "", D::cpus);
    for (cpu, cores) in unless_gone_or(cpus, || was.cores_by_cpu())? {
        add_cpu(cpu, &cores, keys, &mut found);
    }
    Ok(found)
}

impl Inventory {
    /// The report of it.
    pub(super) fn report(&self, version: &str) -> Report {
        Report {
            origin: origin(),
            devices: self.devices.clone(),
            driver_version: self.driver.clone().unwrap_or_default(),
            library_version: version.to_owned(),
        }
    }

    /// The GPU has instances: what belongs to them is read from them and not from it.
    pub(super) fn is_parted(&self, gpu: u32) -> bool {
        self.instances.iter().any(|instance| instance.gpu == gpu)
    }

    /// Every device of the outline has its name.
    pub(super) fn is_complete(&self, outline: &Outline) -> bool {
        let gpus = outline.gpus.iter().map(|(gpu, _)| Entity::gpu(*gpu));
        let cis = outline.mig.iter().map(|m| m.entity).filter(|e| e.group == EntityGroup::ComputeInstance);
        gpus.chain(cis).all(|entity| self.targets.contains_key(&entity))
    }

    /// It is no GPU, or one that is not lost.
    pub(super) fn answers(&self, entity: &Entity) -> bool {
        let gpu = (entity.group == EntityGroup::Gpu).then_some(entity.id);
        self.state(gpu) == GpuState::Ok
    }

    /// Some GPU has a name, so its values can be told.
    pub(super) fn has_named_gpu(&self) -> bool {
        self.gpus.iter().any(|(gpu, _)| self.targets.contains_key(&Entity::gpu(*gpu)))
    }

    fn links_by_owner(&self) -> Vec<(Entity, u32, Entity)> {
        let owner = |key: u32| {
            let mut of_key = self.targets.iter().filter(|(_, t)| t.key == key && t.part == Part::Whole);
            of_key.next().map(|(entity, _)| *entity)
        };
        let by_owner = |(link, _): &(Entity, Option<u32>)| {
            let target = self.targets.get(link)?;
            let Part::Link(number) = target.part else { return None };
            Some((owner(target.key)?, number, *link))
        };
        self.links.iter().filter_map(by_owner).collect()
    }

    fn cores_by_cpu(&self) -> Vec<(u32, Vec<u32>)> {
        let key = |entity: &Entity| self.targets.get(entity).map(|target| target.key);
        let of = |cpu: &Entity| {
            let cores = self.cores.iter().filter(|core| key(core) == key(cpu));
            (cpu.id, cores.map(|core| core.id).collect())
        };
        self.cpus.iter().map(of).collect()
    }

    /// What a value of the entity is to be withheld for.
    pub(super) fn state(&self, gpu: Option<u32>) -> GpuState {
        let known = gpu.and_then(|gpu| self.gpus.iter().find(|(id, _)| *id == gpu));
        known.map_or(GpuState::Ok, |(_, state)| *state)
    }
}

/// The number of this origin on the wire.
pub(super) fn origin() -> u32 {
    match Origin::Dcgm {
        Origin::Dcgm => 1,
        Origin::Nvml | Origin::Host => 2,
    }
}

fn add_gpu<D: Dcgm>(
    caller: &Caller<'_, D>,
    gpu: u32,
    state: GpuState,
    names: &mut Names,
    keys: &mut Keys,
    found: &mut Inventory,
) -> Answer<()> {
    let known = names.by_id.get(&gpu).and_then(|known| known.uuid.clone()).unwrap_or_default();
    let now = caller.call("dcgmGetDeviceAttributes", &known, |d| d.attributes(gpu));
    let now = match now {
        Ok(now) => now,
        Err(code) if is_gone(code) => return Err(code),
        // What is said of a lost GPU is not worth more than what was said before.
        Err(_) => Attributes::default(),
    };
    let was = names.by_id.entry(gpu).or_default();
    let known = Attributes {
        uuid: now.uuid.or(was.uuid.take()),
        pci: now.pci.or(was.pci.take()),
        name: now.name.or(was.name.take()),
        serial: now.serial.or(was.serial.take()),
        driver: now.driver.or(was.driver.take()),
    };
    let known = match &known.pci {
        // Lost before this engine came up: the name is what the address had in an earlier one.
        Some(pci) if known.uuid.is_none() => names.by_pci.get(pci).cloned().unwrap_or(known),
        _ => known,
    };
    *was = known.clone();
    if let (Some(pci), true) = (&known.pci, known.uuid.is_some()) {
        names.by_pci.insert(pci.clone(), known.clone());
    }
    let Some(hw_id) = known.uuid else { return Ok(()) };
    if found.devices.iter().any(|device| device.hw_id == hw_id) {
        return Ok(());
    }
    let Some(key) = keys.of(&hw_id) else { return Ok(()) };
    found.driver = found.driver.take().or(known.driver);
    let entity = Entity::gpu(gpu);
    found
        .targets
        .insert(entity, Target { key, part: Part::Whole, hw_id: hw_id.as_str().into(), gpu: Some(gpu) });
    let topology = match state {
        GpuState::Ok => unless_gone(caller.call("dcgmGetDeviceTopology", &hw_id, |d| d.topology(gpu)))?,
        GpuState::Lost | GpuState::Detached => super::engine::Topology::default(),
    };
    found.devices.push(Device {
        hw_id,
        key,
        kind: GPU,
        state: match state {
            GpuState::Ok => 0,
            GpuState::Lost => 1,
            GpuState::Detached => 2,
        },
        pci: known.pci.as_deref().map(kernel_form),
        model: known.name,
        serial: known.serial,
        architecture: caller.local().architecture(gpu),
        cpu_affinity: topology.affinity,
        // The names are put in when all are known.
        nvlink_peers: topology.peers.iter().map(|(peer, links)| format!("{peer}={links}")).collect(),
        ..Device::default()
    });
    Ok(())
}

/// Turns `3=18` into `GPU-…=18`.
fn name_peers(names: &Names, found: &mut Inventory) {
    for device in &mut found.devices {
        device.nvlink_peers = device
            .nvlink_peers
            .iter()
            .filter_map(|peer| {
                let (id, links) = peer.split_once('=')?;
                let uuid = names.by_id.get(&id.parse().ok()?)?.uuid.as_deref()?;
                Some(format!("{uuid}={links}"))
            })
            .collect();
        device.nvlink_peers.sort();
    }
}

fn add_instances(outline: &Outline, texts: &Texts, keys: &mut Keys, found: &mut Inventory) {
    let of = |group| outline.mig.iter().filter(move |e| e.entity.group == group);
    for gi in of(EntityGroup::GpuInstance) {
        let Some(parent) = found.targets.get(&gi.parent).cloned() else { continue };
        let Some(gpu) = parent.gpu else { continue };
        let mut cis: Vec<Entity> = of(EntityGroup::ComputeInstance)
            .filter(|ci| ci.parent == gi.entity)
            .map(|ci| ci.entity)
            .collect();
        cis.sort_unstable();
        for (place, &ci) in cis.iter().enumerate() {
            let Some(uuid) = texts.get(&(ci, 54)).filter(|uuid| uuid.starts_with("MIG-")) else { continue };
            let Some(key) = keys.of(uuid) else { continue };
            let target = Target { key, part: Part::Whole, hw_id: uuid.as_str().into(), gpu: Some(gpu) };
            found.devices.push(Device {
                hw_id: uuid.clone(),
                key,
                kind: MIG,
                state: found.devices.iter().find(|d| d.key == parent.key).map_or(0, |d| d.state),
                parent: Some(parent.hw_id.to_string()),
                pci: found.devices.iter().find(|d| d.key == parent.key).and_then(|d| d.pci.clone()),
                mig_profile: texts.get(&(ci, 50)).map(|name| profile(name)),
                gpu_instance: Some(gi.ids.0),
                compute_instance: outline.mig.iter().find(|e| e.entity == ci).and_then(|e| e.ids.1),
                ..Device::default()
            });
            if place == 0 {
                found.targets.insert(gi.entity, target.clone());
                found.instances.push(Instance { entity: gi.entity, gpu, first: true });
            }
            found.targets.insert(ci, target);
            found.instances.push(Instance { entity: ci, gpu, first: place == 0 });
        }
    }
}

fn add_switch(id: u32, texts: &Texts, keys: &mut Keys, found: &mut Inventory) {
    let entity = Entity::new(EntityGroup::Switch, id);
    let part = |field: u16| -> Option<u32> { texts.get(&(entity, field))?.parse().ok() };
    let address =
        part(866).zip(part(867)).zip(part(868)).zip(part(869)).map(|(((domain, bus), device), function)| {
            format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
        });
    let named = address.as_ref().map(|pci| format!("nvswitch-{pci}"));
    // An engine that tells one address for all of them does not know it.
    let own = named.filter(|name| found.devices.iter().all(|device| device.hw_id != *name));
    let hw_id = own.unwrap_or_else(|| format!("nvswitch-{id}"));
    let Some(key) = keys.of(&hw_id) else { return };
    let target = Target { key, part: Part::Whole, hw_id: hw_id.as_str().into(), gpu: None };
    found.targets.insert(entity, target);
    found.switches.push(entity);
    found.devices.push(Device { hw_id, key, kind: SWITCH, pci: address, ..Device::default() });
}

fn add_cpu(id: u32, cores: &[u32], keys: &mut Keys, found: &mut Inventory) {
    let hw_id = format!("cpu-{id}");
    let Some(key) = keys.of(&hw_id) else { return };
    let target = Target { key, part: Part::Whole, hw_id: hw_id.as_str().into(), gpu: None };
    for &core in cores {
        let entity = Entity::new(EntityGroup::CpuCore, core);
        found.targets.insert(entity, Target { part: Part::Core(core), ..target.clone() });
        found.cores.push(entity);
    }
    let entity = Entity::new(EntityGroup::Cpu, id);
    found.targets.insert(entity, target);
    found.cpus.push(entity);
    found.devices.push(Device { hw_id, key, kind: CPU, ..Device::default() });
}

/// DCGM's text for a profile: the last word of `MIG 1g.12gb`, with its suffixes; nothing is corrected.
pub(super) fn profile(name: &str) -> String {
    name.rsplit(' ').next().unwrap_or_default().to_ascii_lowercase()
}

/// An answer, or the default where it is refused.
///
/// # Errors
/// The connection is gone.
pub(super) fn unless_gone<T: Default>(answer: Answer<T>) -> Answer<T> {
    unless_gone_or(answer, T::default)
}

fn unless_gone_or<T>(answer: Answer<T>, otherwise: impl FnOnce() -> T) -> Answer<T> {
    match answer {
        Err(code) if is_gone(code) => Err(code),
        Err(_) => Ok(otherwise()),
        Ok(value) => Ok(value),
    }
}
