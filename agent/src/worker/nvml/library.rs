//! The real NVML: nvml-wrapper, and what dcgm-ffi adds to it, behind the core's trait.
//!
//! In: calls of the core. Out: what the driver answers, in DCGM's units. What can go wrong: an older driver lacks a
//! function; its fields are "not supported".

use std::fmt;
use std::path::Path;

use dcgm_ffi::nvml_more::{LoadedNvml, NvmlMore};
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};

use super::driver::{Driver, Each, Fault, Gpu, Mig, Place, Process, Query, Said, Used};
use super::state;
use crate::model::signal::GpuContext;
use crate::model::{Origin, Pid};
use crate::wire::report::{Content, Kind};
use crate::worker::cpu_list;
use crate::worker::link::{Calling, Link};
use crate::worker::threads::LOAD;

/// CPUs a node may have, for the affinity's mask; the kernel's own bound on x86.
const CPUS: usize = 8_192;
const MIB: u64 = 1024 * 1024;

/// An open library.
pub(super) struct Opened<'a> {
    nvml: Nvml,
    link: &'a Link,
    how: String,
}

/// Why there is no library at work.
pub(super) struct Unopened {
    pub(super) reason: &'static str,
    pub(super) report: Kind,
}

impl fmt::Debug for Opened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opened")
    }
}

impl<'a> Opened<'a> {
    /// Opens the library at a path, or the driver's own; the call that loads it may have begun.
    ///
    /// # Errors
    /// No library, or a library without a driver.
    pub(super) fn open(
        path: Option<&Path>,
        link: &'a Link,
        loading: Option<Calling>,
    ) -> Result<Self, Box<Unopened>> {
        let no_library = |words: String| {
            Err(Box::new(Unopened { reason: "no_library", report: state::no_library(words) }))
        };
        let loading = loading.unwrap_or_else(|| link.begin(Origin::Nvml, LOAD, ""));
        let loaded = LoadedNvml::load(path);
        loading.end(loaded.is_ok());
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return no_library(error.to_string()),
        };
        let calling = link.begin(Origin::Nvml, "nvmlInitWithFlags", "");
        let opened = loaded.initialize();
        calling.end(opened.is_ok());
        let name = path.map_or_else(|| "libnvidia-ml.so.1".to_owned(), |path| path.display().to_string());
        match opened {
            Ok(nvml) => Ok(Self { nvml, link, how: name }),
            Err(e @ (NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound)) => {
                no_library(format!("{name} is no NVML: {e}"))
            }
            Err(e) => {
                let report = state::no_driver(format!("{name}: {e}"));
                Err(Box::new(Unopened { reason: "no_driver", report }))
            }
        }
    }

    /// Which library it is.
    pub(super) fn how(&self) -> String {
        self.how.clone()
    }

    fn call<T>(&self, name: &'static str, about: &str, f: impl FnOnce() -> Result<T, NvmlError>) -> Said<T> {
        let calling = self.link.begin(Origin::Nvml, name, about);
        let answer = f();
        calling.end(answer.is_ok());
        answer.map_err(fault)
    }

    fn device(&self, place: Place, about: &str) -> Said<Device<'_>> {
        match place {
            Place::Gpu(index) => {
                self.call("nvmlDeviceGetHandleByIndex_v2", about, || self.nvml.device_by_index(index))
            }
            Place::Mig(gpu, index) => {
                let parent = self.device(Place::Gpu(gpu), about)?;
                self.call("nvmlDeviceGetMigDeviceHandleByIndex", about, || parent.mig_device_by_index(index))
            }
        }
    }

    /// One number under one field.
    fn one(
        &self,
        query: &Query,
        about: &str,
        each: Each<'_>,
        f: impl FnOnce() -> Result<Content, NvmlError>,
    ) -> Said<()> {
        let content = self.call(query.call(), about, f)?;
        for field in query.fields() {
            each(field, Ok(content.clone()));
        }
        Ok(())
    }

    fn memory(&self, device: &Device<'_>, query: &Query, about: &str, each: Each<'_>) -> Said<()> {
        let memory = self.call(query.call(), about, || device.memory_info())?;
        // Field 252 is what is in use without what the driver keeps for itself; 254 is its share of the rest.
        let usable = memory.total.saturating_sub(memory.reserved);
        each(250, Ok(int(memory.total / MIB)));
        each(251, Ok(int(memory.free / MIB)));
        each(252, Ok(int(memory.used / MIB)));
        each(253, Ok(int(memory.reserved / MIB)));
        if usable > 0 {
            each(254, Ok(Content::Number(memory.used as f64 / usable as f64)));
        }
        Ok(())
    }

    fn values(&self, device: &Device<'_>, ids: &[(u16, u32)], about: &str, each: Each<'_>) -> Said<()> {
        let wanted: Vec<FieldId> = ids.iter().map(|(_, nvml)| FieldId(*nvml)).collect();
        let values = self.call("nvmlDeviceGetFieldValues", about, || device.field_values_for(&wanted))?;
        for ((field, _), value) in ids.iter().zip(values) {
            each(
                *field,
                value.and_then(|sample| sample.value).map_err(|e| fault(e).absence()).map(|v| of(*field, &v)),
            );
        }
        Ok(())
    }
}

