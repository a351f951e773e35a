//! Calls into the resource manager: from the kernel's running sums to what was added, and who makes them at all.
//!
//! In: the entries of the map, which processes live. Out: [`Signal::RmCalls`], and keys to delete.
//! What can go wrong: see [`super::totals`].

use std::collections::BTreeSet;
use std::time::Duration;

use warpgauge_ebpf::calls::Rm;
use warpgauge_ebpf::rm::{RmKey, RmSum};

use super::totals::{Key, Life, Sum, Totals};
use crate::model::{CgroupId, MonoNs, Pid, RmCalls as Calls, Signal};

impl Key for RmKey {
    fn tgid(&self) -> u32 {
        self.tgid
    }
}

impl Sum for RmSum {
    const NOTHING: Self = Self { calls: 0, time_ns: 0 };

    fn since(&self, before: &Self) -> Self {
        Self {
            calls: self.calls.wrapping_sub(before.calls),
            time_ns: self.time_ns.wrapping_sub(before.time_ns),
        }
    }

    fn is_nothing(&self) -> bool {
        self.calls == 0
    }
}

/// What was seen at the reading before.
#[derive(Debug, Default)]
pub struct RmCalls {
    totals: Totals<RmKey, RmSum>,
    callers: BTreeSet<u32>,
}

impl RmCalls {
    /// Goes through the map's entries. Gives back the keys whose last counts were said: delete them.
    pub fn read(
        &mut self,
        now: MonoNs,
        entries: &[(RmKey, RmSum)],
        life: &mut impl FnMut(u32) -> Life,
        emit: &mut impl FnMut(Signal),
    ) -> &[RmKey] {
        self.callers.clear();
        self.callers.extend(entries.iter().map(|(key, _)| key.tgid));
        self.totals.read(entries, life, &mut |key, added, last| {
            emit(Signal::RmCalls { at: now, calls: Box::new(calls(key, added, last)) });
        })
    }

    /// Whether the process has asked the resource manager for anything, as of the latest reading.
    pub fn has_called(&self, tgid: u32) -> bool {
        self.callers.contains(&tgid)
    }
}

fn calls(key: &RmKey, added: &RmSum, last: bool) -> Calls {
    Calls {
        pid: Pid(key.tgid),
        cgroup: CgroupId(key.cgroup),
        escape: key.escape,
        code: key.code,
        status: (key.status != Rm::UNANSWERED).then_some(key.status),
        calls: added.calls,
        time: Duration::from_nanos(added.time_ns),
        last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StartTicks;

    #[test]
    fn what_was_added_is_said_by_operation_and_status() {
        let key = |status| RmKey { cgroup: 9, tgid: 77, escape: 0x2a, code: 0x2080_0110, status };
        let sum = |calls, time_ns| RmSum { calls, time_ns };
        let mut rm = RmCalls::default();
        let mut read = |entries: &[(RmKey, RmSum)], life| {
            let mut said = Vec::new();
            let mut emit = |signal| {
                let Signal::RmCalls { calls, .. } = signal else { panic!("{signal:?}") };
                said.push((calls.status, calls.calls, calls.time.as_nanos(), calls.last));
            };
            let deleted = rm.read(MonoNs(1), entries, &mut |_| life, &mut emit).len();
            (said, deleted, rm.has_called(77))
        };
        let alive = Life::Alive(StartTicks(1));
        let (fine, lost, silent) = (key(0), key(0x0f), key(Rm::UNANSWERED));
        let first = read(&[(fine, sum(5, 500)), (lost, sum(1, 30)), (silent, sum(2, 7))], alive);
        let want = vec![(Some(0), 5, 500, false), (Some(0x0f), 1, 30, false), (None, 2, 7, false)];
        assert_eq!(first, (want, 0, true));
        let second = read(&[(fine, sum(5, 500)), (lost, sum(3, 90))], Life::Gone);
        assert_eq!(second, (vec![(Some(0x0f), 2, 60, false)], 0, true));
        let last = read(&[(lost, sum(4, 95))], Life::Gone);
        assert_eq!(last, (vec![(Some(0x0f), 1, 5, true)], 1, true));
        assert_eq!(read(&[], Life::Gone), (vec![], 0, false));
    }
}
