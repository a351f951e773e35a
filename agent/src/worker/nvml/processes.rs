//! Who runs on each device, with what memory and SM use.
//!
//! In: NVML's three lists and its utilisation samples. Out: one report per device, each time. What can go wrong: a GPU
//! that does not answer gets no report: who ran there may still do so. A use above 100 percent is none.

use std::collections::BTreeMap;

use super::collector::{Collector, Known, LOST, processes};
use super::driver::{Driver, Fault, Place, Said};
use crate::model::signal::GpuContext;
use crate::wire::report::Process;
use crate::worker::moment::Moment;

/// The lists, in the order of preference where a process is in two. A client of MPS is in the compute list too.
const KINDS: [(GpuContext, u32); 3] =
    [(GpuContext::Mps, 2), (GpuContext::Compute, 0), (GpuContext::Graphics, 1)];
/// More than any GPU runs.
const MOST: usize = 4_096;
/// The driver reads the clock a moment after us. Unit: µs.
const AHEAD_US: u64 = 1_000_000;

impl<D: Driver> Collector<'_, D> {
    /// Reports the processes of each device.
    ///
    /// # Errors
    /// The driver is gone.
    pub(super) fn tell_processes(&mut self, now: Moment) -> Said<()> {
        // Out of the way, so that it need not be copied.
        let all = std::mem::take(&mut self.known);
        let told = all.iter().filter(|known| known.device.state != LOST).try_for_each(|known| {
            // A GPU with MIG devices has its processes told by them.
            let listed = if known.is_parted { Some(Vec::new()) } else { self.list_processes(known, now)? };
            if let Some(listed) = listed {
                self.link.send(processes(known, now, listed));
            }
            Ok(())
        });
        self.known = all;
        told
    }

    fn list_processes(&mut self, known: &Known, now: Moment) -> Said<Option<Vec<Process>>> {
        let mut by_pid: BTreeMap<u32, Process> = BTreeMap::new();
        let mut answered = false;
        for (kind, context) in KINDS {
            match self.driver.processes(known.place, kind, &known.device.hw_id) {
                Ok(listed) => {
                    answered = true;
                    for process in listed.into_iter().take(MOST) {
                        let pid = process.pid.0;
                        let fresh = Process { pid, memory: process.memory, sm_utilization: None, context };
                        by_pid.entry(pid).or_insert(fresh);
                    }
                }
                Err(Fault::NoDriver(words)) => return Err(Fault::NoDriver(words)),
                Err(_) => {}
            }
        }
        if !answered {
            return Ok(None);
        }
        // MIG devices have no such samples.
        if let (Place::Gpu(index), false) = (known.place, by_pid.is_empty()) {
            self.add_use(index, &known.device.hw_id, now, &mut by_pid)?;
        }
        Ok(Some(by_pid.into_values().collect()))
    }

    /// Adds the newest sample of each process since the last reading.
    fn add_use(
        &mut self,
        index: u32,
        hw_id: &str,
        now: Moment,
        by_pid: &mut BTreeMap<u32, Process>,
    ) -> Said<()> {
        // A time that is still to come is of before the clock was set back.
        let now_us = u64::try_from(now.wall_us).unwrap_or_default().saturating_add(AHEAD_US);
        let since = self.seen_us.get(&index).copied().filter(|seen| *seen <= now_us).unwrap_or_default();
        let used = match self.driver.used_since(index, since, hw_id) {
            Ok(used) => used,
            Err(Fault::NoDriver(words)) => return Err(Fault::NoDriver(words)),
            Err(_) => return Ok(()),
        };
        let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
        for sample in
            used.into_iter().filter(|sample| (since + 1..=now_us).contains(&sample.at_us) && sample.sm <= 100)
        {
            let at = newest.entry(sample.pid).or_default();
            if sample.at_us >= *at {
                *at = sample.at_us;
                if let Some(process) = by_pid.get_mut(&sample.pid) {
                    process.sm_utilization = Some(f64::from(sample.sm) / 100.0);
                }
            }
        }
        if let Some(at) = newest.into_values().max() {
            self.seen_us.insert(index, at);
        }
        Ok(())
    }
}
