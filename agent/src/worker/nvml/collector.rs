//! The NVML thread's core: what is where, who runs there, and the basic fields where DCGM is not.
//!
//! In: a [`Driver`] and the time. Out: reports. What can go wrong: a GPU is lost; its name stays as it was, its values
//! are absent, and the library is opened anew, since a handle of it does not come back to life.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::basic::{Plan, RECOVERY, TOO_SLOW};
use super::driver::{Driver, Fault, Gpu, Mig, Place, Query, Said};
use super::state;
use crate::model::MonoNs;
use crate::wire::report::{self, Content, Device, Inventory, Kind, Samples, Value};
use crate::worker::keys::Keys;
use crate::worker::link::Link;
use crate::worker::moment::Moment;
use crate::worker::numa::NumaNode;

/// How often devices are looked for, and the recovery action is read.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// This origin's number on the wire.
const ORIGIN: u32 = 2;
/// `Device.state` of one that does not answer.
pub(super) const LOST: u32 = 1;

/// A device that is read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) place: Place,
    pub(super) device: Device,
    /// A GPU that has MIG devices.
    pub(super) is_parted: bool,
}

/// What outlives the library.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) keys: Keys,
    /// Identity of GPUs by index: for those that cannot say it any more.
    gpus: BTreeMap<u32, Gpu>,
    /// Lost when the library was closed, by index: a library that is opened anew may not list them at all.
    lost: BTreeMap<u32, Gpu>,
    pub(super) last: HashMap<(u32, u16), Result<Content, crate::model::Absence>>,
}

/// NVML at work, until its driver goes away.
#[derive(Debug)]
pub(super) struct Collector<'a, D> {
    pub(super) driver: &'a D,
    pub(super) link: &'a Link,
    pub(super) memory: &'a mut Memory,
    pub(super) known: Vec<Known>,
    numa: &'a dyn NumaNode,
    pub(super) every: Duration,
    /// By device.
    plans: HashMap<u32, Plan>,
    /// The list was refused, and that was told.
    is_listless: bool,
    versions: (String, String),
    /// Newest utilisation sample by GPU index.
    pub(super) seen_us: BTreeMap<u32, u64>,
    look_due: MonoNs,
    read_due: MonoNs,
}

impl<'a, D: Driver> Collector<'a, D> {
    /// Lists the devices.
    ///
    /// # Errors
    /// The driver is gone.
    pub(super) fn open(
        driver: &'a D,
        link: &'a Link,
        memory: &'a mut Memory,
        numa: &'a dyn NumaNode,
        every: Duration,
        now: MonoNs,
    ) -> Said<Self> {
        let versions = match driver.versions() {
            Err(Fault::NoDriver(words)) => return Err(Fault::NoDriver(words)),
            told => told.unwrap_or_default(),
        };
        let mut collector = Self {
            driver,
            link,
            memory,
            known: Vec::new(),
            numa,
            every: every.max(Duration::from_millis(100)),
            plans: HashMap::new(),
            is_listless: false,
            versions,
            seen_us: BTreeMap::new(),
            look_due: now.after(LOOK_EVERY),
            read_due: now,
        };
        collector.known = collector.list()?;
        collector.tell_inventory();
        Ok(collector)
    }

    /// Does what is due; answers when the next thing is. `basic`: DCGM does not give the basic fields.
    ///
    /// # Errors
    /// The driver is gone.
    pub(super) fn step(&mut self, basic: bool, clock: &dyn Fn() -> Moment) -> Said<MonoNs> {
        let now = clock();
        if now.mono >= self.look_due {
            self.look_due = now.mono.after(LOOK_EVERY);
            let listed = self.list()?;
            if listed != self.known {
                self.known = listed;
                self.tell_inventory();
                // Devices that are gone for good need no memory.
                let is_here = |key: &u32| self.known.iter().any(|known| known.device.key == *key);
                self.plans.retain(|key, _| is_here(key));
                self.memory.last.retain(|(key, _), _| is_here(key));
            }
            self.plans.values_mut().for_each(|plan| plan.forgive(now.mono));
            self.read_recovery(now)?;
        }
        if now.mono >= self.read_due {
            self.read_due = now.mono.after(self.every);
            self.tell_processes(clock())?;
            if basic {
                self.read_basic(clock)?;
            }
        }
        Ok(self.look_due.min(self.read_due))
    }

    /// The release of the library, and of the driver behind it.
    pub(super) fn library(&self) -> String {
        let (driver, nvml) = &self.versions;
        format!("NVML {nvml}, driver {driver}")
    }

