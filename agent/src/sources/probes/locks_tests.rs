//! Tests of names, holders and garbage: what the maps have, by short rows.
//!
//! In: entries. Out: names of holders and keys.

use super::*;

const LOCK: u64 = 0xffff_8880_0000_1000;
const OTHER: u64 = 0xffff_8880_0000_2000;

fn held(lock: u64, tid: u32, since_ns: u64, mode: u32) -> (HeldKey, Held) {
    let key = HeldKey { lock, tid, reserved: 0 };
    (key, Held { since_ns, tgid: tid / 10, mode, start_ns: 70_000_000, cgroup: 9, ..Held::default() })
}

fn served(tid: u32) -> (InFlightKey, InFlight) {
    let key = InFlightKey { tid, layer: layer::DRIVER };
    (key, InFlight { kind: kind::RM, tgid: tid / 10, ..InFlight::default() })
}

fn waits(tid: u32, enter_ns: u64, object: u64, op: u32) -> (InFlightKey, InFlight) {
    let key = InFlightKey { tid, layer: layer::LOCK };
    (key, InFlight { kind: kind::LOCK, enter_ns, object, op, ..InFlight::default() })
}

#[test]
fn the_lock_that_most_served_threads_took_first_is_the_interfaces() {
    let mut names = LockNames::default();
    let own = |tid: u32| 0xffff_8880_0001_0000 + u64::from(tid) * 64;
    let took: Vec<_> = [11, 21]
        .into_iter()
        .flat_map(|tid| [held(LOCK, tid, 100, mode::READ), held(own(tid), tid, 101, mode::WRITE)])
        .collect();
    names.learn_rm_api(MonoNs(1), &took[..2], &[served(11)]);
    assert_eq!(names.name(number(LOCK)), "lock-1", "one thread proves nothing");
    names.learn_rm_api(MonoNs(2), &took, &[served(11), served(21)]);
    assert_eq!(names.name(number(LOCK)), "rm_api");
    assert_eq!(names.learn(number(OTHER), MonoNs(2)), "lock-2");
    // a wait counts as well, and a thread that the resource manager does not serve does not
    let mut names = LockNames::default();
    let want = [served(11), waits(11, 5, LOCK, mode::WRITE), served(21), waits(21, 5, LOCK, mode::READ)];
    names.learn_rm_api(MonoNs(1), &[held(OTHER, 31, 1, mode::READ), held(OTHER, 41, 1, mode::READ)], &want);
    assert_eq!((names.name(number(LOCK)), names.name(number(OTHER))), ("rm_api".into(), "lock".into()));
}

#[test]
fn the_name_stays_until_its_lock_is_not_used_any_more() {
    let mut names = LockNames::default();
    let two = |lock| [held(lock, 11, 1, mode::READ), held(lock, 21, 1, mode::READ)];
    let (threads, minute) = ([served(11), served(21)], LockNames::OLD);
    names.learn_rm_api(MonoNs(1), &two(LOCK), &threads);
    names.learn_rm_api(MonoNs(2), &two(OTHER), &threads);
    assert_eq!(names.name(number(LOCK)), "rm_api");
    names.learn_rm_api(MonoNs(1).after(minute), &two(OTHER), &threads); // the driver was loaded again
    assert_eq!((names.name(number(LOCK)), names.name(number(OTHER))), ("lock-1".into(), "rm_api".into()));
}

#[test]
fn there_is_an_end_to_what_is_named_and_no_number_is_given_twice() {
    let mut names = LockNames::default();
    for n in 0..LockNames::MAX as u32 + 5 {
        names.learn(n, MonoNs(u64::from(n)));
    }
    assert_eq!((names.known.len(), names.name(0).as_str()), (LockNames::MAX, "lock"));
    assert_eq!(names.learn(0, MonoNs(9_999)), format!("lock-{}", LockNames::MAX + 6));
}

