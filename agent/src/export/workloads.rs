//! Which workloads are alive, as far as their series need to know.
//!
//! In: processes seen and processes ended. Out: one shared [`Whose`] per workload, which of them have been over for long
//! enough to end their series, and which have other names than before.
//! What can go wrong: an end is missed; a workload that says nothing for an hour is over too.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::whose::Whose;
use crate::model::{CgroupId, MonoNs, Pid, Process};

/// A collector must see the last values of a workload at least twice, even when one export fails.
const LINGER: Duration = Duration::from_secs(300);
/// Where there is hardly any room for the living, the ended make room sooner.
const CROWDED: Duration = Duration::from_secs(30);
/// After this long without a word, an end was missed.
const SILENCE: Duration = Duration::from_secs(3_600);

/// Workloads and processes beyond these are not watched: their series end with the next collection that ends any.
const MOST_WORKLOADS: usize = 10_000;
const MOST_PIDS: usize = 4_096;

/// All workloads that have series.
#[derive(Debug, Default)]
pub struct Workloads {
    lives: HashMap<Arc<Whose>, Life>,
    /// Spares building a [`Whose`] for each reading: a cgroup's workload seldom changes.
    by_cgroup: HashMap<CgroupId, Arc<Whose>>,
    renamed: Vec<Arc<Whose>>,
}

#[derive(Debug)]
struct Life {
    /// Processes with counts still to come.
    pids: HashSet<Pid>,
    /// Stalls that are open.
    stalls: u64,
    /// All processes that were heard of have ended.
    over: bool,
    heard: MonoNs,
}

impl Workloads {
    /// The workload of a process, where it is known; all unknown ones are one.
    pub fn of(&mut self, process: Option<&Process>, cgroup: Option<CgroupId>) -> Arc<Whose> {
        let Some(process) = process else { return self.shared(Whose::default()) };
        let Some(cgroup) = cgroup else { return self.shared(Whose::of(process)) };
        let known = self.by_cgroup.get(&cgroup);
        if let Some(whose) = known.filter(|whose| whose.owns(process) && !whose.lacks_names_of(process)) {
            return Arc::clone(whose);
        }
        let whose = self.shared(Whose::of(process));
        self.by_cgroup.insert(cgroup, Arc::clone(&whose));
        whose
    }

    /// The workload as it is shared, with all its names that are known; it was heard of.
    pub fn known(&mut self, whose: Whose, at: MonoNs) -> Arc<Whose> {
        let whose = self.shared(whose);
        self.life(&whose, at);
        whose
    }

    /// A process of the workload was heard of; `last`: there is nothing more to come of it.
    pub fn heard(&mut self, whose: &Arc<Whose>, pid: Pid, last: bool, at: MonoNs) {
        let Some(life) = self.life(whose, at) else { return };
        if last {
            life.end(pid);
        } else if life.pids.len() < MOST_PIDS {
            life.pids.insert(pid);
            life.over = false;
        }
    }

    /// The workload, if it has a life here, still has processes.
    pub fn touch(&mut self, whose: &Whose, at: MonoNs) {
        if let Some(life) = self.lives.get_mut(whose) {
            life.heard = life.heard.max(at);
            life.over = false;
        }
    }

    /// So many stalls of the workload opened (or, below 0, closed).
    pub fn stalled(&mut self, whose: &Arc<Whose>, by: i64, at: MonoNs) {
        let Some(life) = self.life(whose, at) else { return };
        life.stalls = life.stalls.saturating_add_signed(by);
    }

    /// A process ended; its last counts may still come.
    pub fn exited(&mut self, pid: Pid) {
        for life in self.lives.values_mut() {
            life.end(pid);
        }
    }

    /// Whether all its processes ended, and with them whatever was at some level.
    pub fn is_over(&self, whose: &Arc<Whose>) -> bool {
        self.lives.get(whose).is_some_and(|life| life.over && life.stalls == 0)
    }

    /// Forgets what has been over for long enough. Returns whether anything was forgotten.
    pub fn expire(&mut self, now: MonoNs, crowded: bool) -> bool {
        let (before, linger) = (self.lives.len(), if crowded { CROWDED } else { LINGER });
        self.lives.retain(|_, life| {
            let quiet = now.since(life.heard).unwrap_or_default();
            let over = life.pids.is_empty() && quiet >= linger;
            life.stalls > 0 || !(over || quiet >= SILENCE)
        });
        let lives = &self.lives;
        self.by_cgroup.retain(|_, whose| lives.contains_key(whose));
        self.lives.len() < before
    }

    /// Whether the workload is still held.
    pub fn holds(&self, whose: &Arc<Whose>) -> bool {
        self.lives.contains_key(whose)
    }

    fn life(&mut self, whose: &Arc<Whose>, at: MonoNs) -> Option<&mut Life> {
        if self.lives.len() >= MOST_WORKLOADS && !self.lives.contains_key(whose) {
            return None;
        }
        let life = self.lives.entry(Arc::clone(whose)).or_insert_with(|| Life {
            pids: HashSet::new(),
            stalls: 0,
            over: false,
            heard: at,
        });
        life.heard = life.heard.max(at);
        Some(life)
    }

