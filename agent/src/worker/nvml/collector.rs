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

/// How often devices are looked for, and the recovery action is read.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// This origin's number on the wire.
const ORIGIN: u32 = 2;

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
    every: Duration,
    plan: Plan,
    versions: (String, String),
    /// Newest utilisation sample by GPU index.
    pub(super) seen_us: BTreeMap<u32, u64>,
    look_due: MonoNs,
    read_due: MonoNs,
}

/// Tells the NUMA node of a PCI address.
pub(super) trait NumaNode: std::fmt::Debug {
    fn of(&self, pci: &str) -> Option<u32>;
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
        let versions = driver.versions()?;
        let mut collector = Self {
            driver,
            link,
            memory,
            known: Vec::new(),
            numa,
            every: every.max(Duration::from_millis(100)),
            plan: Plan::default(),
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
            }
            self.plan.forgive(now.mono);
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

    /// A GPU is lost: only opening the library anew can bring it back.
    pub(super) fn has_lost(&self) -> bool {
        self.known.iter().any(|known| known.device.state == 1)
    }

    fn list(&mut self) -> Said<Vec<Known>> {
        let mut all = Vec::new();
        for index in 0..self.driver.count()? {
            let (gpu, mut state) = match self.identity(index) {
                Ok(gpu) => (gpu, 0),
                Err(Fault::NoDriver(words)) => return Err(Fault::NoDriver(words)),
                Err(Fault::Lost) => match self.memory.gpus.get(&index) {
                    // Indexes may have moved since: a GPU that is listed by itself is not this one.
                    Some(gpu) if all.iter().all(|known: &Known| known.device.hw_id != gpu.uuid) => {
                        (gpu.clone(), 1)
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
                    state = 1;
                    Vec::new()
                }
                Err(_) => Vec::new(),
            };
            let Some(key) = self.memory.keys.of(&gpu.uuid) else { continue };
            let pci = gpu.pci.as_deref().map(crate::worker::pci_text::kernel_form);
            let device = Device {
                hw_id: gpu.uuid.clone(),
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
            };
            let migs: Vec<Known> =
                instances.into_iter().filter_map(|mig| self.instance(index, mig, &device)).collect();
            all.push(Known { place: Place::Gpu(index), device, is_parted: !migs.is_empty() });
            all.extend(migs);
        }
        Ok(all)
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
            for query in self.plan.of(known.place, known.is_parted) {
                let begun = clock().mono;
                ask(self.driver, known, &query, &mut values)?;
                // One slow field must not hold up all others, each time.
                if clock().mono.since(begun).unwrap_or_default() > TOO_SLOW
                    && let Some(fields) = self.plan.slow(&query, now.mono)
                {
                    self.link.send(state::slow(query.call(), &fields));
                }
            }
            for value in &values {
                let content = value.content.clone();
                if let Ok(field) = u16::try_from(value.field) {
                    let known_as = match content {
                        Some(Content::Absent(place)) => Err(absence(place)),
                        Some(content) => Ok(content),
                        None => continue,
                    };
                    self.memory.last.insert((known.device.key, field), known_as);
                }
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
    let asked = driver.read(known.place, query, &known.device.hw_id, &mut |field, content| {
        let content = content.unwrap_or_else(absent);
        values.push(Value { field: field.into(), content: Some(content), ..Value::default() });
    });
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
