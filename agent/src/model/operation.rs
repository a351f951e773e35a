//! Names of driver operations: what an ioctl command is called.
//!
//! In: the device's major and the command as called. Out: an [`Operation`], such as `NV_ESC_RM_CONTROL`.
//! What can go wrong: an unknown driver or number; then the command itself is the name, in hexadecimal.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use super::{CallKind, DeviceNode};

/// The driver behind a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// nvidia.ko: /dev/nvidiactl and /dev/nvidiaN. The number is the low 8 bits of the command.
    Nvidia,
    /// nvidia-uvm.ko. The command is the bare number, all 32 bits.
    Uvm,
}

impl Family {
    /// The driver of this short name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "nvidia" => Some(Self::Nvidia),
            "uvm" => Some(Self::Uvm),
            _ => None,
        }
    }
}

/// An operation's name; equal for commands that differ only in the size of their argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// One of the driver's.
    Named(&'static str),
    /// A command nobody has named.
    Number(u32),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number:#x}"),
        }
    }
}

/// Which driver has which character-device major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Majors {
    uvm: Option<u32>,
}

/// Assigned to NVIDIA for good; nvidia-modeset shares it.
const NVIDIA_MAJOR: u32 = 195;
/// /dev/nvidia-modeset: one ioctl for everything, its real number is inside the argument.
const MODESET_MINOR: u32 = 254;

impl Majors {
    /// With UVM's major, which is dynamic; `None` while its module is not loaded.
    pub fn new(uvm: Option<u32>) -> Self {
        Self { uvm }
    }

    /// Reads the text of /proc/devices.
    pub fn from_proc_devices(text: &str) -> Self {
        let characters = text.split("Block devices:").next().unwrap_or_default();
        let uvm = characters.lines().find_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            (name.trim() == "nvidia-uvm").then(|| major.parse().ok()).flatten()
        });
        Self { uvm }
    }

    /// The driver of a node.
    pub fn family(&self, device: DeviceNode) -> Option<Family> {
        if device.major == NVIDIA_MAJOR && device.minor != MODESET_MINOR {
            return Some(Family::Nvidia);
        }
        (Some(device.major) == self.uvm).then_some(Family::Uvm)
    }

    /// The operation of a call; `None` for calls that are not ioctls, which their kind names already.
    pub fn operation(&self, kind: CallKind, op: u32, device: Option<DeviceNode>) -> Option<Operation> {
        (kind == CallKind::Ioctl).then(|| name(device.and_then(|d| self.family(d)), op))
    }
}

/// The name of an ioctl command of a driver, whose other bits say nothing where the driver looks at its number alone.
pub fn name(family: Option<Family>, op: u32) -> Operation {
    let number = if family == Some(Family::Nvidia) { op & 0xff } else { op };
    let known = family.and_then(|family| NAMES.get(&(family, number)).copied());
    known.map_or(Operation::Number(number), Operation::Named)
}

/// Whether some operation may be shown under this text: a name of the table, or a command in hexadecimal.
pub fn is_name(text: &str) -> bool {
    let is_number = |digits: &str| u32::from_str_radix(digits, 16).is_ok_and(|n| format!("{n:#x}") == text);
    NAMES.values().any(|name| *name == text) || text.strip_prefix("0x").is_some_and(is_number)
}

static NAMES: LazyLock<HashMap<(Family, u32), &'static str>> =
    LazyLock::new(|| include_str!("../../data/nv_ioctls.csv").lines().filter_map(row).collect());

/// The first three columns are never quoted; the meaning after them is for readers of the file.
fn row(line: &'static str) -> Option<((Family, u32), &'static str)> {
    let mut columns = line.splitn(4, ',');
    let family = match columns.next()? {
        "nvidia" => Family::Nvidia,
        "uvm" => Family::Uvm,
        _ => return None,
    };
    Some(((family, columns.next()?.parse().ok()?), columns.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(major: u32, minor: u32) -> Option<DeviceNode> {
        Some(DeviceNode { major, minor })
    }

    #[test]
    fn operations_are_named_by_driver_and_number() {
        let majors = Majors::new(Some(235));
        for (device, op, want) in [
            (node(195, 255), 0xc020_462a, "NV_ESC_RM_CONTROL"), // _IOWR('F', 42, 32 bytes)
            (node(195, 0), 0x2a, "NV_ESC_RM_CONTROL"),
            (node(195, 3), 0xc004_46c9, "NV_ESC_REGISTER_FD"),
            (node(195, 254), 0xc010_6d00, "0xc0106d00"), // modeset
            (node(235, 0), 0x3000_0001, "UVM_INITIALIZE"),
            (node(235, 0), 34, "UVM_FREE"),
            (node(235, 0), 999, "0x3e7"),
            (node(10, 232), 0x5607, "0x5607"),
            (node(195, 255), 0x01, "0x1"),
            (node(195, 255), 0xc004_4601, "0x1"),
            (None, 0x2a, "0x2a"),
        ] {
            let operation = majors.operation(CallKind::Ioctl, op, device);
            assert_eq!(operation.map(|o| o.to_string()).as_deref(), Some(want), "{device:?} {op:#x}");
        }
        assert_eq!(majors.operation(CallKind::Close, 0, node(195, 255)), None);
    }

    #[test]
    fn uvm_is_found_among_the_character_devices_only() {
        let text = "Character devices:\n  1 mem\n195 nvidia\n235 nvidia-uvm\n236 nvidia-uvm-tools\n\nBlock devices:\n  8 sd\n";
        assert_eq!(Majors::from_proc_devices(text), Majors::new(Some(235)));
        assert_eq!(Majors::from_proc_devices("Block devices:\n235 nvidia-uvm\n"), Majors::new(None));
        assert_eq!(Majors::from_proc_devices(""), Majors::new(None));
    }

    #[test]
    fn names_and_commands_can_be_told_from_typing_errors() {
        let right = ["NV_ESC_RM_CONTROL", "UVM_FREE", "0x5607"].map(is_name);
        let wrong = ["NV_ESC_TYPO", "0x05607", "0x", "5607", ""].map(is_name);
        assert_eq!((right, wrong), ([true; 3], [false; 5]));
    }

    #[test]
    fn every_row_of_the_table_is_read() {
        let mut reader = csv::Reader::from_reader(include_str!("../../data/nv_ioctls.csv").as_bytes());
        let rows: Vec<_> = reader.records().map(|row| row.expect("four columns")).collect();
        assert_eq!(rows.len(), NAMES.len());
        for row in rows {
            let family = if &row[0] == "nvidia" { Family::Nvidia } else { Family::Uvm };
            assert_eq!(NAMES.get(&(family, row[1].parse().unwrap())).copied(), Some(&row[2]));
        }
    }
}
