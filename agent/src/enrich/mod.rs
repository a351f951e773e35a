//! Facts → attributed facts: whose they are.
//!
//! In: [`Fact`]s, and answers about processes and cgroups. Out: [`Attributed`] facts.
//! [`Attributor`] is pure: it says what it needs to know ([`Ask`]) and is told. [`lookup`] asks the machine; in a replay
//! the file has the answers. What can go wrong: a process is gone, hidden or another one under a reused pid; each is a
//! reason that travels with the fact.

pub mod allocation_uids;
pub mod bounded;
pub mod cgroup;
pub mod cgroup_tree;
pub mod granted;
pub mod log_links;
pub mod lookup;
pub mod pod_cgroups;
pub mod pod_names;
pub mod process;
pub mod unnamed;

use std::time::Duration;

use crate::model::signal::Allocation;
use crate::model::{
    Attributed, Caller, CgroupId, Fact, FindingKind, Known, LineKind, MonoNs, Pid, Process, Signal, Workload,
};
use crate::telemetry::Telemetry;
use allocation_uids::AllocationUids;
use bounded::Bounded;
use granted::Granted;
use pod_names::{Container, ContainerId, Listing, PodNames};
use unnamed::{Unnamed, Who};

/// Something the attributor needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Who is this?
    Process(Pid),
    /// Which path has this cgroup? The process is a place to look first.
    Cgroup(CgroupId, Pid),
    /// Is this cgroup still there, of which nothing was said for long?
    Still(CgroupId),
    /// What is the name of this container and its pod, or of any pod that has come?
    Names(Option<Who>),
}

/// What is known of processes and cgroups.
#[derive(Debug)]
pub struct Attributor {
    /// Kept for a while after their end, so that a late line of the log still finds its process.
    processes: Bounded<Pid, Answer>,
    cgroups: Bounded<CgroupId, CgroupAnswer>,
    names: PodNames,
    unnamed: Unnamed,
    allocations: AllocationUids,
    granted: Granted,
    /// Allocations whose uid became known late.
    late: Vec<Allocation>,
    /// When what is over was last forgotten.
    tidied: MonoNs,
}

/// What is known of a process.
#[derive(Debug)]
struct Answer {
    /// When it was last asked for.
    asked: MonoNs,
    /// When it was last seen alive.
    alive: MonoNs,
    known: Known<Process>,
}

/// What is known of a cgroup, and since when.
#[derive(Debug)]
struct CgroupAnswer {
    asked: MonoNs,
    /// When something was last said of it.
    heard: MonoNs,
    place: Option<(String, Workload)>,
}

impl Default for Attributor {
    fn default() -> Self {
        Self::new(&Telemetry::default())
    }
}

impl Attributor {
    /// Processes kept, the ended ones included.
    pub const PROCESSES_MAX: usize = 4_096;
    /// Cgroups kept.
    pub const CGROUPS_MAX: usize = 4_096;
    /// Processes of one device that are attributed.
    const LISTED_MAX: usize = 1_024;
    /// How long an answer about a bare pid is good: long enough for a storm of log lines, too short for reuse.
    const FRESH: Duration = Duration::from_secs(1);
    /// How long a process that is gone is still taken for the bearer of its pid.
    const REMEMBERED: Duration = Duration::from_secs(600);
    /// How often what is over is forgotten.
    const TIDY_EVERY: Duration = Duration::from_secs(60);
    /// How soon a cgroup that was not found is looked for again.
    const LOOK_AGAIN: Duration = Duration::from_secs(10);