    /// A GPU is lost: only opening the library anew can bring it back.
    pub(super) fn has_lost(&self) -> bool {
        self.known.iter().any(|known| known.device.state == LOST)
    }

    /// Remembers which GPUs are lost, for the library that is opened next.
    pub(super) fn remember_lost(&mut self) {
        for known in self.known.iter().filter(|known| known.device.state == LOST) {
            if let Place::Gpu(index) = known.place
                && let Some(gpu) = self.memory.gpus.get(&index).filter(|gpu| gpu.uuid == known.device.hw_id)
            {
                self.memory.lost.insert(index, gpu.clone());
            }
        }
    }

    fn list(&mut self) -> Said<Vec<Known>> {
        let mut all = Vec::new();
        let count = match self.driver.count() {
            Ok(count) => count,
            Err(Fault::NoDriver(words)) => return Err(Fault::NoDriver(words)),
            Err(fault) => {
                // It says nothing about the devices: what was listed last holds.
                if !std::mem::replace(&mut self.is_listless, true) {
                    self.link.send(state::no_list(format!("nvmlDeviceGetCount_v2: {fault}")));
                }
                return Ok(self.known.clone());
            }
        };
        self.is_listless = false;
        for index in 0..count {
            let (gpu, mut state) = match self.identity(index) {
                Ok(gpu) => (gpu, 0),
                Err(Fault::NoDriver(words)) => return Err(Fault::NoDriver(words)),
                Err(Fault::Lost) => match self.memory.gpus.get(&index) {
                    // Indexes may have moved since: a GPU that is listed by itself is not this one.
                    Some(gpu) if all.iter().all(|known: &Known| known.device.hw_id != gpu.uuid) => {
                        (gpu.clone(), LOST)
                    }
                    _ => continue,
                },
                Err(_) => continue,
            };
            self.memory.gpus.insert(index, gpu.clone());
            let instances = match self.driver.instances(index, &gpu.uuid) {
                Ok(instances) => instances,
                Err(Fault::NoDriver(words)) => return Err(Fault::NoDriver(words)),
                Err(Fault::Lost) => {
                    state = LOST;
                    Vec::new()
                }
                Err(_) => Vec::new(),
            };
            let Some(device) = self.device(index, gpu, state) else { continue };
            let migs: Vec<Known> =
                instances.into_iter().filter_map(|mig| self.instance(index, mig, &device)).collect();
            all.push(Known { place: Place::Gpu(index), device, is_parted: !migs.is_empty() });
            all.extend(migs);
        }
        let is_listed = |gpu: &Gpu| all.iter().any(|known: &Known| known.device.hw_id == gpu.uuid);
        self.memory.lost.retain(|_, gpu| !is_listed(gpu));
        for (index, gpu) in self.memory.lost.clone() {
            // It is not asked anything: its index is another one's now.
            let device = self.device(index, gpu, LOST);
            all.extend(device.map(|device| Known { place: Place::Gpu(index), device, is_parted: false }));
        }
        Ok(all)
    }

    fn device(&mut self, index: u32, gpu: Gpu, state: u32) -> Option<Device> {
        let key = self.memory.keys.of(&gpu.uuid)?;
        let pci = gpu.pci.as_deref().map(crate::worker::pci_text::kernel_form);
        Some(Device {
            hw_id: gpu.uuid,
            key,
            kind: 1,
            state,
            index: Some(index),
            minor: gpu.minor,
            numa_node: pci.as_deref().and_then(|pci| self.numa.of(pci)),
            pci,
            model: gpu.model,
            serial: gpu.serial,
            architecture: gpu.architecture,
            cpu_affinity: gpu.cpu_affinity,
            ..Device::default()
        })
    }

    /// What names a GPU does not change: it is asked for once.
    fn identity(&self, index: u32) -> Said<Gpu> {
        let uuid = self.driver.uuid(index)?;
        match self.memory.gpus.get(&index).filter(|gpu| gpu.uuid == uuid) {
            Some(gpu) => Ok(gpu.clone()),
            None => self.driver.gpu(index),
        }
    }

    fn instance(&mut self, gpu: u32, mig: Mig, parent: &Device) -> Option<Known> {
        let device = Device {
            key: self.memory.keys.of(&mig.uuid)?,
            hw_id: mig.uuid,
            kind: 2,
            state: parent.state,
            parent: Some(parent.hw_id.clone()),
            pci: parent.pci.clone(),
            mig_profile: mig.profile,
            mig_index: Some(mig.index),
            gpu_instance: mig.ids.0,
            compute_instance: mig.ids.1,
            mig_start: mig.start,
            ..Device::default()
        };
        Some(Known { place: Place::Mig(gpu, mig.index), device, is_parted: false })
    }

