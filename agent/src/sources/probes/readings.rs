//! What is read once a second: finished calls, sums, processes; who is followed; what may be deleted.
//!
//! In: the maps of the kernel programs, procfs. Out: signals, deleted keys.
//! What can go wrong: a map that cannot be changed ends the watch; a file of procfs that cannot be read means that nobody
//! knows whether its process lives, and then nothing of it is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use aya::maps::MapError;
use warpgauge_ebpf::calls::{kind, layer};
use warpgauge_ebpf::event::KnownProcess;
use warpgauge_ebpf::lock::{Held, HeldKey};
use warpgauge_ebpf::maps::{HISTOGRAM_ENTRIES, OFF_ENTRIES, OFF_SUM_ENTRIES, PROCESS_ENTRIES, RM_ENTRIES};
use warpgauge_ebpf::rm::{RmKey, RmSum};
use warpgauge_ebpf::schedule::{Off, OffKey, OffSum};

use super::kernel::Support;
use super::processes::Facts;
use super::rm_calls::RmCalls;
use super::schedule::Order;
use super::tactics::{Choice, Probe};
use super::thread_files::{Stat, ThreadFiles};
use super::totals::Life;
use super::watch::{Watch, ignore_absence, walk};
use crate::host::hidden::is_hidden;
use crate::host::{HostRoot, mono_now};
use crate::model::signal::{SourceState, XID_REPORTS};
use crate::model::{Pid, Signal, StartTicks, Tid};

/// What is looked up about processes; once per reading, however many maps have them.
#[derive(Debug, Default)]
pub struct Lives {
    known: BTreeMap<u32, (Life, Option<u32>)>,
    rm_calls: Vec<(RmKey, RmSum)>,
    processes: Vec<(u32, KnownProcess)>,
    off_sums: Vec<(OffKey, OffSum)>,
}

/// How many readings apart the locks of the dead are looked for.
const GARBAGE_EVERY: u64 = 10;

impl Watch {
    /// Takes an order to follow a process, or not to.
    ///
    /// # Errors
    /// The map cannot be changed.
    pub fn take_order(&mut self, order: Order) -> Result<(), MapError> {
        self.schedule.take(order, mono_now());
        self.follow()
    }

    pub(super) fn read_sums(&mut self) -> Result<(), MapError> {
        self.readings += 1;
        self.lives.known.clear();
        walk(&self.loaded.histograms, HISTOGRAM_ENTRIES, &mut self.histograms);
        self.numbers.histograms.set(self.histograms.len() as u64);
        walk(&self.loaded.rm_calls, RM_ENTRIES, &mut self.lives.rm_calls);
        self.numbers.rm_calls.set(self.lives.rm_calls.len() as u64);
        walk(&self.loaded.processes, PROCESS_ENTRIES, &mut self.lives.processes);
        self.numbers.processes.set(self.lives.processes.len() as u64);
        let now = mono_now();
        let emit = &mut |signal| self.said.push(signal);
        let mut node = OfNode {
            host: &self.host,
            host_pids: self.host_pids,
            files: &mut self.files,
            calling: &self.calling,
            known: &mut self.lives.known,
        };
        let mut life = |tgid| node.life(tgid);
        let locks = &mut self.names.locks;
        for key in self.stats.read(now, &self.histograms, locks, &mut life, emit) {
            ignore_absence(self.loaded.histograms.remove(key))?;
        }
        for key in self.rm_calls.read(now, &self.lives.rm_calls, &mut life, emit) {
            ignore_absence(self.loaded.rm_calls.remove(key))?;
        }
        let mut facts = OfProcesses { node, rm_calls: &self.rm_calls };
        for (tgid, start_ns) in self.processes.read(now, &self.lives.processes, &mut facts, emit) {
            self.events.forget(*tgid);
            // a later process may have the number by now
            if self.loaded.processes.get(tgid, 0).is_ok_and(|entry| entry.start_ns == *start_ns) {
                ignore_absence(self.loaded.processes.remove(tgid))?;
            }
        }
        self.say_what_reports();
        self.follow()?;
        if self.readings.is_multiple_of(GARBAGE_EVERY) {
            self.collect_garbage()?;
        }
        Ok(())
    }

    /// The kernel log can be held against the driver's own reports of errors, while they are seen.
    fn say_what_reports(&mut self) {
        let is_at_work = |choice: &Choice| choice.probe == Probe::Xid && choice.tactic.is_some();
        let up = self.loaded.attached.choices().any(is_at_work);
        if self.reports_xids.replace(up) != Some(up) {
            let source = SourceState { name: XID_REPORTS.to_owned(), up, reason: None, late: None };
            self.said.push(Signal::Source { at: mono_now(), source });
        }
    }

