//! Which device numbers are the driver's, and what each is.
//!
//! In: /proc/devices, /proc/driver/nvidia-caps/mig-minors, or configured majors. Out: [`Kinds`].
//! What can go wrong: majors are dynamic but one, and change when the driver is loaded again: this is read each time.
//! Neither file waits for the driver.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::host::HostRoot;
use crate::model::open_nodes::OpenNode;

/// NVIDIA's own major, fixed in the kernel's list of devices.
const NVIDIA: u32 = 195;
/// The highest minor of a GPU under it; 254 is the display's node, 255 the control node.
const GPU_MAX: u32 = 247;
/// The kernel's table of capabilities has 8,192 minors, with some 40 bytes each.
const BYTES_MAX: u64 = 1 << 20;
/// Capabilities kept.
const CAPABILITIES_MAX: usize = 16_384;

/// What device numbers mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Majors whose minors are GPUs'.
    gpus: BTreeSet<u32>,
    /// The major of capabilities.
    capabilities: Option<u32>,
    /// Other majors of the driver.
    others: BTreeSet<u32>,
    /// Capabilities of MIG instances, by minor.
    instances: BTreeMap<u32, OpenNode>,
}

impl Kinds {
    /// As it is now. `majors`: configured ones, which are taken for NVIDIA's.
    pub fn read(host: &HostRoot, majors: Option<&[u32]>) -> Self {
        let mut kinds = Self::of(&text(&host.proc("devices")), majors);
        if kinds.capabilities.is_some() {
            kinds.add_instances(&text(&host.proc("driver/nvidia-caps/mig-minors")));
        }
        kinds
    }

    fn of(devices: &str, majors: Option<&[u32]>) -> Self {
        let mut kinds = Self::default();
        if let Some(majors) = majors {
            kinds.gpus.extend(majors);
            return kinds;
        }
        let characters = devices.split("Block devices:").next().unwrap_or_default();
        for line in characters.lines() {
            let Some((number, name)) = line.trim().split_once(' ') else { continue };
            let Ok(major) = number.parse() else { continue };
            match name.trim() {
                "nvidia-caps" => kinds.capabilities = Some(major),
                name if !name.starts_with("nvidia") => {}
                _ if major == NVIDIA => {
                    kinds.gpus.insert(major);
                }
                _ => {
                    kinds.others.insert(major);
                }
            }
        }
        kinds
    }

    /// Lines such as `gpu0/gi7/access 66` and `gpu0/gi7/ci0/access 67`; `config 1` and `monitor 2` are of no instance.
    fn add_instances(&mut self, minors: &str) {
        for line in minors.lines() {
            if let Some((minor, node)) = instance(line)
                && self.instances.len() < CAPABILITIES_MAX
            {
                self.instances.insert(minor, node);
            }
        }
    }

    /// No driver is there.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty() && self.capabilities.is_none() && self.others.is_empty()
    }

    /// `None`: not the driver's. `Some(None)`: the driver's, but of no device.
    pub fn node(&self, major: u32, minor: u32) -> Option<Option<OpenNode>> {
        if self.gpus.contains(&major) {
            return Some((minor <= GPU_MAX).then_some(OpenNode::Gpu { minor }));
        }
        if self.capabilities == Some(major) {
            return Some(self.instances.get(&minor).copied());
        }
        self.others.contains(&major).then_some(None)
    }
}

fn instance(line: &str) -> Option<(u32, OpenNode)> {
    let (path, minor) = line.trim().rsplit_once(' ')?;
    let mut parts = path.strip_suffix("/access")?.split('/');
    let mut number = |prefix: &str| parts.next().map(|part| part.strip_prefix(prefix)?.parse().ok());
    let (gpu, instance, compute) = (number("gpu")??, number("gi")??, number("ci"));
    let compute = match compute {
        None => None,
        Some(compute) => Some(compute?),
    };
    parts.next().is_none().then_some((minor.parse().ok()?, OpenNode::Instance { gpu, instance, compute }))
}

/// A file as text; one that is not there has none.
fn text(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    const DEVICES: &str = "Character devices:\n  4 tty\n195 nvidia\n195 nvidiactl\n235 nvidia-caps\n\
        236 nvidia-caps-imex-channels\n511 nvidia-uvm\n\nBlock devices:\n259 nvidia-not-this\n";
    const MINORS: &str = "config 1\nmonitor 2\ngpu0/gi7/access 66\ngpu0/gi7/ci0/access 67\ngpu12/gi0/ci3/access 900\n\
        gpux/gi1/access 5\ngpu0/gi1/ci0/x/access 6\ngpu0/gi1/cix/access 7\ngpu0/access 8\ngpu0/gi1/access x\n";

    #[test]
    fn each_number_says_what_it_is() {
        let dir = TestDir::new();
        let host = HostRoot { proc: dir.path().to_owned(), ..HostRoot::default() };
        assert!(Kinds::read(&host, None).is_empty(), "no file");
        std::fs::create_dir_all(dir.path().join("driver/nvidia-caps")).unwrap();
        std::fs::write(dir.path().join("devices"), DEVICES).unwrap();
        std::fs::write(dir.path().join("driver/nvidia-caps/mig-minors"), MINORS).unwrap();
        let kinds = Kinds::read(&host, None);
        let part = |gpu, instance, compute| Some(OpenNode::Instance { gpu, instance, compute });
        for ((major, minor), want) in [
            ((195, 0), Some(Some(OpenNode::Gpu { minor: 0 }))),
            ((195, 247), Some(Some(OpenNode::Gpu { minor: 247 }))),
            ((195, 254), Some(None)),
            ((195, 255), Some(None)),
            ((235, 66), Some(part(0, 7, None))),
            ((235, 67), Some(part(0, 7, Some(0)))),
            ((235, 900), Some(part(12, 0, Some(3)))),
            ((235, 1), Some(None)),
            ((235, 5), Some(None)),
            ((235, 8), Some(None)),
            ((236, 0), Some(None)),
            ((511, 0), Some(None)),
            ((259, 0), None),
            ((4, 0), None),
        ] {
            assert_eq!(kinds.node(major, minor), want, "{major}:{minor}");
        }
        assert_eq!(kinds.instances.len(), 3);
    }

    #[test]
    fn configured_majors_stand_for_nvidias() {
        let kinds = Kinds::of(DEVICES, Some(&[4]));
        assert_eq!(kinds.node(4, 3), Some(Some(OpenNode::Gpu { minor: 3 })));
        assert_eq!((kinds.node(195, 0), kinds.is_empty()), (None, false));
        assert!(Kinds::of("Character devices:\n  4 tty\n", None).is_empty());
    }
}
