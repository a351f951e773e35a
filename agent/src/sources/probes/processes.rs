//! Processes that call the driver: which of them compute, which only watch, and which have ended.
//!
//! In: the entries of the kernel programs' map, events, what procfs says. Out: roles and ends as signals, keys to delete.
//! What can go wrong: a program that began before the probes may have allocated its engines unseen: it is never taken for
//! a monitor. An end may be told by no event; procfs tells it then.

use std::collections::BTreeMap;
use std::time::Duration;

use warpgauge_ebpf::event::{KnownProcess, process};

use super::events::role;
use super::totals::Life;
use crate::model::{MonoNs, Pid, ProcessRole, Signal, StartTicks};

/// What is known of the processes in the map.
#[derive(Debug)]
pub struct Processes {
    known: BTreeMap<u32, Known>,
    /// When the probes began. Clock: boot time.
    since_ns: u64,
    /// The agent itself.
    own: u32,
    over: Vec<(u32, u64)>,
}

#[derive(Debug)]
struct Known {
    start_ns: u64,
    first_seen: MonoNs,
    role: Option<ProcessRole>,
    /// Its program began while the probes were at work.
    exec_seen: bool,
    /// Its end was told.
    ended: bool,
    seen: bool,
}

/// What else must be known of a process.
pub trait Facts {
    /// Whether it lives.
    fn life(&mut self, tgid: u32) -> Life;
    /// Its parent.
    fn parent(&mut self, tgid: u32) -> Option<u32>;
    /// It has asked the resource manager for something.
    fn has_called(&self, tgid: u32) -> bool;
}

impl Processes {
    /// A process that has called the driver for so long without allocating anything that computes is a monitor.
    const WATCHES_AFTER: Duration = Duration::from_secs(10);

    /// Nobody is known; the probes begin at this time of the boot-time clock.
    pub fn new(since_ns: u64, own: u32) -> Self {
        Self { known: BTreeMap::new(), since_ns, own, over: Vec::new() }
    }

    /// The process computes.
    pub fn works(&mut self, at: MonoNs, tgid: u32, start_ns: u64, emit: &mut impl FnMut(Signal)) {
        let known = self.known.entry(tgid).or_insert_with(|| Known::new(start_ns, at));
        known.set(at, tgid, ProcessRole::Workload, emit);
    }

    /// It runs another program from now on, which may do otherwise; one of the agent's stays one.
    pub fn execs(&mut self, at: MonoNs, tgid: u32, start_ns: u64) {
        let known = self.known.entry(tgid).or_insert_with(|| Known::new(start_ns, at));
        if known.start_ns == start_ns && known.role != Some(ProcessRole::Agent) {
            (known.role, known.first_seen, known.exec_seen) = (None, at, true);
        }
    }

    /// Its end was told by an event.
    pub fn ended(&mut self, at: MonoNs, tgid: u32, start_ns: u64) {
        let known = self.known.entry(tgid).or_insert_with(|| Known::new(start_ns, at));
        known.ended |= known.start_ns == start_ns;
    }

    /// Goes through the map's entries. Gives back those of processes that are over, with their begin: delete them.
    pub fn read(
        &mut self,
        now: MonoNs,
        entries: &[(u32, KnownProcess)],
        facts: &mut impl Facts,
        emit: &mut impl FnMut(Signal),
    ) -> &[(u32, u64)] {
        self.over.clear();
        for (tgid, entry) in entries {
            let known = self.known.entry(*tgid).or_insert_with(|| Known::new(entry.start_ns, now));
            if known.start_ns != entry.start_ns {
                *known = Known::new(entry.start_ns, now); // another process with the number
            }
            known.seen = true;
            let gone = match facts.life(*tgid) {
                Life::Gone => true,
                Life::Alive(start) => {
                    entry.start_ns != 0 && start != StartTicks::from_boottime_ns(entry.start_ns)
                }
                Life::Unknown => false,
            };
            if gone || known.ended {
                if !std::mem::replace(&mut known.ended, true) {
                    emit(Signal::Exit { at: now, pid: Pid(*tgid) });
                }
                self.over.push((*tgid, entry.start_ns));
                continue;
            }
            if facts.parent(*tgid) == Some(self.own) {
                known.set(now, *tgid, ProcessRole::Agent, emit);
            } else if entry.flags & process::WORKLOAD != 0 {
                known.set(now, *tgid, ProcessRole::Workload, emit);
            } else if known.watches(now, self.since_ns) && facts.has_called(*tgid) {
                known.set(now, *tgid, ProcessRole::Monitor, emit);
            }
        }
        self.known.retain(|_, known| std::mem::replace(&mut known.seen, false));
        &self.over
    }
}

