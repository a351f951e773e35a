//! Tests of the policy: orders at their times, and what is written into the map.
//!
//! In: rows of seconds and orders. Out: plans and signals.

use warpgauge_ebpf::schedule::reason;

use super::*;
use crate::model::{Cause, Confidence, Finding, Severity, Stall, Tid, Victim};

const SECOND: u64 = 1_000_000_000;

fn order(tgid: u32, episode: &str, over: bool) -> Order {
    Order { pid: Pid(tgid), episode: episode.to_owned(), over }
}

/// The plan at each of these seconds, as `+77` and `-77`; orders come before the plan of their second.
fn plans(orders: &[(u64, Order)], seconds: &[u64]) -> Vec<String> {
    let mut schedule = Schedule::default();
    let plan = |s: &u64| {
        orders.iter().filter(|(at, _)| at == s).for_each(|(_, order)| {
            schedule.take(order.clone(), MonoNs(s * SECOND));
        });
        let plan = schedule.plan(MonoNs(s * SECOND));
        let until = MonoNs((s + 30) * SECOND);
        assert!(plan.arm.iter().all(|(_, at)| *at == until));
        let arm = plan.arm.iter().map(|(tgid, _)| format!("+{tgid}"));
        arm.chain(plan.disarm.iter().map(|tgid| format!("-{tgid}"))).collect::<Vec<_>>().join(" ")
    };
    seconds.iter().map(plan).collect()
}

#[test]
fn a_victim_is_followed_while_its_stall_lasts() {
    let orders = [(1, order(77, "a", false)), (40, order(77, "a", true))];
    assert_eq!(plans(&orders, &[0, 1, 2, 17, 18, 33, 40, 41]), ["", "+77", "", "+77", "", "+77", "-77", ""]);
}

#[test]
fn the_last_of_its_episodes_ends_it_and_so_does_silence() {
    let orders = [
        (1, order(77, "a", false)),
        (1, order(77, "b", false)),
        (2, order(77, "a", true)),
        (3, order(77, "b", true)),
    ];
    assert_eq!(plans(&orders, &[1, 2, 3]), ["+77", "", "-77"]);
    let told_again = [(1, order(77, "a", false)), (61, order(77, "a", false))];
    assert_eq!(plans(&told_again, &[1, 61, 90, 150, 151]), ["+77", "+77", "+77", "+77", "-77"]);
}

#[test]
fn there_are_never_more_than_the_map_holds() {
    let mut schedule = Schedule::default();
    for tgid in 0..ARMED_ENTRIES + 5 {
        schedule.take(order(tgid, "a", false), MonoNs(0));
    }
    assert_eq!(schedule.plan(MonoNs(0)).arm.len(), ARMED_ENTRIES as usize);
    assert_eq!((schedule.armed(), schedule.is_armed(0), schedule.is_armed(ARMED_ENTRIES)), (64, true, false));
}

#[test]
fn sums_of_the_followed_are_said_and_those_of_others_once_more_and_deleted() {
    let mut schedule = Schedule::default();
    let read = |schedule: &mut Schedule, sum: OffSum| {
        let mut said = Vec::new();
        let key = OffKey { tgid: 77, reason: reason::DRIVER_LOCK };
        let mut emit = |signal| {
            let Signal::Scheduling { scheduling, .. } = signal else { panic!("{signal:?}") };
            assert_eq!((scheduling.pid, scheduling.reason), (Pid(77), OffCpuReason::DriverLock));
            said.push((scheduling.times, scheduling.waited.as_nanos(), scheduling.queued.as_nanos()));
        };
        let deleted = schedule.read(MonoNs(1), &[(key, sum)], &mut emit).len();
        (said, deleted)
    };
    let sum = |times, waited_ns, queued_ns| OffSum { times, waited_ns, queued_ns };
    schedule.take(order(77, "a", false), MonoNs(0));
    schedule.plan(MonoNs(0));
    assert_eq!(read(&mut schedule, sum(2, 100, 7)), (vec![(2, 100, 7)], 0));
    schedule.take(order(77, "a", true), MonoNs(1));
    schedule.plan(MonoNs(1));
    assert_eq!(read(&mut schedule, sum(3, 150, 8)), (vec![(1, 50, 1)], 0));
    assert_eq!(read(&mut schedule, sum(3, 150, 8)), (vec![(0, 0, 0)], 1));
}

#[test]
fn every_reason_of_the_kernels_has_its_word() {
    assert_eq!(OffCpuReason::ALL.len(), reason::COUNT as usize);
    for (number, want) in [
        (reason::DRIVER_LOCK, "driver_lock"),
        (reason::FAULT, "fault"),
        (reason::DRIVER_CALL, "driver_call"),
        (reason::PREEMPTED, "preempted"),
        (reason::UNINTERRUPTIBLE, "uninterruptible"),
        (reason::SLEEP, "sleep"),
    ] {
        assert_eq!(OffCpuReason::ALL[number as usize].name(), want);
    }
}

#[test]
fn a_stalls_victims_are_ordered_once_each() {
    let victim = |pid, tid| Victim { pid: Pid(pid), tid: Tid(tid), caller: None };
    let fact = |state| {
        let stall = Stall {
            state,
            begin: MonoNs(0),
            duration: Duration::from_secs(1),
            cause: Cause::DriverCall,
            confidence: Confidence::High,
            hw_id: None,
            device_by: None,
            call: None,
            victims: vec![victim(7, 8), victim(7, 9), victim(5, 5)],
            lock: None,
            holder: None,
            evidence: vec![],
        };
        let kind = FindingKind::Stall(stall);
        Fact::Finding(Box::new(Finding { id: "s".into(), at: MonoNs(9), severity: Severity::Warn, kind }))
    };
    for (state, over) in [
        (StallState::Begin, false),
        (StallState::Update, false),
        (StallState::End, true),
        (StallState::Unobserved, true),
    ] {
        assert_eq!(orders(&fact(state)), [order(5, "s", over), order(7, "s", over)], "{state:?}");
    }
    assert_eq!(orders(&Fact::Reading(Signal::Tick { at: MonoNs(0) })), []);
}