    /// The workload under all its names that are known by now.
    pub fn current(&self, whose: &Arc<Whose>) -> Arc<Whose> {
        Arc::clone(self.lives.get_key_value(whose).map_or(whose, |(held, _)| held))
    }

    /// Workloads whose names were learned since this was last asked; their series began without.
    pub fn renamed(&mut self) -> std::vec::Drain<'_, Arc<Whose>> {
        self.renamed.drain(..)
    }

    fn shared(&mut self, whose: Whose) -> Arc<Whose> {
        let Some((held, _)) = self.lives.get_key_value(&whose) else { return Arc::new(whose) };
        let whose = whose.or_names_of(held);
        if whose.names == held.names {
            return Arc::clone(held);
        }
        let whose = Arc::new(whose);
        if let Some(life) = self.lives.remove(&whose) {
            self.lives.insert(Arc::clone(&whose), life);
        }
        self.renamed.push(Arc::clone(&whose));
        whose
    }
}

impl Life {
    fn end(&mut self, pid: Pid) {
        self.over |= self.pids.remove(&pid) && self.pids.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: MonoNs = MonoNs(0);

    #[test]
    fn a_workload_lingers_after_its_last_process_and_not_for_ever_without_an_end() {
        let process = Process { cgroup: Some("/a".into()), ..Process::default() };
        let mut workloads = Workloads::default();
        let whose = workloads.of(Some(&process), Some(CgroupId(7)));
        workloads.heard(&whose, Pid(1), false, T0);
        workloads.heard(&whose, Pid(2), false, T0);
        assert!(Arc::ptr_eq(&whose, &workloads.of(Some(&process), Some(CgroupId(7)))));
        workloads.heard(&whose, Pid(1), true, T0);
        assert!(!workloads.expire(T0.after(LINGER), false), "one process is left");
        workloads.exited(Pid(2));
        assert!(workloads.expire(T0.after(LINGER), false));
        assert!(!workloads.holds(&whose) && workloads.by_cgroup.is_empty());

        workloads.heard(&whose, Pid(1), false, T0);
        assert!(!workloads.expire(T0.after(SILENCE.mul_f64(0.9)), false));
        workloads.stalled(&whose, 1, T0);
        assert!(!workloads.expire(T0.after(SILENCE), false), "a hung call says nothing");
        workloads.stalled(&whose, -1, T0);
        assert!(workloads.expire(T0.after(SILENCE), false));
    }

    #[test]
    fn a_workload_is_over_with_its_last_process_and_its_last_stall() {
        let mut workloads = Workloads::default();
        let whose = Arc::new(Whose { pod_uid: Some("p".into()), ..Whose::default() });
        workloads.heard(&whose, Pid(1), false, T0);
        workloads.stalled(&whose, 1, T0);
        assert!(!workloads.is_over(&whose));
        workloads.exited(Pid(2));
        workloads.exited(Pid(1));
        assert!(!workloads.is_over(&whose), "the stall is open");
        workloads.stalled(&whose, -1, T0);
        assert!(workloads.is_over(&whose));
        workloads.touch(&whose, T0);
        assert!(!workloads.is_over(&whose), "somebody else saw a process");
        workloads.touch(&Whose::default(), T0);
        assert_eq!(workloads.lives.len(), 1, "only those that have series matter");
        assert!(!workloads.expire(T0.after(CROWDED), false) && workloads.expire(T0.after(CROWDED), true));
    }

    #[test]
    fn names_that_come_late_are_of_the_same_workload() {
        let mut workloads = Workloads::default();
        let mut process = Process::default();
        process.workload.pod_uid = Some("p".into());
        let nameless = workloads.of(Some(&process), Some(CgroupId(7)));
        workloads.heard(&nameless, Pid(1), false, T0);
        process.workload.pod = Some("train-0".into());
        let named = workloads.of(Some(&process), Some(CgroupId(7)));
        assert_eq!(named.names.pod.as_deref(), Some("train-0"));
        assert!(workloads.renamed().eq([Arc::clone(&named)]), "its series are told once");
        process.workload.pod = None;
        let later = workloads.of(Some(&process), None);
        assert!(Arc::ptr_eq(&later, &named), "a process that lost its name does not take the workload's");
        assert!(Arc::ptr_eq(&workloads.current(&nameless), &named));
        assert_eq!(workloads.renamed().count(), 0);
        workloads.heard(&named, Pid(1), true, T0);
        assert!(workloads.expire(T0.after(LINGER), false) && !workloads.holds(&named), "one life under both");
    }

    #[test]
    fn a_cgroup_id_that_changed_hands_gives_the_new_owner() {
        let mut workloads = Workloads::default();
        let mut process = Process { cgroup: Some("/a".into()), ..Process::default() };
        let first = workloads.of(Some(&process), Some(CgroupId(7)));
        process.cgroup = Some("/b".into());
        let second = workloads.of(Some(&process), Some(CgroupId(7)));
        assert_eq!((first.cgroup.as_deref(), second.cgroup.as_deref()), (Some("/a"), Some("/b")));
        assert_eq!(*workloads.of(None, Some(CgroupId(7))), Whose::default());
    }
}
