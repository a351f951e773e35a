//! What nvml-wrapper 0.13 lacks of NVML.
//!
//! In: its [`Device`], and through it the same libnvidia-ml, whose functions it has found already. Out: ids
//! of MIG instances, the name of a MIG profile, the recovery action, near CPUs and memory as numbers. What
//! can go wrong: what [`NvmlError`] says; an older driver lacks a function: [`NvmlError::FailedToLoadSymbol`]
//! names none, the calls here say in their texts since when they are there.
//!
//! | wanted | by |
//! |---|---|
//! | compute processes with memory and MIG ids | nvml-wrapper: `running_compute_processes` (v3) |
//! | the same, graphics and MPS | nvml-wrapper: `running_graphics_processes`, `mps_running_compute_…` |
//! | SM use per process | nvml-wrapper: `process_utilization_stats`; `NotFound` when nobody used the GPU |
//! | MIG mode, parent, UUID | nvml-wrapper: `mig_mode`, `mig_parent_device`, `uuid` |
//! | index, minor, PCI, UUID, serial | nvml-wrapper: `index`, `minor_number`, `pci_info`, `uuid`, `serial` |
//! | NUMA node of a GPU that is one, near memory | nvml-wrapper: `numa_node_id`, `memory_affinity` |
//! | recovery action | nvml-wrapper's `field_values_for` with the id and the meanings from here |
//! | near CPUs as numbers | nvml-wrapper's `cpu_affinity`, taken apart here |
//! | all MIG devices (over `mig_device_by_index`), GPU and compute instance id, profile | here |
//!
//! Structures are those of nvml-wrapper-sys, generated from the vendor's `nvml.h`; each call passes one with
//! the size and version that the same bindings declare for the function.

use std::ffi::c_ulong;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Loaded, RTLD_LAZY, RTLD_LOCAL};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};

use crate::error::Error;
use crate::library::unloaded;

/// The name that a driver installs; the one without a number exists only with the development package, but is
/// what nvml-wrapper tries by itself.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Source: `nvml.h`, `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`. Drivers from 560 on know it.
const FIELD_RECOVERY_ACTION: u32 = 230;
/// Profiles are asked by an index below this: `nvml.h` has 17 of them today.
const PROFILES_MAX: u32 = 64;
/// Version of the structure of a profile. Source: `nvml.h`, `nvmlGpuInstanceProfileInfo_v2`.
const PROFILE_VERSION: u32 = 2;
/// Bits of a word of a set of CPUs or of memory nodes.
const WORD_BITS: usize = usize::BITS as usize;
/// Most MIG devices that a GPU is asked for; today there are 7 instances of 7 at most.
const MIG_MAX: u32 = 64;

/// A libnvidia-ml that is loaded and not initialized: a step of its own, since either may hang.
pub struct LoadedNvml {
    name: PathBuf,
    /// Until nvml-wrapper has it as well.
    _loaded: Loaded,
}

impl LoadedNvml {
    /// Loads NVML: the library at a path, or the one that the driver installed.
    ///
    /// # Errors
    /// [`Error::Missing`] or [`Error::Open`].
    pub fn load(path: Option<&Path>) -> Result<Self, Error> {
        let name = path.unwrap_or(Path::new(LIBRARY)).to_path_buf();
        // SAFETY: opening runs the file's constructors; that this file is trusted is the user's word, as with
        // any program that is started. The flags are those of nvml-wrapper, which opens the same file next.
        match unsafe { Loaded::open(Some(&name), RTLD_LAZY | RTLD_LOCAL) } {
            Ok(loaded) => Ok(Self { name, _loaded: loaded }),
            Err(error) => Err(unloaded(&name, &error)),
        }
    }

    /// Initializes it.
    ///
    /// # Errors
    /// [`NvmlError::LibloadingError`] when it is no NVML, [`NvmlError::DriverNotLoaded`] without a driver.
    pub fn initialize(self) -> Result<Nvml, NvmlError> {
        Nvml::builder().lib_path(self.name.as_os_str()).init()
    }
}

/// What the driver wants done with a GPU. Source: `nvml.h`, `nvmlDeviceGpuRecoveryAction_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecoveryAction {
    /// Nothing.
    None,
    /// Reset the GPU.
    Reset,
    /// Restart the node.
    Reboot,
    /// End all work that uses peer-to-peer transfers, then ask again.
    DrainP2p,
    /// Let the work end, then reset: the GPU has lost capacity.
    DrainAndReset,
    /// Of a newer driver.
    Other(u32),
}

impl RecoveryAction {
    /// The action of a number.
    pub fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::None,
            1 => Self::Reset,
            2 => Self::Reboot,
            3 => Self::DrainP2p,
            4 => Self::DrainAndReset,
            other => Self::Other(other),
        }
    }
}