    fn tell_inventory(&self) {
        self.link.send(Kind::Inventory(Inventory {
            origin: ORIGIN,
            devices: self.known.iter().map(|known| known.device.clone()).collect(),
            driver_version: self.versions.0.clone(),
            library_version: self.versions.1.clone(),
        }));
    }

    fn read_basic(&mut self, clock: &dyn Fn() -> Moment) -> Said<()> {
        for known in &self.known {
            let now = clock();
            let mut values = Vec::new();
            let plan = self.plans.entry(known.device.key).or_default();
            let (mut slow, mut fast) = (Vec::new(), Vec::new());
            for query in plan.of(known.place, known.is_parted) {
                let begun = clock().mono;
                ask(self.driver, known, query, &mut values)?;
                if clock().mono.since(begun).unwrap_or_default() > TOO_SLOW {
                    slow.push(query.clone());
                } else if plan.is_suspect(query) {
                    fast.push(query.clone());
                }
            }
            fast.iter().for_each(|query| plan.fast(query));
            // One slow field must not hold up all others, each time.
            for query in slow {
                if let Some(fields) = plan.slow(&query, now.mono) {
                    self.link.send(state::slow(query.call(), &fields));
                    let left_out = absent(crate::model::Absence::SourceDown);
                    values.retain(|value| fields.iter().all(|field| u32::from(*field) != value.field));
                    values.extend(fields.into_iter().map(|field| Value {
                        field: field.into(),
                        content: Some(left_out.clone()),
                        ..Value::default()
                    }));
                }
            }
            for value in &values {
                let Ok(field) = u16::try_from(value.field) else { continue };
                let known_as = match &value.content {
                    Some(Content::Absent(place)) => Err(absence(*place)),
                    Some(content) => Ok(content.clone()),
                    None => continue,
                };
                self.memory.last.insert((known.device.key, field), known_as);
            }
            self.link.send(samples(known, now, values));
        }
        Ok(())
    }

    /// DCGM has the recovery action only from 4.5 on, so it is read here whoever reads the rest.
    fn read_recovery(&self, now: Moment) -> Said<()> {
        for known in self.known.iter().filter(|known| matches!(known.place, Place::Gpu(_))) {
            let mut values = Vec::new();
            ask(self.driver, known, &Query::Values(vec![RECOVERY]), &mut values)?;
            self.link.send(samples(known, now, values));
        }
        Ok(())
    }
}

/// Asks one query of a device; a refusal is the absence of all its fields.
fn ask<D: Driver>(driver: &D, known: &Known, query: &Query, values: &mut Vec<Value>) -> Said<()> {
    // One that is lost is not asked: each such call may take long, and its index may be another one's.
    let asked =
        if known.device.state == LOST { Err(Fault::Lost) } else { read(driver, known, query, values) };
    match asked {
        Ok(()) => Ok(()),
        Err(Fault::NoDriver(words)) => Err(Fault::NoDriver(words)),
        Err(fault) => {
            let value = |field: u16| Value {
                field: field.into(),
                content: Some(absent(fault.absence())),
                ..Value::default()
            };
            values.extend(query.fields().into_iter().map(value));
            Ok(())
        }
    }
}

fn read<D: Driver>(driver: &D, known: &Known, query: &Query, values: &mut Vec<Value>) -> Said<()> {
    driver.read(known.place, query, &known.device.hw_id, &mut |field, content| {
        let content = content.unwrap_or_else(absent);
        values.push(Value { field: field.into(), content: Some(content), ..Value::default() });
    })
}

fn absent(why: crate::model::Absence) -> Content {
    let place = crate::model::Absence::ALL.iter().position(|a| *a == why).unwrap_or(0);
    Content::Absent(u32::try_from(place).unwrap_or(0))
}

fn absence(place: u32) -> crate::model::Absence {
    let all = crate::model::Absence::ALL;
    usize::try_from(place).ok().and_then(|at| all.get(at)).copied().unwrap_or(crate::model::Absence::Blank)
}

fn samples(known: &Known, now: Moment, values: Vec<Value>) -> Kind {
    let key = known.device.key;
    Kind::Samples(Samples { origin: ORIGIN, key, part: 0, part_number: 0, read_ns: now.mono.0, values })
}

/// The processes of a device as a report.
pub(super) fn processes(known: &Known, now: Moment, processes: Vec<report::Process>) -> Kind {
    Kind::Processes(report::Processes { key: known.device.key, read_ns: now.mono.0, processes })
}
