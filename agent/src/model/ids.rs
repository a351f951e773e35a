//! Identities: processes, threads, devices, cgroups, containers and pods.
//!
//! In: numbers and texts that sources have parsed. Out: values that cannot be mixed up.
//! What can go wrong: a pid is reused, so a process is its pid *and* its start time.

use std::fmt;

/// A thread-group id in the host's pid namespace; what user space calls a pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

/// A thread id in the host's pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

/// When a process began, in clock ticks (10 ms) after boot. Source: field 22 of /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartTicks(pub u64);

impl StartTicks {
    /// From the kernel's `start_boottime` in nanoseconds; USER_HZ is 100 on all supported architectures.
    pub fn from_boottime_ns(ns: u64) -> Self {
        Self(ns / 10_000_000)
    }
}

/// A cgroup's id: its kernfs node id, which is the inode number of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

/// A device node's number, as `major:minor`. Names the driver file, not the GPU: most calls go through nvidiactl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNode {
    /// Character-device major; NVIDIA's is 195, UVM's is dynamic.
    pub major: u32,
    /// Minor within the major; 255 under 195 is nvidiactl.
    pub minor: u32,
}

impl fmt::Display for DeviceNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl DeviceNode {
    /// Reads `major:minor`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// A PCI address in the one form used everywhere: `dddd:bb:dd.f`, lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number. Not checked against PCI's range of 32: logs have been seen with more.
    pub device: u8,
    /// Function number; 0 where a log line has none.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl PciAddress {
    /// Reads `[domain:]bus:device[.function]`, hexadecimal; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, function) = text.split_once('.').unwrap_or((text, "0"));
        let mut parts = address.rsplit(':');
        let (device, bus) = (parts.next()?, parts.next()?);
        let domain = parts.next().unwrap_or("0");
        if parts.next().is_some() {
            return None;
        }
        Some(Self {
            domain: hex(domain)?,
            bus: u8::try_from(hex(bus)?).ok()?,
            device: u8::try_from(hex(device)?).ok()?,
            function: u8::try_from(hex(function)?).ok().filter(|f| *f < 8)?,
        })
    }
}

/// Digits only: `from_str_radix` alone would take a sign.
fn hex(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_come_out_in_one_form() {
        for (text, want) in [
            ("0000:3b:00", Some("0000:3b:00.0")),
            ("3B:00", Some("0000:3b:00.0")),
            ("0001:ab:cd", Some("0001:ab:cd.0")),
            ("00000000:0C:00.1", Some("0000:0c:00.1")),
            ("invalid", None),
            ("...", None),
            ("+1:00:00", None),
            ("1:2:3:4", None),
            ("0000:3b:00.9", None),
            ("0000:1ff:00", None),
            ("", None),
        ] {
            assert_eq!(PciAddress::parse(text).map(|a| a.to_string()).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn device_nodes_read_back() {
        let node = DeviceNode { major: 195, minor: 255 };
        assert_eq!(DeviceNode::parse(&node.to_string()), Some(node));
        assert_eq!(DeviceNode::parse("195"), None);
    }
}
