//! Which devices of the host are read: NVIDIA's GPUs on the PCI bus, and the ports of InfiniBand adapters.
//!
//! In: sysfs, looked through now and then. Out: [`Device`]s with their files open.
//! What can go wrong: names that are no names, or devices beyond the limit; they are left out, and the limit is said.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::host::HostRoot;
use crate::model::{
    Absence, Field, HostField, MonoNs, Origin, Part, PciAddress, Reading, SampleValue, Samples, Subject,
};

use super::value_file::{BUFFER, Gone, ValueFile};

/// Most devices and ports read. The largest nodes have 16 GPUs and 18 ports; each costs up to 7 descriptors.
const DEVICES_MAX: usize = 64;
/// NVIDIA, as sysfs prints it.
const VENDOR: &str = "0x10de";
/// Base class of display controllers; 3D controllers are part of it. The file has class, subclass and interface.
const DISPLAY: &str = "0x03";

const OF_GPU: [(HostField, &str); 7] = [
    (HostField::PcieLinkSpeed, "current_link_speed"),
    (HostField::PcieLinkSpeedMax, "max_link_speed"),
    (HostField::PcieLinkWidth, "current_link_width"),
    (HostField::PcieLinkWidthMax, "max_link_width"),
    (HostField::AerCorrectable, "aer_dev_correctable"),
    (HostField::AerNonFatal, "aer_dev_nonfatal"),
    (HostField::AerFatal, "aer_dev_fatal"),
];

const OF_PORT: [(HostField, &str); 5] = [
    (HostField::IbState, "state"),
    (HostField::IbPhysState, "phys_state"),
    (HostField::IbRate, "rate"),
    (HostField::IbLinkDowned, "counters/link_downed"),
    (HostField::IbSymbolErrors, "counters/symbol_error"),
];

/// A device, or a port, that is read.
#[derive(Debug)]
pub struct Device {
    subject: Subject,
    files: Vec<ValueFile>,
}

impl Device {
    fn open(subject: Subject, folder: &Path, files: &[(HostField, &str)]) -> Self {
        let open = |(field, name): &(HostField, &str)| ValueFile::open(*field, &folder.join(name));
        Self { subject, files: files.iter().map(open).collect() }
    }

    /// All of its values; `None` where nothing is new (every reason was said before).
    ///
    /// # Errors
    /// It is gone.
    pub fn read(&mut self, at: MonoNs, buffer: &mut [u8; BUFFER]) -> Result<Option<Samples>, Gone> {
        let mut readings = Vec::with_capacity(self.files.len());
        for file in &mut self.files {
            if let Some(value) = file.read(buffer)? {
                readings.push(Reading { at, field: Field::Host(file.field), value });
            }
        }
        Ok((!readings.is_empty()).then(|| self.samples(readings)))
    }

    /// What is said of a device that is gone: none of its values exists any more.
    pub fn gone(&self, at: MonoNs) -> Samples {
        let value = SampleValue::Absent(Absence::NotFound);
        let reading = |file: &ValueFile| Reading { at, field: Field::Host(file.field), value: value.clone() };
        self.samples(self.files.iter().map(reading).collect())
    }

    fn samples(&self, readings: Vec<Reading>) -> Samples {
        Samples { subject: self.subject.clone(), origin: Origin::Host, readings }
    }
}

/// All devices, by what they are.
#[derive(Debug, Default)]
pub struct Devices {
    open: BTreeMap<Subject, Device>,
    said_full: bool,
}

impl Devices {
    /// Looks for devices that came, and tells of those that went.
    ///
    /// # Errors
    /// There is no PCI bus to look at: the host's sysfs is not where it is expected, or may not be read.
    pub fn look(&mut self, host: &HostRoot, at: MonoNs, out: &mut Vec<Samples>) -> io::Result<()> {
        let mut found = BTreeMap::new();
        gpus(&host.sys("bus/pci/devices"), &mut found)?;
        // a node without such an adapter has no such folder
        let _ = ports(&host.sys("class/infiniband"), &mut found);
        self.open.retain(|subject, device| {
            let stays = found.contains_key(subject);
            if stays {
                // Whoever reads may know the device by another name since, and has not heard its reasons.
                device.files.iter_mut().for_each(ValueFile::say_again);
            } else {
                out.push(device.gone(at));
            }
            stays
        });
        for (subject, (folder, files)) in found {
            if DEVICES_MAX <= self.open.len() {
                if !std::mem::replace(&mut self.said_full, true) {
                    tracing::warn!(
                        most = DEVICES_MAX,
                        "More devices than are read; the others are left out."
                    );
                }
                break;
            }
            self.open
                .entry(subject)
                .or_insert_with_key(|subject| Device::open(subject.clone(), &folder, files));
        }
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Reads them all; those that are gone are told and left.
    pub fn read(&mut self, now: impl Fn() -> MonoNs, buffer: &mut [u8; BUFFER], out: &mut Vec<Samples>) {
        self.open.retain(|_, device| match device.read(now(), buffer) {
            Ok(samples) => {
                out.extend(samples);
                true
            }
            Err(Gone) => {
                out.push(device.gone(now()));
                false
            }
        });
    }
}

/// Where the files of a device lie, and which they are.
type Found = BTreeMap<Subject, (std::path::PathBuf, &'static [(HostField, &'static str)])>;

fn gpus(folder: &Path, found: &mut Found) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(address) = name.and_then(PciAddress::parse) else { continue };
        let begins = |file: &str, with: &str| {
            fs::read(path.join(file)).is_ok_and(|text| text.starts_with(with.as_bytes()))
        };
        if begins("vendor", VENDOR) && begins("class", DISPLAY) && !is_virtual(&path) {
            let subject = Subject { hw_id: Arc::from(address.to_string()), part: Part::Whole };
            found.insert(subject, (path, &OF_GPU));
        }
    }
    Ok(())
}

fn ports(folder: &Path, found: &mut Found) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name)) else {
            continue;
        };
        if is_virtual(&path.join("device")) {
            continue;
        }
        let hw_id: Arc<str> = name.into();
        // an adapter that goes away meanwhile takes no other with it
        for port in fs::read_dir(path.join("ports")).into_iter().flatten().flatten() {
            let port = port.path();
            let number = port.file_name().and_then(|number| number.to_str()?.parse().ok());
            let Some(number) = number.filter(|number| (1..=255).contains(number)) else { continue };
            found.insert(Subject { hw_id: Arc::clone(&hw_id), part: Part::Port(number) }, (port, &OF_PORT));
        }
    }
    Ok(())
}

/// A virtual function has its physical function's link: it would be counted again.
fn is_virtual(device: &Path) -> bool {
    device.join("physfn").exists()
}

/// As drivers and udev name adapters; what goes into a metric's attribute is bounded.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    (1..=63).contains(&name.len()) && name.bytes().all(plain)
}
