//! Where the threads of a stall's victims spend their time: who is followed, for how long, and what came out of it.
//!
//! In: orders, born of findings; the kernel programs' running sums. Out: what to write into the map of followed
//! processes, and [`Signal::Scheduling`]. The scheduler's programs cost something at every switch of every thread, so
//! they are attached only while somebody is followed, and everybody only for a bounded time.
//! What can go wrong: more victims than the map holds; the first ones are followed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc;
use warpgauge_ebpf::maps::ARMED_ENTRIES;
use warpgauge_ebpf::schedule::{OffKey, OffSum};

use super::totals::{Key, Life, Sum, Totals};
use crate::model::{
    Fact, FindingKind, MonoNs, OffCpuReason, Pid, Scheduling, Signal, StallState, StartTicks,
};

/// A process is to be followed because of an episode, or no longer because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The process.
    pub pid: Pid,
    /// The episode; a process may be the victim of several.
    pub episode: String,
    /// The episode is over.
    pub over: bool,
}

/// The orders that a fact gives: the victims of a driver stall are followed while it lasts.
pub fn orders(fact: &Fact) -> Vec<Order> {
    let Fact::Finding(finding) = fact else { return Vec::new() };
    let FindingKind::Stall(stall) = &finding.kind else { return Vec::new() };
    let over = matches!(stall.state, StallState::End | StallState::Unobserved);
    let pids: BTreeSet<Pid> = stall.victims.iter().map(|victim| victim.pid).collect();
    pids.into_iter().map(|pid| Order { pid, episode: finding.id.clone(), over }).collect()
}

/// The next order; waits for ever where nobody gives any.
pub async fn next(orders: &mut Option<mpsc::Receiver<Order>>) -> Option<Order> {
    match orders {
        Some(orders) => orders.recv().await,
        None => std::future::pending().await,
    }
}

impl Key for OffKey {
    fn tgid(&self) -> u32 {
        self.tgid
    }
}

impl Sum for OffSum {
    const NOTHING: Self = Self { times: 0, waited_ns: 0, queued_ns: 0 };

    fn since(&self, before: &Self) -> Self {
        Self {
            times: self.times.wrapping_sub(before.times),
            waited_ns: self.waited_ns.wrapping_sub(before.waited_ns),
            queued_ns: self.queued_ns.wrapping_sub(before.queued_ns),
        }
    }

    fn is_nothing(&self) -> bool {
        self.times == 0
    }
}

/// Who is followed.
#[derive(Debug, Default)]
pub struct Schedule {
    /// By process, the episodes it is followed for and when each was last heard of.
    episodes: BTreeMap<u32, BTreeMap<String, MonoNs>>,
    /// What the map has, and until when.
    armed: BTreeMap<u32, MonoNs>,
    totals: Totals<OffKey, OffSum>,
}

/// What is to be changed in the map of followed processes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Follow these until then.
    pub arm: Vec<(u32, MonoNs)>,
    /// Do not follow these any more.
    pub disarm: Vec<u32>,
}

impl Schedule {
    /// How long a process is followed by one writing of the map: should the agent die, no longer than this.
    const FOR: Duration = Duration::from_secs(30);
    /// It is written again when less than this is left.
    const AGAIN: Duration = Duration::from_secs(15);
    /// An episode is told again every minute: one that was silent for longer is over, and its end was lost.
    const SILENT: Duration = Duration::from_secs(90);
    /// Most episodes of one process that are told apart.
    const EPISODES_MAX: usize = 1_024;

    /// Takes an order.
    pub fn take(&mut self, order: Order, now: MonoNs) {
        let Order { pid: Pid(tgid), episode, over } = order;
        if over {
            if let Some(episodes) = self.episodes.get_mut(&tgid) {
                episodes.remove(&episode);
            }
        } else if self.episodes.len() < ARMED_ENTRIES as usize || self.episodes.contains_key(&tgid) {
            let episodes = self.episodes.entry(tgid).or_default();
            if episodes.len() < Self::EPISODES_MAX || episodes.contains_key(&episode) {
                episodes.insert(episode, now);
            }
        }
    }

    /// What is to be changed now. What is in the plan is taken for done.
    pub fn plan(&mut self, now: MonoNs) -> Plan {
        let silent = |heard: &MonoNs| now.since(*heard).is_some_and(|age| age >= Self::SILENT);
        self.episodes.retain(|_, episodes| {
            episodes.retain(|_, heard| !silent(heard));
            !episodes.is_empty()
        });
        let mut plan = Plan::default();
        let episodes = &self.episodes;
        self.armed.retain(|tgid, _| {
            let stays = episodes.contains_key(tgid);
            if !stays {
                plan.disarm.push(*tgid);
            }
            stays
        });
        for tgid in self.episodes.keys() {
            let left = self.armed.get(tgid).and_then(|until| until.since(now)).unwrap_or_default();
            if left < Self::AGAIN {
                let until = now.after(Self::FOR);
                self.armed.insert(*tgid, until);
                plan.arm.push((*tgid, until));
            }
        }
        plan
    }

    /// How many are followed.
    pub fn armed(&self) -> usize {
        self.armed.len()
    }

    /// Whether the process is followed.
    pub fn is_armed(&self, tgid: u32) -> bool {
        self.armed.contains_key(&tgid)
    }

    /// Goes through the sums' entries. Gives back the keys whose last counts were said: delete them.
    pub fn read(
        &mut self,
        now: MonoNs,
        entries: &[(OffKey, OffSum)],
        emit: &mut impl FnMut(Signal),
    ) -> &[OffKey] {
        let armed = &self.armed;
        let mut life = |tgid: u32| {
            if armed.contains_key(&tgid) { Life::Alive(StartTicks(0)) } else { Life::Gone }
        };
        self.totals.read(entries, &mut life, &mut |key, added, last| {
            let Some(reason) = OffCpuReason::ALL.get(key.reason as usize).copied() else { return };
            let time = Duration::from_nanos;
            let (waited, queued) = (time(added.waited_ns), time(added.queued_ns));
            let scheduling =
                Scheduling { pid: Pid(key.tgid), reason, times: added.times, waited, queued, last };
            emit(Signal::Scheduling { at: now, scheduling });
        })
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
