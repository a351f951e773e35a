//! The devices, as both libraries list them, merged by `hw.id`.
//!
//! In: inventories of DCGM and NVML. Out: `Gpu` signals for what is new or different, `GpuState` for what changed.
//! Pure. NVML outranks DCGM where both tell (it is exact about MIG profiles). A list of a library that is down, or of a
//! worker that is gone, still counts as long as no live library says otherwise: a crash makes no device disappear.
//! What can go wrong: devices that cannot be, or too many; they are refused and counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clean;
use crate::model::signal::{DeviceKind, DeviceState, GpuDetails, MigPlace};
use crate::model::{Gpu, MonoNs, Origin, PciAddress, Signal};
use crate::wire::report;

/// Devices of one library; the largest nodes have 16 GPUs with 7 instances each.
pub const DEVICES_MAX: usize = 1_024;
/// NVLink peers of one device.
const PEERS_MAX: usize = 64;
/// No index, minor or node is larger.
const NUMBER_MAX: u32 = 1 << 20;

/// The devices.
#[derive(Debug, Default)]
pub struct Inventory {
    dcgm: List,
    nvml: List,
    merged: BTreeMap<Arc<str>, Device>,
}

#[derive(Debug, Default)]
struct List {
    /// By the key that samples name them by; void once the worker is gone.
    keys: BTreeMap<u32, Arc<str>>,
    devices: BTreeMap<Arc<str>, Device>,
    /// Told by the present worker, and the library is up.
    fresh: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Device {
    gpu: Gpu,
    state: DeviceState,
}

impl Inventory {
    /// The device that samples of `origin` call `key`.
    pub fn hw_id(&self, origin: Origin, key: u32) -> Option<&Arc<str>> {
        self.list(origin)?.keys.get(&key)
    }

    /// Whether there is such a device.
    pub fn has(&self, hw_id: &str) -> bool {
        self.merged.contains_key(hw_id)
    }

    /// All of them.
    pub fn gpus(&self) -> impl Iterator<Item = &Gpu> {
        self.merged.values().map(|device| &device.gpu)
    }

    /// The worker is gone, and its keys with it.
    pub fn forget_keys(&mut self) {
        for list in [&mut self.dcgm, &mut self.nvml] {
            list.keys.clear();
            list.fresh = false;
        }
    }

    /// The library went down: its list counts for less.
    pub fn stale(&mut self, origin: Origin) {
        if let Some(list) = self.list_mut(origin) {
            list.fresh = false;
        }
    }

    /// A library's list; gives the number of devices refused.
    pub fn replace(
        &mut self,
        at: MonoNs,
        origin: Origin,
        devices: Vec<report::Device>,
        out: &mut Vec<Signal>,
    ) -> usize {
        let Some(list) = self.list_mut(origin) else { return devices.len() };
        let told = devices.len();
        let (mut keys, mut by_id) = (BTreeMap::new(), BTreeMap::new());
        for device in devices.into_iter().take(DEVICES_MAX) {
            let key = device.key;
            let Some(device) = checked(origin, device) else { continue };
            let hw_id: Arc<str> = device.gpu.hw_id.as_str().into();
            if !keys.contains_key(&key) && by_id.insert(Arc::clone(&hw_id), device).is_none() {
                keys.insert(key, hw_id);
            }
        }
        let refused = told - keys.len();
        *list = List { keys, devices: by_id, fresh: true };
        self.merge(at, out);
        refused
    }