    /// Nothing is known; names that never come are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        Self {
            processes: Bounded::new(Self::PROCESSES_MAX),
            cgroups: Bounded::new(Self::CGROUPS_MAX),
            names: PodNames::default(),
            unnamed: Unnamed::new(telemetry),
            allocations: AllocationUids::new(telemetry),
            granted: Granted::default(),
            late: Vec::new(),
            tidied: MonoNs(0),
        }
    }

    /// What must be known before `fact` can be attributed.
    pub fn asks(&mut self, fact: &Fact, asks: &mut Vec<Ask>) {
        match fact {
            Fact::Reading(Signal::CallStats { at, stats }) => {
                self.ask_cgroup(stats.cgroup, stats.pid, *at, asks);
            }
            Fact::Reading(Signal::RmCalls { at, calls }) => {
                self.ask_cgroup(calls.cgroup, calls.pid, *at, asks)
            }
            Fact::Reading(Signal::LockWaits { at, waits }) => {
                self.ask_cgroup(waits.cgroup, waits.pid, *at, asks);
            }
            Fact::Reading(Signal::Scheduling { at, scheduling }) => {
                self.ask_process(scheduling.pid, None, *at, asks);
            }
            Fact::Reading(Signal::Process { at, pid, process: Some(process) })
                if process.cgroup.is_none() =>
            {
                if let Some(cgroup) = process.cgroup_id {
                    self.ask_cgroup(cgroup, *pid, *at, asks);
                }
            }
            Fact::Reading(Signal::Processes { at, processes }) => {
                // A list comes every second: who is in it lives, and its answer is good for longer than a bare pid's.
                let fresh = |answer: &Answer| at.since(answer.asked).is_none_or(|age| age < Self::LOOK_AGAIN);
                let pids = processes.processes.iter().take(Self::LISTED_MAX).map(|process| process.pid);
                let unknown = pids.filter(|pid| !self.processes.get(*pid).is_some_and(fresh));
                asks.extend(unknown.map(Ask::Process));
            }
            Fact::Reading(_) => {}
            Fact::Finding(finding) => match &finding.kind {
                FindingKind::Stall(stall) => {
                    for victim in &stall.victims {
                        self.ask_process(victim.pid, victim.caller.as_ref(), finding.at, asks);
                    }
                    if let Some(holder) = &stall.holder {
                        self.ask_process(holder.pid, holder.caller.as_ref(), finding.at, asks);
                    }
                }
                FindingKind::Xid(xid) => {
                    if let Some(pid) = xid.pid {
                        self.ask_process(pid, None, finding.at, asks);
                    }
                }
                FindingKind::Status(_) => {}
            },
        }
    }

    fn ask_process(&mut self, pid: Pid, caller: Option<&Caller>, at: MonoNs, asks: &mut Vec<Ask>) {
        if let Some(caller) = caller {
            self.ask_cgroup(caller.cgroup, pid, at, asks);
        }
        let good = self.processes.get(pid).is_some_and(|answer| match caller {
            Some(caller) => answer.known.is().is_some_and(|p| p.start == Some(caller.start)),
            None => at.since(answer.asked).is_none_or(|age| age <= Self::FRESH),
        });
        if !good {
            asks.push(Ask::Process(pid));
        }
    }

    fn ask_cgroup(&mut self, id: CgroupId, pid: Pid, at: MonoNs, asks: &mut Vec<Ask>) {
        let good = self.cgroups.get_mut(id).is_some_and(|answer| {
            answer.heard = at;
            answer.place.is_some() || at.since(answer.asked).is_none_or(|age| age < Self::LOOK_AGAIN)
        });
        if !good {
            asks.push(Ask::Cgroup(id, pid));
        }
    }

    /// The answer to [`Ask::Process`]. A process that is gone does not overwrite what was known of it.
    pub fn know_process(&mut self, pid: Pid, at: MonoNs, answer: Known<Process>) {
        let kept = match (&answer, self.processes.get(pid)) {
            (Known::Gone, Some(Answer { alive, known: known @ Known::Is(_), .. })) => {
                let age = at.since(*alive).unwrap_or_default();
                (age < Self::REMEMBERED).then(|| (*alive, known.clone()))
            }
            _ => None,
        };
        let (alive, known) = kept.unwrap_or((at, answer));
        self.processes.insert(pid, Answer { asked: at, alive, known });
    }

    /// The answer to [`Ask::Cgroup`].
    pub fn know_cgroup(&mut self, id: CgroupId, at: MonoNs, path: Option<String>) {
        let place = path.map(|path| {
            let workload = cgroup::workload(&path);
            (path, workload)
        });
        self.cgroups.insert(id, CgroupAnswer { asked: at, heard: at, place });
    }

    /// Forgets processes that are over, and asks for cgroups of which nothing is said, so that pods that come and go leave
    /// nothing.
    fn tidy(&mut self, now: MonoNs, asks: &mut Vec<Ask>) {
        let younger = |at: MonoNs, than: Duration| now.since(at).is_none_or(|age| age < than);
        if younger(self.tidied, Self::TIDY_EVERY) {
            return;
        }
        self.tidied = now;
        // Asked for so long ago, a process that is gone is not known any more: [`Self::know_process`].
        self.processes.retain(|_, answer| younger(answer.asked.max(answer.alive), Self::REMEMBERED));
        self.unnamed.tidy(now, &self.names);
        let quiet = self.cgroups.iter().filter(|(_, answer)| !younger(answer.heard, Self::REMEMBERED));
        asks.extend(quiet.map(|(id, _)| Ask::Still(id)));
    }

    /// The path of a cgroup that is known.
    pub fn cgroup(&self, id: CgroupId) -> Option<&str> {
        self.cgroups.get(id)?.place.as_ref().map(|(path, _)| path.as_str())
    }

    /// The answer to [`Ask::Still`].
    pub fn know_still(&mut self, id: CgroupId, at: MonoNs, still: bool) {
        match self.cgroups.get_mut(id) {
            Some(answer) if still => answer.heard = at,
            _ => self.cgroups.remove(id),
        }
    }

    /// The fact with whose it is. What the probe took itself (cgroup, start time) outranks what /proc says later.
    pub fn attribute(&mut self, fact: Fact) -> Attributed<Fact> {
        let mut processes = Vec::new();
        match &fact {
            Fact::Reading(Signal::Process { at, pid, process }) => {
                let answer = process.as_deref().cloned().map_or(Known::Gone, |mut process| {
                    process.workload = process.cgroup.as_deref().map(cgroup::workload).unwrap_or_default();
                    let by_id = process.cgroup_id.filter(|_| process.cgroup.is_none());
                    Known::Is(by_id.map_or(process.clone(), |id| self.in_cgroup(id, process)))
                });
                self.know_process(*pid, *at, answer);
            }
            Fact::Reading(Signal::CallStats { stats, .. }) => {
                processes.push((stats.pid, Known::Is(self.in_cgroup(stats.cgroup, Process::default()))));
            }
            Fact::Reading(Signal::RmCalls { calls, .. }) => {
                processes.push((calls.pid, Known::Is(self.in_cgroup(calls.cgroup, Process::default()))));
            }
            Fact::Reading(Signal::LockWaits { waits, .. }) => {
                processes.push((waits.pid, Known::Is(self.in_cgroup(waits.cgroup, Process::default()))));
            }
            Fact::Reading(Signal::Scheduling { scheduling, .. }) => {
                processes.push((scheduling.pid, self.process(scheduling.pid, None)));
            }
            Fact::Reading(Signal::Processes { processes: list, .. }) => {
                let pids = list.processes.iter().take(Self::LISTED_MAX).map(|process| process.pid);
                processes.extend(pids.map(|pid| (pid, self.process(pid, None))));
            }
            Fact::Reading(_) => {}
            Fact::Finding(finding) => match &finding.kind {
                FindingKind::Stall(stall) => {
                    let known = stall.victims.iter().map(|v| (v.pid, self.process(v.pid, v.caller.as_ref())));
                    processes.extend(known);
                    let holder = stall.holder.as_ref();
                    processes.extend(holder.map(|h| (h.pid, self.process(h.pid, h.caller.as_ref()))));
                }
                FindingKind::Xid(xid) => {
                    let LineKind::Xid(line) = &xid.line.kind;
                    processes.extend(xid.pid.map(|pid| (pid, self.named(pid, line.name.as_deref()))));
                }
                FindingKind::Status(_) => {}
            },
        }
        let mut attributed = Attributed { item: fact, processes };
        self.name(&mut attributed);
        attributed
    }

    /// Fills in names that are known by now.
    pub fn name(&mut self, fact: &mut Attributed<Fact>) {
        for (_, known) in &mut fact.processes {
            if let Known::Is(process) = known {
                self.names.fill(&mut process.workload);
            }
        }
        if let Fact::Reading(Signal::Allocation { at, allocation }) = &mut fact.item {
            self.allocations.take(allocation, *at, &mut self.names);
            self.granted.take(allocation);
        }
        if let Fact::Finding(finding) = &mut fact.item
            && let FindingKind::Stall(stall) = &mut finding.kind
        {
            // of the holder, which comes last, nothing is said
            let victims = fact.processes.iter().take(stall.victims.len());
            let unknown = Workload::default();
            let workloads =
                victims.map(|(_, known)| known.is().map_or(&unknown, |process| &process.workload));
            self.granted.place(stall, workloads);
        }
    }

    /// Which names are lacking that should be asked for now: those of the fact, and of allocations before it. They are
    /// known only once the fact is put to its owners, so [`Self::name`] follows the answers.
    pub fn name_asks(&mut self, fact: &Attributed<Fact>, at: MonoNs, asks: &mut Vec<Ask>) {
        for (_, known) in &fact.processes {
            let Some(who) = known.is().and_then(|process| pod_names::of(&process.workload)) else { continue };
            if !self.names.has(who) && self.unnamed.due(who, at) {
                asks.push(Ask::Names(Some(who)));
            }
        }
    }

    /// Whether names of pods that were given devices are lacking and should be asked for now, and whether cgroups that were
    /// not heard of are still there.
    pub fn uid_asks(&mut self, at: MonoNs, asks: &mut Vec<Ask>) {
        self.tidy(at, asks);
        asks.extend(self.allocations.due(at).then_some(Ask::Names(None)));
    }

    /// The answer to [`Ask::Names`]: all pods and containers that are there.
    pub fn know_names(&mut self, listing: Listing) {
        self.names.replace(listing);
        self.allocations.learn(&self.names, &mut self.late);
    }

    /// The name of one container more.
    pub fn know_container(&mut self, id: ContainerId, container: Container) {
        self.names.learn_container(id, container);
    }

    /// The names were asked for, of `who` among others; `readable`: where they should be could be read.
    pub fn asked_names(&mut self, who: Who, at: MonoNs, readable: bool) {
        if !self.names.has(who) {
            self.unnamed.in_vain(who, at, readable);
        }
    }

    /// The names of pods that were given devices were asked for; `readable`: where they should be could be read.
    pub fn asked_uids(&mut self, at: MonoNs, readable: bool) {
        self.allocations.in_vain(at, readable);
    }

    /// The names that are known.
    pub fn names(&self) -> &PodNames {
        &self.names
    }

    /// Allocations to be told again, since their pod's uid is known now.
    pub fn late(&mut self, at: MonoNs, out: &mut Vec<Attributed<Fact>>) {
        for allocation in self.late.drain(..) {
            self.granted.take(&allocation);
            let item = Fact::Reading(Signal::Allocation { at, allocation: Box::new(allocation) });
            out.push(Attributed { item, processes: Vec::new() });
        }
    }

    /// The process of a pid in a line of the log, which may name it: another name is another process.
    fn named(&self, pid: Pid, name: Option<&str>) -> Known<Process> {
        let known = self.processes.get(pid).map_or(Known::Gone, |answer| answer.known.clone());
        let comm = known.is().and_then(|process| process.comm.as_deref());
        // The line has the name of the thread that opened the driver, which may differ while the process lives.
        let alive = self.processes.get(pid).is_some_and(|answer| answer.alive == answer.asked);
        if !alive && name.is_some() && name != comm { Known::Gone } else { known }
    }

    fn process(&self, pid: Pid, caller: Option<&Caller>) -> Known<Process> {
        let known = self.processes.get(pid).map_or(Known::Gone, |answer| answer.known.clone());
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
        if let Some((path, workload)) = self.cgroups.get(id).and_then(|answer| answer.place.as_ref()) {
            process.cgroup = Some(path.clone());
            process.workload = workload.clone();
        }
        process
    }
}

#[cfg(test)]
mod tests;