/// Threads that have the lock.
#[track_caller]
fn check(entries: &[(HeldKey, Held)], want: &[u32]) {
    let found = holders(&mut LockNames::default(), MonoNs(9), LOCK, entries);
    assert_eq!(found.lock, "lock-1");
    let tids: Vec<u32> = found.holders.iter().map(|holder| holder.tid.0).collect();
    assert_eq!(tids, want, "{entries:?}");
}

#[test]
fn holders_are_those_that_can_still_have_the_lock() {
    let (read, write, mutex, tried) = (mode::READ, mode::WRITE, mode::MUTEX, mode::TRIED);
    check(&[], &[]);
    check(&[held(OTHER, 11, 5, write)], &[]);
    check(&[held(LOCK, 12, 6, read), held(LOCK, 11, 5, read)], &[11, 12]);
    // whoever is alone with it has put an end to all before, and readers to a writer
    check(&[held(LOCK, 11, 5, read), held(LOCK, 12, 6, write)], &[12]);
    check(&[held(LOCK, 11, 5, write), held(LOCK, 12, 6, read), held(LOCK, 13, 7, read)], &[12, 13]);
    check(&[held(LOCK, 11, 5, mutex), held(LOCK, 12, 6, mutex)], &[12]);
    check(&[held(LOCK, 11, 5, mutex), held(LOCK, 12, 6, tried)], &[12]);
    check(&[held(LOCK, 11, 5, tried), held(LOCK, 12, 6, mutex)], &[12]);
    // another lock's entries say nothing of this one
    check(&[held(LOCK, 11, 5, read), held(OTHER, 12, 6, write)], &[11]);
}

#[test]
fn a_holder_comes_with_all_the_probe_knew() {
    let mut entry = held(LOCK, 11, 5, mode::WRITE);
    entry.1.comm[..3].copy_from_slice(b"smi");
    let found = holders(&mut LockNames::default(), MonoNs(9), LOCK, &[entry]);
    let holder = &found.holders[0];
    let caller = holder.caller.as_ref().expect("known");
    assert_eq!((holder.pid, holder.since, holder.exclusive), (Pid(1), MonoNs(5), true));
    assert_eq!((caller.comm.as_str(), caller.start.0, caller.cgroup.0), ("smi", 7, 9));
}

#[test]
fn entries_of_the_dead_go_at_the_second_look_unless_somebody_waits() {
    let entries =
        [held(LOCK, 11, 5, mode::WRITE), held(LOCK, 12, 5, mode::READ), held(OTHER, 11, 6, mode::WRITE)];
    let mut garbage = Garbage::default();
    let waited = BTreeSet::from([OTHER]);
    let find = |garbage: &mut Garbage, waited: &BTreeSet<u64>| {
        garbage.find(&entries, waited, &mut |key, _| key.tid == 11)
    };
    assert_eq!(find(&mut garbage, &waited), []);
    assert_eq!(find(&mut garbage, &waited), [(entries[0].0, 5)]);
    assert_eq!(find(&mut garbage, &BTreeSet::new()), []);
    let both = [(entries[0].0, 5), (entries[2].0, 6)];
    assert_eq!(
        find(&mut garbage, &BTreeSet::new()),
        both,
        "the first was not deleted here, and is found again"
    );
}

#[test]
fn what_others_have_taken_since_leaves_a_map_that_fills_up() {
    let entries: Vec<_> =
        (0..=HELD_ENTRIES / 2).map(|tid| held(LOCK, tid, u64::from(tid), mode::MUTEX)).collect();
    let find = |entries: &[(HeldKey, Held)]| {
        let over = Garbage::default().find(entries, &BTreeSet::new(), &mut |_, _| false);
        (over.len(), over.contains(&(entries[entries.len() - 1].0, u64::from(HELD_ENTRIES / 2))))
    };
    assert_eq!(find(&entries), (HELD_ENTRIES as usize / 2, false), "all but the last");
    assert_eq!(find(&entries[1..]), (0, false), "there is room");
    let readers: Vec<_> = (0..=HELD_ENTRIES / 2).map(|tid| held(LOCK, tid, 5, mode::READ)).collect();
    assert_eq!(Garbage::default().find(&readers, &BTreeSet::new(), &mut |_, _| false), []);
}