/// A field value in DCGM's unit: NVML's milliwatts are watts there.
fn of(field: u16, value: &SampleValue) -> Content {
    let content = match value {
        SampleValue::F64(x) => Content::Number(*x),
        SampleValue::U32(n) => Content::Int((*n).into()),
        SampleValue::U64(n) => int(*n),
        SampleValue::I64(n) => Content::Int(*n),
    };
    match content {
        Content::Int(milliwatts) if field == 157 => Content::Number(milliwatts as f64 / 1e3),
        other => other,
    }
}

fn int(n: u64) -> Content {
    Content::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

fn fault(error: NvmlError) -> Fault {
    match error {
        NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            Fault::NotSupported
        }
        NvmlError::NoPermission => Fault::NotPermitted,
        NvmlError::NotFound | NvmlError::NoData => Fault::NotFound,
        NvmlError::GpuLost | NvmlError::ResetRequired => Fault::Lost,
        e @ (NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch) => {
            Fault::NoDriver(e.to_string())
        }
        e => Fault::Other(e.to_string()),
    }
}

impl Driver for Opened<'_> {
    fn versions(&self) -> Said<(String, String)> {
        let driver = self.call("nvmlSystemGetDriverVersion", "", || self.nvml.sys_driver_version())?;
        let library = self.call("nvmlSystemGetNVMLVersion", "", || self.nvml.sys_nvml_version())?;
        Ok((driver, library))
    }

    fn count(&self) -> Said<u32> {
        self.call("nvmlDeviceGetCount_v2", "", || self.nvml.device_count())
    }

    fn uuid(&self, index: u32) -> Said<String> {
        let device = self.device(Place::Gpu(index), "")?;
        self.call("nvmlDeviceGetUUID", "", || device.uuid())
    }

    fn gpu(&self, index: u32) -> Said<Gpu> {
        let uuid = self.uuid(index)?;
        let device = self.device(Place::Gpu(index), &uuid)?;
        let about = uuid.as_str();
        let architecture = self.call("nvmlDeviceGetArchitecture", about, || device.architecture());
        let cpus = self.call("nvmlDeviceGetCpuAffinity", about, || device.cpus_near(CPUS));
        Ok(Gpu {
            minor: self.call("nvmlDeviceGetMinorNumber", about, || device.minor_number()).ok(),
            pci: self.call("nvmlDeviceGetPciInfo_v3", about, || device.pci_info()).ok().map(|pci| pci.bus_id),
            model: self.call("nvmlDeviceGetName", about, || device.name()).ok(),
            serial: self.call("nvmlDeviceGetSerial", about, || device.serial()).ok(),
            architecture: architecture
                .ok()
                .map(|architecture| architecture.to_string().to_ascii_lowercase())
                .filter(|name| name != "unknown"),
            cpu_affinity: cpus.ok().and_then(|cpus| cpu_list::of(&cpus)),
            uuid,
        })
    }

    fn instances(&self, index: u32, about: &str) -> Said<Vec<Mig>> {
        let device = self.device(Place::Gpu(index), about)?;
        let most = match self.call("nvmlDeviceGetMaxMigDeviceCount", about, || device.mig_device_count()) {
            Ok(most) => most.min(64),
            Err(Fault::NotSupported) => 0,
            Err(fault) => return Err(fault),
        };
        let mut all = Vec::new();
        for at in 0..most {
            // Places without a device are in between.
            let name = "nvmlDeviceGetMigDeviceHandleByIndex";
            let mig = match self.call(name, about, || device.mig_device_by_index(at)) {
                Ok(mig) => mig,
                Err(Fault::NoDriver(words)) => return Err(Fault::NoDriver(words)),
                Err(Fault::Lost) => return Err(Fault::Lost),
                Err(_) => continue,
            };
            let Ok(uuid) = self.call("nvmlDeviceGetUUID", about, || mig.uuid()) else { continue };
            let profile = self.call("nvmlDeviceGetName", &uuid, || mig.mig_profile()).ok();
            let gi = self.call("nvmlDeviceGetGpuInstanceId", &uuid, || mig.gpu_instance_id()).ok();
            let ci = self.call("nvmlDeviceGetComputeInstanceId", &uuid, || mig.compute_instance_id()).ok();
            let start = gi.and_then(|gi| {
                let ask = || device.gpu_instance_start(gi);
                self.call("nvmlGpuInstanceGetInfo", &uuid, ask).ok()
            });
            all.push(Mig { uuid, index: at, profile, ids: (gi, ci), start });
        }
        Ok(all)
    }

    fn processes(&self, place: Place, kind: GpuContext, about: &str) -> Said<Vec<Process>> {
        let device = self.device(place, about)?;
        let listed = match kind {
            GpuContext::Compute => self.call("nvmlDeviceGetComputeRunningProcesses_v3", about, || {
                device.running_compute_processes()
            })?,
            GpuContext::Graphics => self.call("nvmlDeviceGetGraphicsRunningProcesses_v3", about, || {
                device.running_graphics_processes()
            })?,
            GpuContext::Mps => self.call("nvmlDeviceGetMPSComputeRunningProcesses_v3", about, || {
                device.mps_running_compute_processes()
            })?,
        };
        let process = |info: nvml_wrapper::struct_wrappers::device::ProcessInfo| Process {
            pid: Pid(info.pid),
            memory: match info.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        };
        Ok(listed.into_iter().map(process).collect())
    }

    fn used_since(&self, index: u32, since_us: u64, about: &str) -> Said<Vec<Used>> {
        let device = self.device(Place::Gpu(index), about)?;
        let name = "nvmlDeviceGetProcessUtilization";
        let samples = match self.call(name, about, || device.process_utilization_stats(since_us)) {
            Ok(samples) => samples,
            // No process used anything since.
            Err(Fault::NotFound) => Vec::new(),
            Err(fault) => return Err(fault),
        };
        Ok(samples.into_iter().map(|s| Used { pid: s.pid, at_us: s.timestamp, sm: s.sm_util }).collect())
    }

    fn read(&self, place: Place, query: &Query, about: &str, each: Each<'_>) -> Said<()> {
        let device = self.device(place, about)?;
        match query {
            Query::Temperature => self.one(query, about, each, || {
                device.temperature(TemperatureSensor::Gpu).map(|n| Content::Int(n.into()))
            }),
            Query::Power => self.one(query, about, each, || {
                device.power_usage().map(|milliwatts| Content::Number(f64::from(milliwatts) / 1e3))
            }),
            Query::Utilization => {
                let both = self.call(query.call(), about, || device.utilization_rates())?;
                each(203, Ok(Content::Int(both.gpu.into())));
                each(204, Ok(Content::Int(both.memory.into())));
                Ok(())
            }
            Query::Encoder => self.one(query, about, each, || {
                device.encoder_utilization().map(|info| Content::Int(info.utilization.into()))
            }),
            Query::Decoder => self.one(query, about, each, || {
                device.decoder_utilization().map(|info| Content::Int(info.utilization.into()))
            }),
            Query::SmClock => {
                self.one(query, about, each, || device.clock_info(Clock::SM).map(|n| Content::Int(n.into())))
            }
            Query::MemoryClock => self
                .one(query, about, each, || device.clock_info(Clock::Memory).map(|n| Content::Int(n.into()))),
            Query::EventReasons => {
                self.one(query, about, each, || device.current_throttle_reasons().map(|r| int(r.bits())))
            }
            Query::Memory => self.memory(&device, query, about, each),
            Query::PState => self.one(query, about, each, || {
                device.performance_state().map(|state| Content::Int(state.as_c().into()))
            }),
            Query::PcieReplays => {
                self.one(query, about, each, || device.pcie_replay_counter().map(|n| Content::Int(n.into())))
            }
            Query::Values(ids) => self.values(&device, ids, about, each),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Absence;

    #[test]
    fn nvmls_units_become_dcgms() {
        assert_eq!(of(157, &SampleValue::U32(312_500)), Content::Number(312.5));
        assert_eq!(of(156, &SampleValue::U64(7)), Content::Int(7));
        assert_eq!(of(140, &SampleValue::U32(41)), Content::Int(41));
        assert_eq!(int(u64::MAX), Content::Int(i64::MAX));
    }

    #[test]
    fn a_fault_says_what_to_do_next() {
        let check = |error: NvmlError, want: Absence| assert_eq!(fault(error).absence(), want);
        check(NvmlError::NotSupported, Absence::NotSupported);
        check(NvmlError::FailedToLoadSymbol("nvmlX".into()), Absence::NotSupported);
        check(NvmlError::NoPermission, Absence::NotPermitted);
        check(NvmlError::GpuLost, Absence::DeviceLost);
        check(NvmlError::DriverNotLoaded, Absence::SourceDown);
        check(NvmlError::Unknown, Absence::Blank);
    }
}