/// Further calls of a device.
pub trait NvmlMore<'nvml> {
    /// The MIG devices of a GPU; none without MIG.
    ///
    /// # Errors
    /// As NVML.
    fn mig_devices(&self) -> Result<Vec<Device<'nvml>>, NvmlError>;

    /// NVML's id of the GPU instance that a MIG device is in. Drivers from 450 on.
    ///
    /// # Errors
    /// [`NvmlError::InvalidArg`] or [`NvmlError::NotSupported`] for a device that is not MIG.
    fn gpu_instance_id(&self) -> Result<u32, NvmlError>;

    /// NVML's id of the compute instance that a MIG device is. Drivers from 450 on.
    ///
    /// # Errors
    /// As [`NvmlMore::gpu_instance_id`].
    fn compute_instance_id(&self) -> Result<u32, NvmlError>;

    /// A MIG device's profile, such as `1g.12gb+me` or `1c.3g.40gb`, by its own name, which needs no rights;
    /// else the profile of its GPU instance, which needs root.
    ///
    /// # Errors
    /// As NVML.
    fn mig_profile(&self) -> Result<String, NvmlError>;

    /// The profile of a GPU's GPU instance by the instance's id. Needs root. Drivers from 510 on.
    ///
    /// # Errors
    /// [`NvmlError::NoPermission`], [`NvmlError::NotFound`].
    fn gpu_instance_profile(&self, instance: u32) -> Result<String, NvmlError>;

    /// The first memory slice of a GPU's GPU instance by the instance's id. Needs root.
    ///
    /// # Errors
    /// [`NvmlError::NoPermission`], [`NvmlError::NotFound`].
    fn gpu_instance_start(&self, instance: u32) -> Result<u32, NvmlError>;

    /// What the driver wants done with the GPU.
    ///
    /// # Errors
    /// [`NvmlError::NotSupported`] or [`NvmlError::InvalidArg`] on drivers before 560.
    fn recovery_action(&self) -> Result<RecoveryAction, NvmlError>;

    /// CPUs near the GPU, by the kernel's numbers, rising. `possible`: how many CPUs the node can have.
    ///
    /// # Errors
    /// [`NvmlError::NotSupported`].
    fn cpus_near(&self, possible: usize) -> Result<Vec<u32>, NvmlError>;
}