    fn merge(&mut self, at: MonoNs, out: &mut Vec<Signal>) {
        let mut merged: BTreeMap<Arc<str>, Device> = BTreeMap::new();
        for (list, other) in [(&self.nvml, &self.dcgm), (&self.dcgm, &self.nvml)] {
            for (hw_id, device) in &list.devices {
                // NVML knows no switches and no CPUs: its silence about them means nothing.
                let shared = matches!(device.gpu.details.kind, DeviceKind::Gpu | DeviceKind::Mig);
                if !list.fresh && shared && other.fresh {
                    continue;
                }
                match merged.get_mut(hw_id) {
                    Some(first) => first.complete(device),
                    None => drop(merged.insert(Arc::clone(hw_id), device.clone())),
                }
            }
        }
        for hw_id in self.merged.keys().filter(|hw_id| !merged.contains_key(*hw_id)) {
            let (hw_id, state) = (hw_id.to_string(), DeviceState::Gone);
            out.push(Signal::GpuState { at, hw_id, state });
        }
        // An instance after the GPU that it is part of.
        for instances in [false, true] {
            for (hw_id, device) in merged.iter().filter(|(_, d)| d.gpu.parent.is_some() == instances) {
                let before = self.merged.get(hw_id);
                if before.is_none_or(|before| before.gpu != device.gpu) {
                    out.push(Signal::Gpu { at, gpu: device.gpu.clone() });
                }
                if before.map_or(DeviceState::Ok, |before| before.state) != device.state {
                    out.push(Signal::GpuState { at, hw_id: hw_id.to_string(), state: device.state });
                }
            }
        }
        self.merged = merged;
    }

    fn list(&self, origin: Origin) -> Option<&List> {
        match origin {
            Origin::Dcgm => Some(&self.dcgm),
            Origin::Nvml => Some(&self.nvml),
            Origin::Host => None,
        }
    }

