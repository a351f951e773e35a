//! A scripted driver for the tests of the core.
//!
//! In: what a test puts in. Out: answers. What can go wrong: nothing.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::driver::{Driver, Each, Fault, Gpu, Mig, Place, Process, Query, Said, Used};
use crate::model::signal::GpuContext;
use crate::model::{MonoNs, Pid};
use crate::wire::report::Content;
use crate::worker::moment::Moment;

/// Pids with their memory, by device and kind of list.
type Listed = HashMap<(Place, u8), Vec<(u32, u64)>>;

#[derive(Debug)]
pub(super) struct Fake {
    pub(super) now: Cell<Moment>,
    pub(super) gpus: RefCell<BTreeMap<u32, Said<Gpu>>>,
    pub(super) migs: RefCell<Vec<(u32, Mig)>>,
    pub(super) processes: RefCell<Listed>,
    pub(super) used: RefCell<Vec<Used>>,
    pub(super) asked_since: RefCell<Vec<u64>>,
    /// Fields that take this long to read.
    pub(super) slow: RefCell<HashMap<u16, Duration>>,
    pub(super) refused: RefCell<HashMap<u16, Fault>>,
    /// Only this GPU is slow.
    pub(super) slow_gpu: RefCell<Option<u32>>,
    pub(super) gone: Cell<bool>,
    /// The number of GPUs is not told.
    pub(super) listless: Cell<bool>,
    /// How often a GPU was asked for all that names it.
    pub(super) identities: Cell<u32>,
}

pub(super) fn kind(context: GpuContext) -> u8 {
    match context {
        GpuContext::Compute => 0,
        GpuContext::Graphics => 1,
        GpuContext::Mps => 2,
    }
}

impl Fake {
    pub(super) fn new(gpus: u32) -> Self {
        let gpu = |index: u32| Gpu {
            uuid: format!("GPU-{index}"),
            minor: Some(index),
            pci: Some(format!("00000000:3{index}:00.0")),
            model: Some("NVIDIA H100 NVL".into()),
            serial: Some("165".into()),
            architecture: Some("hopper".into()),
            cpu_affinity: Some("0-31".into()),
        };
        Self {
            now: Cell::new(Moment { mono: MonoNs(1_000_000_000_000), wall_us: 1_700_000_000_000_000 }),
            gpus: RefCell::new((0..gpus).map(|index| (index, Ok(gpu(index)))).collect()),
            migs: RefCell::default(),
            processes: RefCell::default(),
            used: RefCell::default(),
            asked_since: RefCell::default(),
            slow: RefCell::default(),
            refused: RefCell::default(),
            slow_gpu: RefCell::default(),
            gone: Cell::new(false),
            listless: Cell::new(false),
            identities: Cell::new(0),
        }
    }

    fn answers(&self, index: u32) -> Said<Gpu> {
        self.gpus.borrow().get(&index).cloned().unwrap_or(Err(Fault::NotFound))
    }

    pub(super) fn pass(&self, time: Duration) {
        let now = self.now.get();
        let us = i64::try_from(time.as_micros()).unwrap();
        self.now.set(Moment { mono: now.mono.after(time), wall_us: now.wall_us + us });
    }
}

impl Driver for Fake {
    fn versions(&self) -> Said<(String, String)> {
        Ok(("580.142".into(), "13.580.142".into()))
    }

    fn count(&self) -> Said<u32> {
        if self.gone.get() {
            return Err(Fault::NoDriver("driver not loaded".into()));
        }
        if self.listless.get() {
            return Err(Fault::Other("unknown error".into()));
        }
        Ok(u32::try_from(self.gpus.borrow().len()).unwrap())
    }

    fn uuid(&self, index: u32) -> Said<String> {
        self.answers(index).map(|gpu| gpu.uuid)
    }

    fn gpu(&self, index: u32) -> Said<Gpu> {
        self.identities.set(self.identities.get() + 1);
        self.answers(index)
    }

    fn instances(&self, index: u32, _: &str) -> Said<Vec<Mig>> {
        Ok(self.migs.borrow().iter().filter(|(gpu, _)| *gpu == index).map(|(_, mig)| mig.clone()).collect())
    }

    fn processes(&self, place: Place, context: GpuContext, _: &str) -> Said<Vec<Process>> {
        if let Place::Gpu(index) = place {
            self.answers(index)?;
        }
        let listed = self.processes.borrow().get(&(place, kind(context))).cloned().unwrap_or_default();
        Ok(listed.into_iter().map(|(pid, bytes)| Process { pid: Pid(pid), memory: Some(bytes) }).collect())
    }

    fn used_since(&self, _: u32, since_us: u64, _: &str) -> Said<Vec<Used>> {
        self.asked_since.borrow_mut().push(since_us);
        Ok(self.used.borrow().clone())
    }

    fn read(&self, place: Place, query: &Query, _: &str, each: Each<'_>) -> Said<()> {
        if let Place::Gpu(index) = place {
            self.answers(index)?;
        }
        let is_slow = self.slow_gpu.borrow().is_none_or(|gpu| place == Place::Gpu(gpu));
        for field in query.fields() {
            if let Some(time) = self.slow.borrow().get(&field).filter(|_| is_slow) {
                self.pass(*time);
            }
            match self.refused.borrow().get(&field) {
                Some(fault) => each(field, Err(fault.absence())),
                None => each(field, Ok(Content::Int(field.into()))),
            }
        }
        Ok(())
    }
}
