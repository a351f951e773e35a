//! The GPUs and MIG devices of this node, to be found by any of their names.
//!
//! In: identities as they come and go. Out: the `hw.id` of what a plugin's id names.
//! What can go wrong: the device is not known (yet), or several could be meant; then nothing is found. More devices than
//! are kept: the surplus is refused and counted.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::device_ids::{Board, Named};
use crate::model::Gpu;
use crate::model::signal::{DeviceKind, MigPlace};
use crate::telemetry::{Counter, Telemetry};

/// All devices.
#[derive(Debug)]
pub struct Devices {
    gpus: BTreeMap<Arc<str>, Numbers>,
    migs: BTreeMap<Arc<str>, Mig>,
    refused: Counter,
}

/// Numbers of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    index: Option<u32>,
    minor: Option<u32>,
}

/// A MIG device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mig {
    parent: String,
    place: MigPlace,
    /// Its profile as it is written in a name: without dots, other signs as dashes.
    profile: Option<String>,
}

impl Devices {
    /// GPUs and MIG devices kept; the largest nodes have 16 GPUs with 7 each.
    pub const MOST: usize = 1_024;

    /// No device yet; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "allocation_devices")]);
        Self { gpus: BTreeMap::new(), migs: BTreeMap::new(), refused }
    }

    /// A device exists, or is known better. Returns whether that may change what ids name.
    pub fn learn(&mut self, gpu: &Gpu) -> bool {
        let is_new = !self.gpus.contains_key(&*gpu.hw_id) && !self.migs.contains_key(&*gpu.hw_id);
        match gpu.details.kind {
            DeviceKind::Switch | DeviceKind::Cpu | DeviceKind::Nic => return false,
            DeviceKind::Gpu | DeviceKind::Mig => {}
        }
        if is_new && self.gpus.len() + self.migs.len() >= Self::MOST {
            self.refused.add(1);
            return false;
        }
        let hw_id = || Arc::from(gpu.hw_id.as_str());
        match &gpu.parent {
            None => {
                let numbers = Numbers { index: gpu.index, minor: gpu.minor };
                self.gpus.insert(hw_id(), numbers) != Some(numbers)
            }
            Some(parent) => {
                let profile = gpu.details.mig_profile.as_deref().map(as_in_names);
                let mig = Mig { parent: parent.clone(), place: gpu.details.mig, profile };
                self.migs.insert(hw_id(), mig.clone()) != Some(mig)
            }
        }
    }

    /// A device is gone. Returns whether it was known.
    pub fn forget(&mut self, hw_id: &str) -> bool {
        self.gpus.remove(hw_id).is_some() | self.migs.remove(hw_id).is_some()
    }

    /// Puts into `found` what is named: one device, several for a GPU instance that is divided further, or none.
    pub fn find(&self, named: Named<'_>, found: &mut Vec<Arc<str>>) {
        found.clear();
        match named {
            Named::Uuid(uuid) => {
                let gpu = self.gpus.get_key_value(uuid).map(|(hw_id, _)| hw_id);
                found.extend(gpu.or_else(|| Some(self.migs.get_key_value(uuid)?.0)).cloned());
            }
            Named::Board(board) => found.extend(self.board(board).cloned()),
            Named::MigIndex(board, index) => {
                self.migs_of(board, |mig| mig.place.index == Some(index), found);
            }
            Named::Instance { board, instance, compute } => {
                let is_meant = |mig: &Mig| {
                    mig.place.gpu_instance == Some(instance)
                        && (compute.is_none() || mig.place.compute_instance == compute)
                };
                self.migs_of(board, is_meant, found);
            }
            Named::Slice { board, start, profile } => {
                self.migs_of(board, |mig| mig.place.start == Some(start), found);
                if let (true, Some(profile)) = (found.is_empty(), profile) {
                    // Only root is told where an instance begins; but it may be the only one of its profile.
                    let may_be =
                        |mig: &Mig| mig.place.start.is_none() && mig.profile.as_deref() == Some(profile);
                    self.migs_of(board, may_be, found);
                    if found.len() > 1 {
                        found.clear();
                    }
                }
            }
        }
    }

    /// The GPU that a MIG device is part of.
    pub fn parent(&self, hw_id: &str) -> Option<&str> {
        self.migs.get(hw_id).map(|mig| mig.parent.as_str())
    }

    /// The GPUs of this node, MIG devices aside.
    pub fn boards(&self) -> impl Iterator<Item = &Arc<str>> {
        self.gpus.keys()
    }

    /// The only device whose name begins so.
    pub fn by_beginning(&self, beginning: &str) -> Option<&Arc<str>> {
        let from = (Bound::Included(beginning), Bound::Unbounded);
        let of_gpus = self.gpus.range::<str, _>(from).map(|(hw_id, _)| hw_id);
        let of_migs = self.migs.range::<str, _>(from).map(|(hw_id, _)| hw_id);
        let is_so = |hw_id: &&Arc<str>| hw_id.starts_with(beginning);
        let mut all = of_gpus.take_while(is_so).chain(of_migs.take_while(is_so));
        all.next().filter(|_| all.next().is_none())
    }

    /// Where a device stands among all: the number of its GPU, and its own on it.
    pub fn place(&self, hw_id: &str) -> (Option<u32>, Option<u32>) {
        let mig = self.migs.get(hw_id);
        let board = self.gpus.get(mig.map_or(hw_id, |mig| &mig.parent));
        (board.and_then(|numbers| numbers.index), mig.and_then(|mig| mig.place.index))
    }

    fn board(&self, board: Board<'_>) -> Option<&Arc<str>> {
        let by = |is: &dyn Fn(&Numbers) -> bool| {
            self.gpus.iter().find(|(_, numbers)| is(numbers)).map(|(hw_id, _)| hw_id)
        };
        match board {
            Board::Uuid(uuid) => self.gpus.get_key_value(uuid).map(|(hw_id, _)| hw_id),
            Board::Index(index) => by(&|numbers| numbers.index == Some(index)),
            // DCGM alone may not tell the minor; on nearly all nodes it is the index.
            Board::Minor(minor) => by(&|numbers| numbers.minor == Some(minor))
                .or_else(|| by(&|numbers| numbers.minor.is_none() && numbers.index == Some(minor))),
        }
    }

    fn migs_of(&self, board: Board<'_>, is_meant: impl Fn(&Mig) -> bool, found: &mut Vec<Arc<str>>) {
        let Some(parent) = self.board(board) else { return };
        let meant = self.migs.iter().filter(|(_, mig)| *mig.parent == **parent && is_meant(mig));
        found.extend(meant.map(|(hw_id, _)| Arc::clone(hw_id)));
    }
}

