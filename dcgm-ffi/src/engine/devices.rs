//! GPUs: which there are, how they are, what does not change about them.
//!
//! In: an engine. Out: ids, states and attributes. What can go wrong: see [`Engine`]. Ids are stable for the
//! life of the engine only. Source: `dcgm_agent.h`, `dcgm_structs.h`.

use std::ffi::c_char;

use super::{Engine, check};
use crate::abi::{self, attributes::Attributes};
use crate::error::Error;
use crate::symbols::ListGpus;
use crate::value::{present_i32, present_str};

/// Most GPUs of an engine, `DCGM_MAX_NUM_DEVICES`.
pub(super) const GPUS_MAX: usize = 32;

/// State of a GPU. Source: `DcgmEntityStatus_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuStatus {
    /// Not known.
    Unknown,
    /// In order, as far as the engine knows: a GPU that hangs is too.
    Ok,
    /// DCGM does not support it.
    Unsupported,
    /// It does not answer.
    Inaccessible,
    /// It has fallen off the bus. It may come back under its id.
    Lost,
    /// Made by a test.
    Fake,
    /// Switched off by the engine.
    Disabled,
    /// The engine has let go of the driver.
    Detached,
    /// A state of a newer engine.
    Other(u32),
}

impl GpuStatus {
    /// The state of a number.
    pub fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Unknown,
            1 => Self::Ok,
            2 => Self::Unsupported,
            3 => Self::Inaccessible,
            4 => Self::Lost,
            5 => Self::Fake,
            6 => Self::Disabled,
            7 => Self::Detached,
            other => Self::Other(other),
        }
    }
}

/// Generation of a GPU; ordered by age. Source: `dcgmChipArchitecture_t`, which follows
/// `nvmlDeviceArchitecture_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "names of the vendor")]
pub enum Architecture {
    Older,
    Kepler,
    Maxwell,
    Pascal,
    Volta,
    Turing,
    Ampere,
    Ada,
    Hopper,
    Blackwell,
    /// A later one.
    Newer(u32),
}

impl Architecture {
    /// The generation of a number; None where the library does not know it.
    pub fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            0 | u32::MAX => return None,
            1 => Self::Older,
            2 => Self::Kepler,
            3 => Self::Maxwell,
            4 => Self::Pascal,
            5 => Self::Volta,
            6 => Self::Turing,
            7 => Self::Ampere,
            8 => Self::Ada,
            9 => Self::Hopper,
            10 => Self::Blackwell,
            newer => Self::Newer(newer),
        })
    }
}

/// What does not change about a GPU, and its memory at the moment of the call. None: the engine does not
/// know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// Brand.
    pub brand: Option<String>,
    /// Model.
    pub name: Option<String>,
    /// PCI address as NVML writes it: 8 digits of domain.
    pub pci_bus_id: Option<String>,
    /// Serial number of the board.
    pub serial: Option<String>,
    /// `GPU-…`.
    pub uuid: Option<String>,
    /// Version of the video BIOS.
    pub vbios: Option<String>,
    /// Version of the inforom.
    pub inforom: Option<String>,
    /// Version of the driver.
    pub driver_version: Option<String>,
    /// PCI device (upper half) and vendor (lower half).
    pub pci_device_id: Option<u32>,
    /// PCI subsystem device and vendor.
    pub pci_subsystem_id: Option<u32>,
    /// NVML's number of the virtualization mode.
    pub virtualization_mode: Option<u32>,
    /// Temperature of the first slowdown, °C.
    pub slowdown_celsius: Option<u32>,
    /// Temperature of the shutdown, °C.
    pub shutdown_celsius: Option<u32>,
    /// Power limit set now, W.
    pub power_limit_watts: Option<u32>,
    /// Power limit after start, W.
    pub power_limit_default_watts: Option<u32>,
    /// Power limit in force, the least of all that apply, W.
    pub power_limit_enforced_watts: Option<u32>,
    /// Least power limit that can be set, W.
    pub power_limit_min_watts: Option<u32>,
    /// Greatest power limit that can be set, W.
    pub power_limit_max_watts: Option<u32>,
    /// Size of BAR1, MiB.
    pub bar1_total_mib: Option<u32>,
    /// Memory, MiB.
    pub memory_total_mib: Option<u32>,
    /// Memory in use, MiB.
    pub memory_used_mib: Option<u32>,
    /// Memory free, MiB.
    pub memory_free_mib: Option<u32>,
    /// The driver stays initialized without users.
    pub persistence: Option<bool>,
    /// MIG is on.
    pub mig: Option<bool>,
    /// NVML's number of the confidential-compute mode.
    pub confidential_compute: Option<u32>,
}