impl Known {
    fn new(start_ns: u64, first_seen: MonoNs) -> Self {
        Self { start_ns, first_seen, role: None, exec_seen: false, ended: false, seen: true }
    }

    /// A role is said once; an agent's process stays one.
    fn set(&mut self, at: MonoNs, tgid: u32, to: ProcessRole, emit: &mut impl FnMut(Signal)) {
        if self.role != Some(to) && self.role != Some(ProcessRole::Agent) {
            self.role = Some(to);
            emit(role(at, tgid, to));
        }
    }

    fn watches(&self, now: MonoNs, since_ns: u64) -> bool {
        let seen_whole = self.exec_seen || self.start_ns >= since_ns;
        let age = now.since(self.first_seen).unwrap_or_default();
        self.role.is_none() && seen_whole && age >= Processes::WATCHES_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TGID: u32 = 77;

    struct Scripted {
        life: Life,
        parent: Option<u32>,
        has_called: bool,
    }

    impl Facts for Scripted {
        fn life(&mut self, _: u32) -> Life {
            self.life
        }
        fn parent(&mut self, _: u32) -> Option<u32> {
            self.parent
        }
        fn has_called(&self, _: u32) -> bool {
            self.has_called
        }
    }

    fn facts(life: Life) -> Scripted {
        Scripted { life, parent: Some(1), has_called: true }
    }

    const ALIVE: Life = Life::Alive(StartTicks(600));

    /// It began 6 s after boot.
    fn entry(flags: u32) -> (u32, KnownProcess) {
        (TGID, KnownProcess { start_ns: 6 * SECOND, flags, reserved: 0 })
    }

    /// Reads at these seconds; what was said, and how many keys are over.
    fn read(
        since_s: u64,
        entry: (u32, KnownProcess),
        mut facts: Scripted,
        at: &[u64],
    ) -> (Vec<String>, usize) {
        let mut processes = Processes::new(since_s * SECOND, 5);
        let (mut said, mut over) = (Vec::new(), 0);
        for s in at {
            over += processes
                .read(MonoNs(s * SECOND), &[entry], &mut facts, &mut |signal| {
                    said.push(match signal {
                        Signal::Role { role, .. } => format!("{role:?} {s}"),
                        Signal::Exit { pid, .. } => format!("exit {} {s}", pid.0),
                        other => panic!("{other:?}"),
                    });
                })
                .len();
        }
        (said, over)
    }

    #[test]
    fn roles_are_told_once_and_a_monitor_only_when_it_was_seen_from_the_beginning() {
        let said = |words: &[&str]| (words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>(), 0);
        assert_eq!(read(5, entry(0), facts(ALIVE), &[10, 19, 20, 30]), said(&["Monitor 20"]));
        assert_eq!(read(7, entry(0), facts(ALIVE), &[10, 20, 30]), said(&[]), "it began before");
        assert_eq!(read(5, entry(process::WORKLOAD), facts(ALIVE), &[10, 20, 30]), said(&["Workload 10"]));
        let silent = Scripted { has_called: false, ..facts(ALIVE) };
        assert_eq!(read(5, entry(0), silent, &[10, 20, 30]), said(&[]));
        let own = Scripted { parent: Some(5), ..facts(ALIVE) };
        assert_eq!(read(5, entry(process::WORKLOAD), own, &[10, 20]), said(&["Agent 10"]));
    }

    #[test]
    fn the_dead_are_told_and_deleted_and_nobody_else_is() {
        let exit = (vec!["exit 77 10".to_owned()], 1);
        assert_eq!(read(5, entry(0), facts(Life::Gone), &[10]), exit);
        assert_eq!(read(5, entry(0), facts(Life::Alive(StartTicks(601))), &[10]), exit, "another one");
        assert_eq!(read(5, entry(0), facts(Life::Unknown), &[10, 11]), (vec![], 0));
        let mut processes = Processes::new(0, 5);
        processes.read(MonoNs(0), &[entry(0)], &mut facts(ALIVE), &mut |_| {});
        processes.ended(MonoNs(1), TGID, 6 * SECOND);
        let mut said = 0;
        let over = processes.read(MonoNs(1), &[entry(0)], &mut facts(ALIVE), &mut |_| said += 1).to_vec();
        assert_eq!((over, said), (vec![(TGID, 6 * SECOND)], 0), "the event said it");
        processes.read(MonoNs(2), &[], &mut facts(ALIVE), &mut |_| {});
        assert!(processes.known.is_empty());
    }

    #[test]
    fn another_program_begins_without_a_role() {
        let roles = |since_s: u64, flags: u32, own: u32, reads: &[u64]| {
            let mut processes = Processes::new(since_s * SECOND, own);
            let mut said = Vec::new();
            let mut emit = |signal| {
                let Signal::Role { at, role, .. } = signal else { panic!("{signal:?}") };
                said.push((role, at.0 / SECOND));
            };
            processes.read(MonoNs(10 * SECOND), &[entry(flags)], &mut facts(ALIVE), &mut emit);
            processes.execs(MonoNs(15 * SECOND), TGID, 6 * SECOND);
            for s in reads {
                // the kernel forgets what the former program did, too
                processes.read(MonoNs(s * SECOND), &[entry(0)], &mut facts(ALIVE), &mut emit);
            }
            said
        };
        use ProcessRole::{Agent, Monitor, Workload};
        let works = (Workload, 10);
        assert_eq!(roles(5, process::WORKLOAD, 5, &[16, 24]), [works], "its time begins anew");
        assert_eq!(roles(5, process::WORKLOAD, 5, &[16, 25, 26]), [works, (Monitor, 25)]);
        assert_eq!(roles(7, process::WORKLOAD, 5, &[25]), [works, (Monitor, 25)], "seen from its beginning");
        assert_eq!(roles(5, 0, 1, &[16, 25]), [(Agent, 10)]);
        // an exec of an earlier process with the number
        let mut processes = Processes::new(5 * SECOND, 5);
        processes.works(MonoNs(10 * SECOND), TGID, 6 * SECOND, &mut |_| {});
        processes.execs(MonoNs(11 * SECOND), TGID, 3 * SECOND);
        assert_eq!(processes.known[&TGID].role, Some(Workload));
    }

    #[test]
    fn a_monitor_that_begins_to_compute_is_a_workload() {
        let mut processes = Processes::new(5 * SECOND, 5);
        let mut said = Vec::new();
        let mut emit = |signal| {
            let Signal::Role { role, .. } = signal else { panic!("{signal:?}") };
            said.push(role);
        };
        for s in [10, 20] {
            processes.read(MonoNs(s * SECOND), &[entry(0)], &mut facts(ALIVE), &mut emit);
        }
        processes.works(MonoNs(21 * SECOND), TGID, 6 * SECOND, &mut emit);
        processes.works(MonoNs(22 * SECOND), TGID, 6 * SECOND, &mut emit);
        assert_eq!(said, [ProcessRole::Monitor, ProcessRole::Workload]);
    }
}
