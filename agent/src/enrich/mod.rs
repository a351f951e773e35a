//! Facts → attributed facts: whose they are.
//!
//! In: [`Fact`]s, and answers about processes and cgroups. Out: [`Attributed`] facts.
//! [`Attributor`] is pure: it says what it needs to know ([`Ask`]) and is told. [`lookup`] asks the machine; in a replay
//! the file has the answers. What can go wrong: a process is gone, hidden or another one under a reused pid; each is a
//! reason that travels with the fact.

pub mod bounded;
pub mod cgroup;
pub mod cgroup_tree;
pub mod lookup;
pub mod process;

use std::time::Duration;

use crate::model::{
    Attributed, Caller, CgroupId, Fact, FindingKind, Known, MonoNs, Pid, Process, Signal, Workload,
};
use bounded::Bounded;

/// Something the attributor needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Who is this?
    Process(Pid),
    /// Which path has this cgroup? The process is a place to look first.
    Cgroup(CgroupId, Pid),
}

/// What is known of processes and cgroups.
#[derive(Debug)]
pub struct Attributor {
    /// Kept after their end, so that a late line of the log still finds its process.
    processes: Bounded<Pid, (MonoNs, Known<Process>)>,
    cgroups: Bounded<CgroupId, Option<(String, Workload)>>,
}

impl Default for Attributor {
    fn default() -> Self {
        Self { processes: Bounded::new(Self::PROCESSES_MAX), cgroups: Bounded::new(Self::CGROUPS_MAX) }
    }
}

impl Attributor {
    /// Processes kept, the ended ones included.
    pub const PROCESSES_MAX: usize = 4_096;
    /// Cgroups kept.
    pub const CGROUPS_MAX: usize = 4_096;
    /// How long an answer about a bare pid is good: long enough for a storm of log lines, too short for reuse.
    const FRESH: Duration = Duration::from_secs(1);

    /// What must be known before `fact` can be attributed.
    pub fn asks(&self, fact: &Fact, asks: &mut Vec<Ask>) {
        match fact {
            Fact::Reading(Signal::CallStats { stats, .. }) => self.ask_cgroup(stats.cgroup, stats.pid, asks),
            Fact::Reading(_) => {}
            Fact::Finding(finding) => match &finding.kind {
                FindingKind::Stall(stall) => {
                    for victim in &stall.victims {
                        self.ask_process(victim.pid, victim.caller.as_ref(), finding.at, asks);
                    }
                }
                FindingKind::Xid(xid) => {
                    if let Some(pid) = xid.pid {
                        self.ask_process(pid, None, finding.at, asks);
                    }
                }
            },
        }
    }

    fn ask_process(&self, pid: Pid, caller: Option<&Caller>, at: MonoNs, asks: &mut Vec<Ask>) {
        if let Some(caller) = caller {
            self.ask_cgroup(caller.cgroup, pid, asks);
        }
        let good = self.processes.get(pid).is_some_and(|(asked, known)| match caller {
            Some(caller) => known.is().is_some_and(|p| p.start == Some(caller.start)),
            None => at.since(*asked).is_none_or(|age| age <= Self::FRESH),
        });
        if !good {
            asks.push(Ask::Process(pid));
        }
    }

    fn ask_cgroup(&self, id: CgroupId, pid: Pid, asks: &mut Vec<Ask>) {
        if self.cgroups.get(id).is_none() {
            asks.push(Ask::Cgroup(id, pid));
        }
    }

    /// The answer to [`Ask::Process`]. A process that is gone does not overwrite what was known of it.
    pub fn know_process(&mut self, pid: Pid, at: MonoNs, answer: Known<Process>) {
        let keep = match (&answer, self.processes.get(pid)) {
            (Known::Gone, Some((_, known @ Known::Is(_)))) => Some(known.clone()),
            _ => None,
        };
        self.processes.insert(pid, (at, keep.unwrap_or(answer)));
    }

    /// The answer to [`Ask::Cgroup`].
    pub fn know_cgroup(&mut self, id: CgroupId, path: Option<String>) {
        self.cgroups.insert(
            id,
            path.map(|path| {
                let workload = cgroup::workload(&path);
                (path, workload)
            }),
        );
    }

    /// The fact with whose it is. What the probe took itself (cgroup, start time) outranks what /proc says later.
    pub fn attribute(&mut self, fact: Fact) -> Attributed<Fact> {
        let mut processes = Vec::new();
        match &fact {
            Fact::Reading(Signal::Process { at, pid, process }) => {
                let answer = process.clone().map_or(Known::Gone, |mut process| {
                    process.workload = process.cgroup.as_deref().map(cgroup::workload).unwrap_or_default();
                    Known::Is(process)
                });
                self.know_process(*pid, *at, answer);
            }
            Fact::Reading(Signal::CallStats { stats, .. }) => {
                processes.push((stats.pid, Known::Is(self.in_cgroup(stats.cgroup, Process::default()))));
            }
            Fact::Reading(_) => {}
            Fact::Finding(finding) => match &finding.kind {
                FindingKind::Stall(stall) => {
                    let known = stall.victims.iter().map(|v| (v.pid, self.process(v.pid, v.caller.as_ref())));
                    processes.extend(known);
                }
                FindingKind::Xid(xid) => processes.extend(xid.pid.map(|pid| (pid, self.process(pid, None)))),
            },
        }
        Attributed { item: fact, processes }
    }

    fn process(&self, pid: Pid, caller: Option<&Caller>) -> Known<Process> {
        let known = self.processes.get(pid).map_or(Known::Gone, |(_, known)| known.clone());
        let Some(caller) = caller else { return known };
        let same = known.is().filter(|p| p.start == Some(caller.start)).cloned();
        let process = same.unwrap_or_else(|| Process {
            start: Some(caller.start),
            comm: Some(caller.comm.clone()),
            ..Process::default()
        });
        Known::Is(self.in_cgroup(caller.cgroup, process))
    }

    fn in_cgroup(&self, id: CgroupId, mut process: Process) -> Process {
        process.cgroup_id = Some(id);
        if let Some(Some((path, workload))) = self.cgroups.get(id) {
            process.cgroup = Some(path.clone());
            process.workload = workload.clone();
        }
        process
    }
}

#[cfg(test)]
mod tests;
