//! The NUMA node of a PCI device, which the vendors' libraries do not tell.
//!
//! In: a PCI address. Out: the node's number, as sysfs has it. Source: Documentation/ABI/testing/sysfs-bus-pci.
//! What can go wrong: no such device, or a machine with one node (`-1`): then there is none.

use std::path::PathBuf;

/// Tells the NUMA node of a PCI address.
pub trait NumaNode: std::fmt::Debug {
    /// The node of `dddd:bb:dd.f`.
    fn of(&self, pci: &str) -> Option<u32>;
}

/// The kernel's view of PCI devices.
#[derive(Debug)]
pub(super) struct Sysfs(pub(super) PathBuf);

impl NumaNode for Sysfs {
    fn of(&self, pci: &str) -> Option<u32> {
        // The address is the driver's text: it must not lead elsewhere.
        let is_address =
            pci.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.') && !pci.contains("..");
        let path = self.0.join("bus/pci/devices").join(pci).join("numa_node");
        std::fs::read_to_string(path).ok().filter(|_| is_address)?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn the_kernel_tells_the_node_and_no_text_leads_elsewhere() {
        let dir = TestDir::new();
        for (pci, text) in [("0000:3b:00.0", "1\n"), ("0000:5e:00.0", "-1\n"), ("elsewhere", "3\n")] {
            let folder = dir.path().join("bus/pci/devices").join(pci);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("numa_node"), text).unwrap();
        }
        let sysfs = Sysfs(dir.path().to_path_buf());
        for (pci, want) in [
            ("0000:3b:00.0", Some(1)),
            ("0000:5e:00.0", None),
            ("0000:af:00.0", None),
            ("elsewhere", None),
            ("../devices/0000:3b:00.0", None),
        ] {
            assert_eq!(sysfs.of(pci), want, "{pci}");
        }
    }
}