/// `1g.10gb+me` → `1g10gb-me`, as names of Kubernetes must be.
fn as_in_names(profile: &str) -> String {
    let letters = profile.chars().filter(|c| *c != '.');
    letters.map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::device_ids;
    use super::super::fixtures::{gpu, mig};
    use super::*;

    fn node() -> Devices {
        let mut devices = Devices::new(&Telemetry::default());
        for device in [
            gpu("GPU-a", 0, Some(1)), // minors are in the order of probing, not in that of addresses
            gpu("GPU-b", 1, Some(0)),
            gpu("GPU-c", 2, None),
            mig("MIG-1", "GPU-a", (0, 7, 0), Some(0), "1g.10gb"),
            mig("MIG-2", "GPU-a", (1, 8, 0), Some(1), "1g.10gb+me"),
            mig("MIG-3", "GPU-a", (2, 3, 0), Some(2), "1c.2g.20gb"),
            mig("MIG-4", "GPU-a", (3, 3, 1), Some(2), "1c.2g.20gb"),
            mig("MIG-5", "GPU-b", (0, 7, 0), None, "1g.10gb"),
            mig("MIG-6", "GPU-b", (1, 8, 0), None, "1g.10gb"),
            mig("MIG-7", "GPU-b", (2, 9, 0), None, "1g.10gb+me"),
        ] {
            assert!(devices.learn(&device));
            assert!(!devices.learn(&device), "nothing new");
        }
        devices
    }

    #[track_caller]
    fn check(devices: &Devices, id: &str, want: &[&str]) {
        let mut found = vec!["left over".into()];
        devices.find(device_ids::parse(id).unwrap().named, &mut found);
        assert_eq!(found.iter().map(|id| &**id).collect::<Vec<_>>(), want, "{id}");
    }

    #[test]
    fn a_device_is_found_by_each_of_its_names() {
        let mut devices = node();
        for (id, want) in [
            ("GPU-a", &["GPU-a"][..]),
            ("MIG-2::3", &["MIG-2"]),
            ("0", &["GPU-a"]),
            ("nvidia0", &["GPU-b"]),
            ("nvidia2", &["GPU-c"]),
            ("nvidia1/gi8/vgpu0", &["MIG-2"]),
            ("nvidia1/gi3", &["MIG-3", "MIG-4"]),
            ("MIG-GPU-a/3/1", &["MIG-4"]),
            ("0:1", &["MIG-2"]),
            ("gpu-1", &["GPU-a"]),
            ("gpu-1-mig-19-1-1", &["MIG-2"]),
            ("gpu-1-mig-2g20gb-14-2", &["MIG-3", "MIG-4"]),
            ("gpu-0-mig-1g10gb-me-20-6", &["MIG-7"]),
            ("gpu-0-mig-1g10gb-19-0", &[]), // two could be meant
            ("gpu-0-mig-19-0-1", &[]),
            ("GPU-x", &[]),
            ("MIG-GPU-x/3/1", &[]),
            ("9", &[]),
            ("0:9", &[]),
            ("nvidia9/gi1", &[]),
        ] {
            check(&devices, id, want);
        }
        assert!(devices.forget("MIG-2") && !devices.forget("MIG-2"));
        check(&devices, "0:1", &[]);
        assert!(devices.learn(&gpu("GPU-c", 2, Some(5))), "a number that was not known");
        check(&devices, "nvidia2", &[]);
    }

    #[test]
    fn devices_are_told_by_the_beginning_of_a_name_and_stand_in_order() {
        let devices = node();
        let named = |beginning: &str| devices.by_beginning(beginning).map(|id| id.to_string());
        assert_eq!(named("GPU-a").as_deref(), Some("GPU-a"));
        assert_eq!(named("MIG-2").as_deref(), Some("MIG-2"));
        assert_eq!([named("GPU-"), named("MIG"), named("GPU-ab"), named("")], [None, None, None, None]);
        assert_eq!((devices.parent("MIG-5"), devices.parent("GPU-a")), (Some("GPU-b"), None));
        let mut all: Vec<&str> =
            devices.boards().map(|id| &**id).chain(["MIG-5", "MIG-2", "MIG-1"]).collect();
        all.sort_by_key(|id| devices.place(id));
        assert_eq!(all, ["GPU-a", "MIG-1", "MIG-2", "GPU-b", "MIG-5", "GPU-c"]);
    }

    #[test]
    fn what_is_no_gpu_and_what_is_too_much_is_left_out() {
        let telemetry = Telemetry::default();
        let mut devices = Devices::new(&telemetry);
        let mut switch = gpu("nvswitch-0", 0, None);
        switch.details.kind = DeviceKind::Switch;
        assert!(!devices.learn(&switch));
        let taken =
            (0..=Devices::MOST as u32).filter(|n| devices.learn(&gpu(&format!("GPU-{n}"), *n, None))).count();
        assert_eq!(taken, Devices::MOST);
        assert_eq!((devices.gpus.len(), devices.refused.get()), (Devices::MOST, 1));
    }
}