    fn list_mut(&mut self, origin: Origin) -> Option<&mut List> {
        match origin {
            Origin::Dcgm => Some(&mut self.dcgm),
            Origin::Nvml => Some(&mut self.nvml),
            Origin::Host => None,
        }
    }
}

impl Device {
    /// What only the other library knows, and the worse of both states.
    fn complete(&mut self, other: &Self) {
        fn fill<T: Clone>(place: &mut Option<T>, other: &Option<T>) {
            if place.is_none() {
                place.clone_from(other);
            }
        }
        fill(&mut self.gpu.index, &other.gpu.index);
        fill(&mut self.gpu.minor, &other.gpu.minor);
        fill(&mut self.gpu.pci, &other.gpu.pci);
        fill(&mut self.gpu.model, &other.gpu.model);
        fill(&mut self.gpu.parent, &other.gpu.parent);
        let (mine, others) = (&mut self.gpu.details, &other.gpu.details);
        fill(&mut mine.serial, &others.serial);
        fill(&mut mine.architecture, &others.architecture);
        if mine.mig_profile.is_none() {
            mine.mig_profile.clone_from(&others.mig_profile);
            mine.mig_profile_source = others.mig_profile_source;
        }
        fill(&mut mine.numa_node, &others.numa_node);
        fill(&mut mine.cpu_affinity, &others.cpu_affinity);
        fill(&mut mine.mig.index, &others.mig.index);
        fill(&mut mine.mig.gpu_instance, &others.mig.gpu_instance);
        fill(&mut mine.mig.compute_instance, &others.mig.compute_instance);
        fill(&mut mine.mig.start, &others.mig.start);
        if mine.nvlink_peers.is_empty() {
            mine.nvlink_peers.clone_from(&others.nvlink_peers);
        }
        if gravity(other.state) > gravity(self.state) {
            self.state = other.state;
        }
    }
}

fn gravity(state: DeviceState) -> u8 {
    match state {
        DeviceState::Ok => 0,
        DeviceState::Resetting => 1,
        DeviceState::Lost => 2,
        DeviceState::Gone => 3,
    }
}

/// A device as told, if it can be one; parts of it that cannot be are left out.
fn checked(origin: Origin, device: report::Device) -> Option<Device> {
    let kind = match device.kind {
        1 => DeviceKind::Gpu,
        2 => DeviceKind::Mig,
        3 => DeviceKind::Switch,
        4 => DeviceKind::Cpu,
        _ => return None,
    };
    let state = match device.state {
        0 => DeviceState::Ok,
        1 => DeviceState::Lost,
        2 => DeviceState::Resetting,
        _ => return None,
    };
    let name = |text: Option<String>| text.as_deref().and_then(clean::name);
    let number = |number: Option<u32>| number.filter(|n| *n < NUMBER_MAX);
    let mig_profile = name(device.mig_profile);
    let details = GpuDetails {
        kind,
        serial: name(device.serial),
        architecture: name(device.architecture),
        mig_profile_source: mig_profile.is_some().then(|| origin.name()),
        mig_profile,
        numa_node: number(device.numa_node),
        cpu_affinity: device.cpu_affinity.as_deref().and_then(clean::text),
        mig: MigPlace {
            index: number(device.mig_index),
            gpu_instance: number(device.gpu_instance),
            compute_instance: number(device.compute_instance),
            start: number(device.mig_start),
        },
        nvlink_peers: device
            .nvlink_peers
            .iter()
            .take(PEERS_MAX)
            .filter_map(|peer| clean::identity(peer).map(str::to_owned))
            .collect(),
    };
    let gpu = Gpu {
        hw_id: clean::identity(&device.hw_id)?.to_owned(),
        index: number(device.index),
        minor: number(device.minor),
        pci: device.pci.as_deref().and_then(PciAddress::parse),
        model: name(device.model),
        parent: device.parent.as_deref().and_then(clean::identity).map(str::to_owned),
        details: Box::new(details),
    };
    Some(Device { gpu, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(hw_id: &str, key: u32) -> report::Device {
        let kind = if hw_id.starts_with("MIG") { 2 } else { 1 };
        report::Device { hw_id: hw_id.to_owned(), key, kind, ..report::Device::default() }
    }

    fn replace(inventory: &mut Inventory, origin: Origin, devices: Vec<report::Device>) -> Vec<String> {
        let mut out = Vec::new();
        inventory.replace(MonoNs(1), origin, devices, &mut out);
        let said = out.into_iter().map(|signal| match signal {
            Signal::Gpu { gpu, .. } => gpu.hw_id,
            Signal::GpuState { hw_id, state, .. } => format!("{hw_id} {state:?}"),
            other => panic!("{other:?}"),
        });
        said.collect()
    }

    #[test]
    fn only_changes_are_told_and_instances_after_their_gpu() {
        let mut inventory = Inventory::default();
        let mig = || report::Device { parent: Some("GPU-1".to_owned()), ..device("MIG-0", 2) };
        let list = || vec![mig(), device("GPU-1", 1)];
        assert_eq!(replace(&mut inventory, Origin::Nvml, list()), ["GPU-1", "MIG-0"]);
        assert_eq!(replace(&mut inventory, Origin::Nvml, list()), [] as [&str; 0]);
        let lost = || report::Device { state: 1, ..device("GPU-1", 1) };
        assert_eq!(replace(&mut inventory, Origin::Nvml, vec![mig(), lost()]), ["GPU-1 Lost"]);
        assert_eq!(replace(&mut inventory, Origin::Nvml, list()), ["GPU-1 Ok"]);
        assert_eq!(replace(&mut inventory, Origin::Nvml, vec![device("GPU-1", 1)]), ["MIG-0 Gone"]);
        assert_eq!(inventory.hw_id(Origin::Nvml, 1).map(|id| &**id), Some("GPU-1"));
        assert_eq!(inventory.hw_id(Origin::Dcgm, 1), None);
        assert!(inventory.has("GPU-1") && !inventory.has("MIG-0"));
    }

    #[test]
    fn two_lists_become_one_and_nvml_outranks() {
        let mut inventory = Inventory::default();
        let with = |profile: &str, serial: Option<&str>, state| report::Device {
            mig_profile: Some(profile.to_owned()),
            serial: serial.map(str::to_owned),
            state,
            ..device("MIG-0", 9)
        };
        replace(&mut inventory, Origin::Dcgm, vec![with("1g.11gb", Some("S1"), 0)]);
        let details = &inventory.merged["MIG-0"].gpu.details;
        let told = (details.mig_profile.as_deref(), details.mig_profile_source);
        assert_eq!(
            told,
            (Some("1g.11gb"), Some("dcgm")),
            "DCGM rounds so; nothing is guessed, and who told is said"
        );
        replace(&mut inventory, Origin::Nvml, vec![with("1g.12gb", None, 0)]);
        let details = &inventory.merged["MIG-0"].gpu.details;
        assert_eq!(
            (details.mig_profile.as_deref(), details.mig_profile_source, details.serial.as_deref()),
            (Some("1g.12gb"), Some("nvml"), Some("S1"))
        );
        let said = replace(&mut inventory, Origin::Dcgm, vec![with("1g.11gb", Some("S1"), 1)]);
        assert_eq!(said, ["MIG-0 Lost"], "the worse of both states");
    }

    #[test]
    fn the_place_of_a_mig_device_is_what_either_library_knows_of_it() {
        let mut inventory = Inventory::default();
        let told = |gpu_instance, mig_start| report::Device {
            gpu_instance: Some(gpu_instance),
            mig_start,
            mig_index: mig_start,
            ..device("MIG-0", 9)
        };
        replace(&mut inventory, Origin::Dcgm, vec![told(8, None)]);
        replace(&mut inventory, Origin::Nvml, vec![told(7, Some(2))]);
        let want = MigPlace { index: Some(2), gpu_instance: Some(7), compute_instance: None, start: Some(2) };
        assert_eq!(inventory.merged["MIG-0"].gpu.details.mig, want);
        let odd = report::Device { gpu_instance: Some(u32::MAX), ..device("MIG-1", 1) };
        assert_eq!(checked(Origin::Dcgm, odd).unwrap().gpu.details.mig, MigPlace::default());
    }

    #[test]
    fn a_crash_makes_no_device_disappear_but_a_live_list_does() {
        let mut inventory = Inventory::default();
        let switch = || report::Device { kind: 3, ..device("SWITCH-1", 7) };
        let all = || vec![device("GPU-1", 1), device("GPU-2", 2), switch()];
        replace(&mut inventory, Origin::Dcgm, all());
        replace(&mut inventory, Origin::Nvml, vec![device("GPU-1", 1), device("GPU-2", 2)]);
        inventory.forget_keys();
        assert_eq!(inventory.hw_id(Origin::Nvml, 1), None);
        let said = replace(&mut inventory, Origin::Nvml, vec![device("GPU-1", 5)]);
        assert_eq!(said, ["GPU-2 Gone"], "DCGM's old list does not hold it, and the switch stays");
        assert_eq!(
            replace(&mut inventory, Origin::Dcgm, all()),
            ["GPU-2"],
            "DCGM is alive again, and sees it"
        );
        inventory.stale(Origin::Dcgm);
        assert_eq!(replace(&mut inventory, Origin::Nvml, vec![device("GPU-1", 5)]), ["GPU-2 Gone"]);
    }

    #[test]
    fn what_cannot_be_a_device_is_refused_and_what_cannot_be_a_part_is_left_out() {
        let mut inventory = Inventory::default();
        let mut out = Vec::new();
        let strange = [
            device("", 1),
            device("GPU 1", 2),
            report::Device { kind: 9, ..device("GPU-3", 3) },
            report::Device { state: 9, ..device("GPU-4", 4) },
            device("GPU-5", 5),
            device("GPU-5", 6),
            device("GPU-7", 5),
        ];
        assert_eq!(inventory.replace(MonoNs(1), Origin::Dcgm, strange.into(), &mut out), 6);
        let flood = (0..9_999).map(|n| device(&format!("GPU-{n}"), n)).collect();
        assert_eq!(inventory.replace(MonoNs(1), Origin::Dcgm, flood, &mut out), 9_999 - DEVICES_MAX);
        assert_eq!(inventory.replace(MonoNs(1), Origin::Host, vec![device("GPU-1", 1)], &mut out), 1);
        let odd = report::Device {
            index: Some(u32::MAX),
            pci: Some("nonsense".to_owned()),
            model: Some("H100\u{1b}[2J".to_owned()),
            nvlink_peers: vec!["GPU-2=18".to_owned(), "\n".to_owned()],
            ..device("GPU-1", 1)
        };
        let gpu = checked(Origin::Dcgm, odd).unwrap().gpu;
        assert_eq!((gpu.index, gpu.pci, gpu.model.as_deref()), (None, None, Some("H100[2J")));
        assert_eq!(gpu.details.nvlink_peers, ["GPU-2=18"]);
    }
}