impl Engine<'_> {
    /// All GPUs, those unsupported, lost and detached too.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn all_gpus(&self) -> Result<Vec<u32>, Error> {
        self.list("dcgmGetAllDevices", self.library.symbols.all_gpus)
    }

    /// GPUs that DCGM supports and that are there now.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn supported_gpus(&self) -> Result<Vec<u32>, Error> {
        self.list("dcgmGetAllSupportedDevices", self.library.symbols.supported_gpus()?)
    }

    fn list(&self, function: &'static str, list: ListGpus) -> Result<Vec<u32>, Error> {
        let mut ids = [0; GPUS_MAX];
        let mut count = 0;
        // SAFETY: the array has the 32 places that the prototype asks for.
        check(function, unsafe { list(self.handle, ids.as_mut_ptr(), &raw mut count) })?;
        let count = usize::try_from(count).unwrap_or(0).min(GPUS_MAX);
        Ok(ids.into_iter().take(count).collect())
    }

    /// State of a GPU.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn gpu_status(&self, gpu: u32) -> Result<GpuStatus, Error> {
        let ask = self.library.symbols.gpu_status()?;
        let mut status = 0;
        // SAFETY: the number is ours for the time of the call.
        check("dcgmGetGpuStatus", unsafe { ask(self.handle, gpu, &raw mut status) })?;
        Ok(GpuStatus::from_raw(status))
    }

    /// Generation of a GPU; None where the engine does not know it.
    ///
    /// # Errors
    /// [`Error::Symbol`] before 4.2; [`Error::Call`].
    pub fn architecture(&self, gpu: u32) -> Result<Option<Architecture>, Error> {
        let ask = self.library.symbols.architecture()?;
        let mut raw = 0;
        // SAFETY: as above.
        check("dcgmGetGpuChipArchitecture", unsafe { ask(self.handle, gpu, &raw mut raw) })?;
        Ok(Architecture::from_raw(raw))
    }

    /// What does not change about a GPU. The driver is asked.
    ///
    /// # Errors
    /// [`Error::Call`]. A lost or hung GPU is none: its texts and numbers are missing.
    pub fn attributes(&self, gpu: u32) -> Result<DeviceAttributes, Error> {
        let ask = self.library.symbols.attributes()?;
        let mut raw = abi::stamped::<Attributes>();
        // SAFETY: the structure is ours for the time of the call and carries its version.
        check("dcgmGetDeviceAttributes", unsafe { ask(self.handle, gpu, &raw mut *raw) })?;
        Ok(of_raw(&raw))
    }
}

fn of_raw(raw: &Attributes) -> DeviceAttributes {
    let ids = &raw.identifiers;
    DeviceAttributes {
        brand: text(&ids.brand),
        name: text(&ids.name),
        pci_bus_id: text(&ids.pci_bus_id),
        serial: text(&ids.serial),
        uuid: text(&ids.uuid),
        vbios: text(&ids.vbios),
        inforom: text(&ids.inforom),
        driver_version: text(&ids.driver_version),
        pci_device_id: number_of_pci(ids.pci_device_id),
        pci_subsystem_id: number_of_pci(ids.pci_subsystem_id),
        virtualization_mode: number(ids.virtualization_mode),
        slowdown_celsius: number(raw.thermals.slowdown),
        shutdown_celsius: number(raw.thermals.shutdown),
        power_limit_watts: number(raw.power.current),
        power_limit_default_watts: number(raw.power.default),
        power_limit_enforced_watts: number(raw.power.enforced),
        power_limit_min_watts: number(raw.power.min),
        power_limit_max_watts: number(raw.power.max),
        bar1_total_mib: number(raw.memory.bar1_total),
        memory_total_mib: number(raw.memory.fb_total),
        memory_used_mib: number(raw.memory.fb_used),
        memory_free_mib: number(raw.memory.fb_free),
        persistence: number(raw.settings.persistence).map(|on| on != 0),
        mig: number(raw.settings.mig).map(|on| on != 0),
        confidential_compute: number(raw.settings.confidential_compute),
    }
}

/// A text; sentinels and nothing are none.
fn text(chars: &[c_char]) -> Option<String> {
    let text = abi::text(chars);
    present_str(&text).is_ok_and(|text| !text.is_empty()).then_some(text)
}

/// A number; sentinels are none. Numbers above the sentinels' range do not occur: they are W, MiB and °C.
fn number(raw: u32) -> Option<u32> {
    present_i32(raw.cast_signed()).ok().map(i32::cast_unsigned)
}

/// A PCI id uses all 32 bits; the sentinels are the four numbers only.
fn number_of_pci(raw: u32) -> Option<u32> {
    (!(0x7fff_fff0..=0x7fff_fff3).contains(&raw)).then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::zeroed;

    fn put(place: &mut [c_char], text: &str) {
        for (to, from) in place.iter_mut().zip(text.bytes()) {
            *to = from.cast_signed();
        }
    }

    #[test]
    fn sentinels_in_attributes_are_none() {
        let mut raw = zeroed::<Attributes>();
        put(&mut raw.identifiers.uuid, "GPU-1");
        put(&mut raw.identifiers.name, "<<<NULL>>>");
        raw.identifiers.pci_device_id = 0xf330_10de;
        raw.identifiers.pci_subsystem_id = 0x7fff_fff0;
        raw.power.max = 700;
        raw.power.min = 0x7fff_fff2;
        raw.settings.mig = 1;
        let attributes = of_raw(&raw);
        let want = DeviceAttributes {
            uuid: Some("GPU-1".into()),
            pci_device_id: Some(0xf330_10de),
            virtualization_mode: Some(0),
            slowdown_celsius: Some(0),
            shutdown_celsius: Some(0),
            power_limit_watts: Some(0),
            power_limit_default_watts: Some(0),
            power_limit_enforced_watts: Some(0),
            power_limit_max_watts: Some(700),
            bar1_total_mib: Some(0),
            memory_total_mib: Some(0),
            memory_used_mib: Some(0),
            memory_free_mib: Some(0),
            persistence: Some(false),
            mig: Some(true),
            confidential_compute: Some(0),
            ..DeviceAttributes::default()
        };
        assert_eq!(attributes, want);
    }

    #[test]
    fn states_and_generations_are_numbers() {
        assert_eq!(GpuStatus::from_raw(4), GpuStatus::Lost);
        assert_eq!(GpuStatus::from_raw(8), GpuStatus::Other(8));
        assert_eq!(Architecture::from_raw(9), Some(Architecture::Hopper));
        assert_eq!(Architecture::from_raw(u32::MAX), None);
        assert!(Architecture::from_raw(11) > Some(Architecture::Blackwell));
    }
}