impl<'nvml> NvmlMore<'nvml> for Device<'nvml> {
    fn mig_devices(&self) -> Result<Vec<Device<'nvml>>, NvmlError> {
        let most = match self.mig_device_count() {
            Ok(most) => most.min(MIG_MAX),
            Err(NvmlError::NotSupported) => 0,
            Err(error) => return Err(error),
        };
        let mut devices = Vec::new();
        for index in 0..most {
            match self.mig_device_by_index(index) {
                Ok(device) => devices.push(device),
                // The places need not be filled without gaps; with MIG off none is.
                Err(NvmlError::NotFound | NvmlError::InvalidArg | NvmlError::NotSupported) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(devices)
    }

    fn gpu_instance_id(&self) -> Result<u32, NvmlError> {
        let ask = nvml_sym(self.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
        let mut id = 0;
        // SAFETY: the handle is valid as long as its `Nvml`, which outlives the device; the number is ours.
        nvml_try(unsafe { ask(self.handle(), &raw mut id) })?;
        Ok(id)
    }

    fn compute_instance_id(&self) -> Result<u32, NvmlError> {
        let ask = nvml_sym(self.nvml().lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
        let mut id = 0;
        // SAFETY: as above.
        nvml_try(unsafe { ask(self.handle(), &raw mut id) })?;
        Ok(id)
    }

    fn mig_profile(&self) -> Result<String, NvmlError> {
        match profile_in(&self.name()?) {
            Some(profile) => Ok(profile.into()),
            None => self.mig_parent_device()?.gpu_instance_profile(self.gpu_instance_id()?),
        }
    }

    fn gpu_instance_profile(&self, instance: u32) -> Result<String, NvmlError> {
        let lib = self.nvml().lib();
        let profile_of = nvml_sym(lib.nvmlDeviceGetGpuInstanceProfileInfoV.as_ref())?;
        let (wanted, _) = instance_info(self, instance)?;
        // An instance tells its profile's id, but a profile is asked by its index.
        for index in 0..PROFILES_MAX {
            let mut profile = room(*profile_of);
            let stamp = size_of_val(&profile) as u32 | PROFILE_VERSION << 24;
            // SAFETY: the structure begins with its version, a u32.
            unsafe { profile.as_mut_ptr().cast::<u32>().write(stamp) };
            // SAFETY: the handle is valid; the structure has the type that the bindings declare for this
            // function and carries its size and version.
            let asked = nvml_try(unsafe { profile_of(self.handle(), index, profile.as_mut_ptr()) });
            // SAFETY: plain numbers and an array of characters, for which zero is a value: initialized either
            // way.
            let profile = unsafe { profile.assume_init() };
            match asked {
                Ok(()) if profile.id == wanted => {
                    let name = crate::abi::text(&profile.name);
                    return Ok(profile_in(&name).unwrap_or(&name).into());
                }
                Ok(()) | Err(NvmlError::NotSupported | NvmlError::InvalidArg) => {}
                Err(error) => return Err(error),
            }
        }
        Err(NvmlError::NotFound)
    }

    fn gpu_instance_start(&self, instance: u32) -> Result<u32, NvmlError> {
        Ok(instance_info(self, instance)?.1)
    }

    fn recovery_action(&self) -> Result<RecoveryAction, NvmlError> {
        let mut values = self.field_values_for(&[FieldId(FIELD_RECOVERY_ACTION)])?;
        let value = values.pop().ok_or(NvmlError::NotFound)??.value?;
        let raw = match value {
            SampleValue::U32(raw) => raw,
            SampleValue::U64(raw) => u32::try_from(raw).unwrap_or(u32::MAX),
            SampleValue::I64(raw) => u32::try_from(raw).unwrap_or(u32::MAX),
            SampleValue::F64(_) => return Err(NvmlError::Unknown),
        };
        Ok(RecoveryAction::from_raw(raw))
    }

    fn cpus_near(&self, possible: usize) -> Result<Vec<u32>, NvmlError> {
        Ok(bits(&self.cpu_affinity(possible.div_ceil(WORD_BITS).max(1))?))
    }
}

/// Number of the profile and first memory slice of a GPU instance.
fn instance_info(gpu: &Device<'_>, instance: u32) -> Result<(u32, u32), NvmlError> {
    let lib = gpu.nvml().lib();
    let by_id = nvml_sym(lib.nvmlDeviceGetGpuInstanceById.as_ref())?;
    let info_of = nvml_sym(lib.nvmlGpuInstanceGetInfo.as_ref())?;
    let mut handle = std::ptr::null_mut();
    // SAFETY: the device's handle is valid; the new handle is ours to be written. It is the driver's
    // object and need not be given back.
    nvml_try(unsafe { by_id(gpu.handle(), instance, &raw mut handle) })?;
    let mut info = MaybeUninit::zeroed();
    // SAFETY: the handle was just given; the structure has the type that the bindings declare.
    nvml_try(unsafe { info_of(handle, info.as_mut_ptr()) })?;
    // SAFETY: plain numbers and a pointer, for which zero is a value, so it is initialized either way.
    let info = unsafe { info.assume_init() };
    Ok((info.profileId, info.placement.start))
}

/// A zeroed structure of the type that the bindings declare for a function.
fn room<A, B, T, R>(_filled_by: unsafe extern "C" fn(A, B, *mut T) -> R) -> MaybeUninit<T> {
    MaybeUninit::zeroed()
}

/// The profile in a name like `NVIDIA H100 80GB HBM3 MIG 1g.10gb` or `MIG 1g.10gb+me`.
pub fn profile_in(name: &str) -> Option<&str> {
    let profile = name.rsplit_once("MIG ").map(|(_, profile)| profile.trim())?;
    let slices = profile.bytes().take_while(u8::is_ascii_digit).count();
    let known = profile.get(slices..).is_some_and(|rest| rest.starts_with("g.") || rest.starts_with("c."));
    (0 < slices && known && !profile.contains(char::is_whitespace)).then_some(profile)
}

/// Numbers of the bits that are set.
fn bits(words: &[c_ulong]) -> Vec<u32> {
    let bits = |(at, word): (usize, &c_ulong)| {
        let (word, base) = (*word, at * WORD_BITS);
        (0..WORD_BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| (base + bit) as u32)
    };
    words.iter().enumerate().flat_map(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_in_a_name() {
        let cases = [
            ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", Some("1g.10gb")),
            ("MIG 1g.12gb+me", Some("1g.12gb+me")),
            ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", Some("1c.3g.20gb")),
            ("MIG 1g.12gb+me.all", Some("1g.12gb+me.all")),
            ("NVIDIA H100 80GB HBM3", None),
            ("MIG ", None),
            ("MIG g.10gb", None),
            ("MIG 1g.10gb extra", None),
            ("", None),
        ];
        for (name, profile) in cases {
            assert_eq!(profile_in(name), profile, "{name}");
        }
    }

    #[test]
    fn actions_are_numbers() {
        for (raw, action) in [
            (0, RecoveryAction::None),
            (1, RecoveryAction::Reset),
            (2, RecoveryAction::Reboot),
            (3, RecoveryAction::DrainP2p),
            (4, RecoveryAction::DrainAndReset),
            (9, RecoveryAction::Other(9)),
        ] {
            assert_eq!(RecoveryAction::from_raw(raw), action);
        }
    }

    #[test]
    fn a_set_is_bits_of_words() {
        assert_eq!(bits(&[0b101, 0, 1 << 63]), [0, 2, 191]);
        assert_eq!(bits(&[]), Vec::<u32>::new());
    }

    #[test]
    fn a_missing_library_is_an_error() {
        let error = LoadedNvml::load(Some(Path::new("/nowhere/libnvidia-ml.so.1"))).err().unwrap();
        let said = error.to_string();
        assert!(said.starts_with("/nowhere/libnvidia-ml.so.1 is not found: "), "{said}");
        assert!(said.contains("No such file"), "{said}");
    }
}