    /// The scheduler's programs are attached while somebody is followed.
    fn follow(&mut self) -> Result<(), MapError> {
        // a thread that was off when its probe came off would have been off ever since
        self.clear_what_came_off()?;
        let now = mono_now();
        let plan = self.schedule.plan(now);
        for tgid in &plan.disarm {
            ignore_absence(self.loaded.armed.remove(tgid))?;
        }
        if !plan.arm.is_empty() {
            self.forget_threads_off()?;
            for (tgid, until) in &plan.arm {
                self.loaded.armed.insert(*tgid, until.0, 0)?;
            }
        }
        let mut armed = self.schedule.armed();
        if armed == 0 {
            self.loaded.disarm_scheduler();
        } else if let Err(error) = self.loaded.arm_scheduler() {
            armed = 0;
            if !std::mem::replace(&mut self.said_unfollowed, true) {
                tracing::warn!(%error, "The threads of a stall's victims cannot be followed; the stall is told without.");
            }
        }
        self.numbers.armed.set(armed as u64);
        walk(&self.loaded.off_sums, OFF_SUM_ENTRIES, &mut self.lives.off_sums);
        let emit = &mut |signal| self.said.push(signal);
        for key in self.schedule.read(now, &self.lives.off_sums, emit) {
            ignore_absence(self.loaded.off_sums.remove(key))?;
        }
        Ok(())
    }

    /// A thread that was off when nobody looked any more has an entry of then: its time would count all that is between.
    fn forget_threads_off(&mut self) -> Result<(), MapError> {
        let mut off: Vec<(u32, Off)> = Vec::new();
        walk(&self.loaded.off, OFF_ENTRIES, &mut off);
        let is_followed = |tgid| self.loaded.armed.get(&tgid, 0).is_ok();
        for (tid, _) in off.iter().filter(|(_, entry)| !is_followed(entry.tgid)) {
            ignore_absence(self.loaded.off.remove(tid))?;
        }
        Ok(())
    }

    fn collect_garbage(&mut self) -> Result<(), MapError> {
        let now = mono_now();
        self.read_held();
        self.names.locks.learn_rm_api(now, &self.held, &self.in_flight);
        let waits =
            self.in_flight.iter().filter(|(key, call)| key.layer == layer::LOCK && call.kind == kind::LOCK);
        let waited: BTreeSet<u64> = waits.map(|(_, call)| call.object).collect();
        let (host, host_pids, files) = (&self.host, self.host_pids, &mut self.files);
        let mut is_gone =
            |key: &HeldKey, held: &Held| host_pids != Support::No && is_gone(host, files, key, held);
        let over = self.garbage.find(&self.held, &waited, &mut is_gone);
        for (key, since_ns) in &over {
            // it may have been taken again since the walk
            if self.loaded.held.get(key, 0).is_ok_and(|held| held.since_ns == *since_ns) {
                ignore_absence(self.loaded.held.remove(key))?;
            }
        }
        Ok(())
    }
}

/// The thread that took a lock is no more, or its number is another process's.
fn is_gone(host: &HostRoot, files: &mut ThreadFiles, key: &HeldKey, held: &Held) -> bool {
    let (pid, start) = (Pid(held.tgid), StartTicks::from_boottime_ns(held.start_ns));
    match files.process(host, pid) {
        Ok(Some(stat)) if held.start_ns != 0 && StartTicks(stat.start) != start => true,
        Ok(Some(_)) => files.read(host, pid, Tid(key.tid)).gone,
        Ok(None) => fs::metadata(&host.proc).is_ok() && !is_hidden(host, pid),
        Err(_) => false,
    }
}

/// This node's processes.
struct OfNode<'a> {
    host: &'a HostRoot,
    host_pids: Support,
    files: &'a mut ThreadFiles,
    calling: &'a BTreeSet<u32>,
    known: &'a mut BTreeMap<u32, (Life, Option<u32>)>,
}

impl OfNode<'_> {
    fn look(&mut self, tgid: u32) -> (Life, Option<u32>) {
        if tgid == 0 {
            // the kernel's own threads, which are always there
            return (Life::Alive(StartTicks(0)), None);
        }
        if self.host_pids == Support::No {
            return (Life::Unknown, None);
        }
        if let Some(known) = self.known.get(&tgid) {
            return *known;
        }
        let looked = match self.files.process(self.host, Pid(tgid)) {
            Ok(Some(Stat { start, parent, .. })) => (Life::Alive(StartTicks(start)), Some(parent)),
            Ok(None) if fs::metadata(&self.host.proc).is_ok() && !is_hidden(self.host, Pid(tgid)) => {
                (Life::Gone, None)
            }
            Ok(None) | Err(_) => (Life::Unknown, None),
        };
        self.known.insert(tgid, looked);
        looked
    }

    /// For sums: an entry may outlive its process; its end is still to be counted.
    fn life(&mut self, tgid: u32) -> Life {
        if self.calling.contains(&tgid) { Life::Unknown } else { self.look(tgid).0 }
    }
}

/// The same for the table of processes, which are over when they have ended.
struct OfProcesses<'a> {
    node: OfNode<'a>,
    rm_calls: &'a RmCalls,
}

impl Facts for OfProcesses<'_> {
    fn life(&mut self, tgid: u32) -> Life {
        self.node.look(tgid).0
    }

    fn parent(&mut self, tgid: u32) -> Option<u32> {
        self.node.look(tgid).1
    }

    fn has_called(&self, tgid: u32) -> bool {
        self.rm_calls.has_called(tgid)
    }
}
