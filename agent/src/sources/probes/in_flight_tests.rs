//! Tests of the tracker: each is a short story of scans and ends.
//!
//! In: entries and events. Out: the edges that were said, in order.

use warpgauge_ebpf::calls::kind;

use super::*;
use crate::model::Edge;

const MS: u64 = 1_000_000;
const KEY: InFlightKey = InFlightKey { tid: 78, layer: 0 };

fn call(enter_ms: u64) -> InFlight {
    InFlight { enter_ns: enter_ms * MS, tgid: 77, kind: kind::IOCTL, ..InFlight::default() }
}

fn end(enter_ms: u64, end_ms: u64) -> SlowCall {
    SlowCall { key: KEY, end_ns: end_ms * MS, ret: 0, call: call(enter_ms) }
}

/// What threads do, and what the map has by the time it is asked again.
struct Scripted {
    verdict: Inside,
    map: Vec<(InFlightKey, InFlight)>,
    /// The layers it was looked at for.
    looked: Vec<u32>,
    in_driver: bool,
}

impl Node for Scripted {
    fn look(&mut self, key: &InFlightKey, _: &InFlight, _: Option<&Sample>) -> Look {
        self.looked.push(key.layer);
        let inside = self.verdict;
        Look {
            state: ThreadState { state: None, wait: None, launcher: false, inside, utime: None, stime: None },
            sample: None,
        }
    }

    fn entry(&mut self, key: &InFlightKey) -> Option<InFlight> {
        self.map.iter().find(|(known, _)| known == key).map(|(_, call)| *call)
    }

    fn is_in_driver(&mut self, _: &InFlightKey, _: &InFlight) -> bool {
        self.in_driver
    }
}

/// A tracker, and what it said: `enter 1000`, `thread 1300`, `exit 2000`, `lost 2000`.
struct Story {
    tracker: Tracker,
    said: Vec<String>,
    verdict: Inside,
    in_driver: bool,
}

impl Story {
    fn new() -> Self {
        let tracker = Tracker::new(Duration::from_millis(250), Counter::default());
        Self { tracker, said: Vec::new(), in_driver: false, verdict: Inside::Inside }
    }

    /// Scans; gives the number of entries to delete.
    fn scan(&mut self, now_ms: u64, entries: &[InFlight]) -> usize {
        self.scan_then(now_ms, entries, entries)
    }

    /// Scans a map that is another one when it is asked again.
    fn scan_then(&mut self, now_ms: u64, entries: &[InFlight], then: &[InFlight]) -> usize {
        let of_one_layer = |calls: &[InFlight]| calls.iter().map(|call| (KEY, *call)).collect::<Vec<_>>();
        self.scan_nest(now_ms, &of_one_layer(entries), &of_one_layer(then)).0.len()
    }

    /// Scans entries of several layers; gives the layers to delete, and those that were looked at.
    fn scan_nest(
        &mut self,
        now_ms: u64,
        entries: &[(InFlightKey, InFlight)],
        then: &[(InFlightKey, InFlight)],
    ) -> (Vec<u32>, Vec<u32>) {
        let mut node = Scripted {
            verdict: self.verdict,
            map: then.to_vec(),
            looked: Vec::new(),
            in_driver: self.in_driver,
        };
        let said = &mut self.said;
        let mut emit = |signal| said.push(words(&signal));
        let over = self.tracker.scan(MonoNs(now_ms * MS), entries, &Names::default(), &mut node, &mut emit);
        (over.iter().map(|(key, _)| key.layer).collect(), node.looked)
    }

    fn end(&mut self, event: &SlowCall) {
        let said = &mut self.said;
        self.tracker.ended(event, &Names::default(), &mut |signal| said.push(words(&signal)));
    }

    fn said(&mut self) -> String {
        std::mem::take(&mut self.said).join(", ")
    }
}

fn words(signal: &Signal) -> String {
    let word = match signal {
        Signal::Thread { .. } => "thread",
        Signal::Call { call, .. } => match call.edge {
            Edge::Enter => "enter",
            Edge::Exit { lost: false, .. } => "exit",
            Edge::Exit { lost: true, .. } => "lost",
            Edge::Release => "release",
        },
        other => panic!("{other:?}"),
    };
    format!("{word} {}", signal.at().0 / MS)
}

#[test]
fn a_hanging_call_is_announced_once_and_ends_with_its_event() {
    let mut story = Story::new();
    story.scan(1200, &[call(1000)]);
    assert_eq!(story.said(), "", "not slow yet");
    story.scan(1250, &[call(1000)]);
    assert_eq!(story.said(), "enter 1000, thread 1250");
    story.scan(1500, &[call(1000)]);
    assert_eq!(story.said(), "thread 1500");
    story.end(&end(1000, 1700));
    assert_eq!(story.said(), "exit 1700");
    story.scan(1750, &[]);
    story.scan(2000, &[]);
    assert_eq!((story.said(), story.tracker.open(), story.tracker.lost_returns.get()), (String::new(), 0, 0));
}

#[test]
fn a_slow_call_between_two_scans_is_said_whole() {
    let mut story = Story::new();
    story.end(&end(1000, 1400));
    assert_eq!(story.said(), "enter 1000, exit 1400");
}

#[test]
fn an_end_that_comes_after_its_entry_has_gone_is_not_lost() {
    let mut story = Story::new();
    story.scan(1300, &[call(1000)]);
    story.scan(1500, &[]);
    story.end(&end(1000, 1499));
    story.scan(1750, &[]);
    assert_eq!(story.said(), "enter 1000, thread 1300, exit 1499");
    assert_eq!(story.tracker.lost_returns.get(), 0);
}

#[test]
fn an_entry_that_vanished_is_closed_one_scan_later() {
    let mut story = Story::new();
    story.scan(1300, &[call(1000)]);
    story.scan(1500, &[]);
    assert_eq!(story.said(), "enter 1000, thread 1300");
    story.scan(1750, &[]);
    assert_eq!((story.said().as_str(), story.tracker.lost_returns.get()), ("lost 1750", 1));
}

#[test]
fn only_outside_closes_an_entry() {
    let mut story = Story::new();
    for (now, verdict) in [(1300, Inside::Unknown), (1550, Inside::Inside), (1800, Inside::Unknown)] {
        story.verdict = verdict;
        assert_eq!(story.scan(now, &[call(1000)]), 0);
    }
    story.verdict = Inside::Outside;
    assert_eq!(story.scan(2000, &[call(1000)]), 1);
    assert_eq!(story.said(), "enter 1000, thread 1300, thread 1550, thread 1800, thread 2000, lost 2000");
    story.scan(2250, &[]);
    story.scan(2500, &[]);
    assert_eq!((story.said().as_str(), story.tracker.lost_returns.get()), ("", 1));
}

#[test]
fn a_thread_found_in_a_later_call_has_left_the_former_one() {
    let mut story = Story::new();
    story.scan(1300, &[call(1000)]);
    story.scan(2000, &[call(1600)]);
    assert_eq!(story.said(), "enter 1000, thread 1300, lost 2000, enter 1600, thread 2000");
    // the late event of the former call is said whole: better twice than never
    story.end(&end(1600, 2100));
    assert_eq!(story.said(), "exit 2100");
}

#[test]
fn a_call_that_returns_while_it_is_looked_at_ends_with_its_event() {
    let mut story = Story::new();
    story.scan(1300, &[call(1000)]);
    story.verdict = Inside::Outside;
    assert_eq!(story.scan_then(1550, &[call(1000)], &[]), 0, "gone already");
    assert_eq!(story.scan_then(1800, &[call(1000)], &[call(1790)]), 0, "the next call's entry is left alone");
    story.end(&end(1000, 1540));
    assert_eq!(story.said(), "enter 1000, thread 1300, exit 1540");
    story.scan(2000, &[]);
    story.scan(2250, &[]);
    assert_eq!((story.said(), story.tracker.open(), story.tracker.lost_returns.get()), (String::new(), 0, 0));
}

#[test]
fn a_first_look_that_comes_too_late_says_the_entry_only() {
    let mut story = Story::new();
    story.verdict = Inside::Outside;
    assert_eq!(story.scan_then(1300, &[call(1000)], &[]), 0);
    story.end(&end(1000, 1299));
    assert_eq!(story.said(), "enter 1000, exit 1299");
}

#[test]
fn an_end_that_never_comes_after_such_a_look_is_lost_after_two_more_scans() {
    let mut story = Story::new();
    story.scan(1300, &[call(1000)]);
    story.verdict = Inside::Outside;
    story.scan_then(1550, &[call(1000)], &[]);
    story.scan(1800, &[]);
    assert_eq!(story.said(), "enter 1000, thread 1300");
    story.scan(2050, &[]);
    assert_eq!((story.said().as_str(), story.tracker.lost_returns.get()), ("lost 2050", 1));
}

#[test]
fn an_entry_that_the_walk_passed_over_is_looked_at_all_the_same() {
    let mut story = Story::new();
    story.scan(1300, &[call(1000)]);
    for now in [1550, 1800, 2050] {
        story.scan_then(now, &[], &[call(1000)]);
    }
    assert_eq!(story.said(), "enter 1000, thread 1300, thread 1550, thread 1800, thread 2050");
    story.verdict = Inside::Outside;
    assert_eq!(story.scan_then(2300, &[], &[call(1000)]), 1);
    assert_eq!((story.said().as_str(), story.tracker.lost_returns.get()), ("thread 2300, lost 2300", 1));
}

#[test]
fn calls_that_nobody_watches_any_more_are_closed_at_the_last_sign_of_them() {
    let mut story = Story::new();
    story.scan(1300, &[call(1000)]);
    story.scan(1550, &[call(1000)]);
    story.scan(1800, &[]);
    story.said();
    let said = &mut story.said;
    story.tracker.forget(&Names::default(), &mut |signal| said.push(words(&signal)));
    assert_eq!((story.said().as_str(), story.tracker.open()), ("lost 1550", 0));
    assert_eq!(story.tracker.lost_returns.get(), 0, "the return may still come, only nobody will see it");
}

#[test]
fn an_open_of_an_unread_path_is_not_announced_but_does_not_stay() {
    let mut story = Story::new();
    let opening = InFlight { kind: kind::OPEN, flags: flags::PATH_UNREAD, ..call(1000) };
    assert_eq!(story.scan(9000, &[opening]), 0);
    story.verdict = Inside::Outside;
    assert_eq!(story.scan_then(9250, &[opening], &[]), 0);
    assert_eq!(story.scan(9500, &[opening]), 1);
    assert_eq!((story.said().as_str(), story.tracker.lost_returns.get()), ("", 0), "it may be of any file");
}

#[test]
fn an_open_of_an_unread_path_is_announced_where_it_hangs_in_the_driver() {
    let mut story = Story::new();
    let opening = InFlight { kind: kind::OPEN, flags: flags::PATH_UNREAD, ..call(1000) };
    story.in_driver = true;
    assert_eq!(story.scan_then(1300, &[opening], &[]), 0);
    assert_eq!(story.said(), "", "it went on to something else");
    assert_eq!(story.scan(1550, &[opening]), 0);
    assert_eq!(story.said(), "enter 1000, thread 1550");
    // what it is in now is not asked again: it may be on its way out
    story.in_driver = false;
    assert_eq!(story.scan(1800, &[opening]), 0);
    assert_eq!(story.said(), "thread 1800");
    // it failed: there is no descriptor, and the kernel programs cannot tell what it was of
    story.scan(2050, &[]);
    story.scan(2300, &[]);
    assert_eq!((story.said().as_str(), story.tracker.open()), ("lost 2300", 0));
    assert_eq!(story.tracker.lost_returns.get(), 0);
}

/// An entry of a layer, as the map has it.
fn of_layer(layer: u32, enter_ms: u64) -> (InFlightKey, InFlight) {
    let kind = match layer {
        layer::SYSCALL => kind::IOCTL,
        layer::FAULT => kind::FAULT,
        layer::DRIVER => kind::RM,
        _ => kind::LOCK,
    };
    (InFlightKey { tid: 78, layer }, InFlight { kind, ..call(enter_ms) })
}

#[test]
fn entries_of_a_thread_are_announced_apart_and_looked_at_once() {
    let mut story = Story::new();
    let nest = [of_layer(layer::SYSCALL, 1000), of_layer(layer::DRIVER, 1001), of_layer(layer::LOCK, 1100)];
    assert_eq!(story.scan_nest(1300, &nest, &nest), (vec![], vec![layer::SYSCALL]));
    assert_eq!(story.said(), "enter 1000, enter 1001, thread 1300", "the lock's wait is short so far");
    assert_eq!(story.scan_nest(1550, &nest, &nest), (vec![], vec![layer::SYSCALL]));
    assert_eq!(story.said(), "enter 1100, thread 1550");
    let lock = SlowCall { key: nest[2].0, end_ns: 1600 * MS, ret: 0, call: nest[2].1 };
    story.end(&lock);
    story.end(&end(1000, 1700));
    assert_eq!(story.said(), "exit 1600, exit 1700");
    assert_eq!(story.tracker.open(), 1, "the driver's own end is still to come");
}

#[test]
fn the_outermost_is_the_one_that_began_first() {
    let mut story = Story::new();
    let fault_within = [of_layer(layer::FAULT, 1010), of_layer(layer::DRIVER, 1000)];
    assert_eq!(story.scan_nest(1300, &fault_within, &fault_within).1, [layer::DRIVER]);
    assert_eq!(story.said(), "enter 1000, enter 1010, thread 1300");
    let fault = [of_layer(layer::FAULT, 2000)];
    assert_eq!(story.scan_nest(2300, &fault, &fault).1, [layer::FAULT]);
}

#[test]
fn a_thread_that_is_outside_is_outside_of_all() {
    let mut story = Story::new();
    let nest = [of_layer(layer::SYSCALL, 1000), of_layer(layer::DRIVER, 1001), of_layer(layer::LOCK, 1002)];
    story.scan_nest(1300, &nest, &nest);
    story.said();
    story.verdict = Inside::Outside;
    // the lock's end is on its way
    let over = story.scan_nest(1550, &nest, &nest[..2]).0;
    assert_eq!(over, [layer::DRIVER, layer::SYSCALL]);
    assert_eq!(story.said(), "thread 1550, lost 1550, lost 1550");
    assert_eq!((story.tracker.open(), story.tracker.lost_returns.get()), (1, 2));
}

#[test]
fn what_is_older_than_its_threads_system_call_is_a_leftover() {
    let mut story = Story::new();
    let before = [of_layer(layer::SYSCALL, 1000), of_layer(layer::DRIVER, 1001)];
    story.scan_nest(1300, &before, &before);
    story.said();
    let after = [of_layer(layer::SYSCALL, 1400), of_layer(layer::DRIVER, 1001)];
    assert_eq!(story.scan_nest(1500, &after, &after).0, [layer::DRIVER], "young as the call is");
    assert_eq!((story.said().as_str(), story.tracker.lost_returns.get()), ("lost 1500", 1));
}

#[test]
fn threads_of_the_kernel_are_nobodys_victims() {
    let mut story = Story::new();
    let (key, call) = of_layer(layer::DRIVER, 1000);
    let own = InFlight { kind: kind::SERVICE, flags: flags::KERNEL_THREAD, ..call };
    assert_eq!(story.scan_nest(9000, &[(key, own)], &[(key, own)]), (vec![], vec![]));
    story.end(&SlowCall { key, end_ns: 9100 * MS, ret: 0, call: own });
    assert_eq!((story.said().as_str(), story.tracker.open()), ("", 0));
}

#[test]
fn what_a_probe_began_and_cannot_end_is_closed_counted_and_deleted() {
    let fault = InFlightKey { tid: 78, layer: layer::FAULT };
    let unread = InFlightKey { tid: 79, layer: 0 };
    let of = |kind, enter_ms| InFlight { kind, ..call(enter_ms) };
    let mut story = Story::new();
    let announced = [(KEY, call(1000)), (fault, of(kind::FAULT, 1100))];
    story.scan_nest(1500, &announced, &announced);
    story.said();
    let abandon = |story: &mut Story, now_ms: u64, kinds: u32, entries: &[(InFlightKey, InFlight)]| {
        let Story { tracker, said, .. } = story;
        let mut emit = |signal| said.push(words(&signal));
        let over = tracker.abandon(MonoNs(now_ms * MS), kinds, entries, &Names::default(), &mut emit);
        over.iter().map(|(key, _)| (key.tid, key.layer)).collect::<Vec<_>>()
    };
    // a fault that is not announced yet, and an open that may be of any file
    let young = InFlightKey { tid: 80, layer: layer::FAULT };
    let open = InFlight { flags: flags::PATH_UNREAD, ..of(kind::OPEN, 1000) };
    let map = [announced[0], announced[1], (young, of(kind::FAULT, 1900)), (unread, open)];
    assert_eq!(abandon(&mut story, 2000, 1 << kind::LOCK, &map), []);
    assert_eq!((story.said().as_str(), story.tracker.lost_returns.get()), ("", 0));
    let over = abandon(&mut story, 2000, 1 << kind::FAULT | 1 << kind::OPEN, &map);
    assert_eq!(over, [(78, layer::FAULT), (80, layer::FAULT), (79, 0)]);
    assert_eq!((story.said().as_str(), story.tracker.open()), ("lost 2000", 1), "the ioctl goes on");
    assert_eq!(story.tracker.lost_returns.get(), 2);
    // one that is announced, and that the walk has passed over
    assert_eq!(abandon(&mut story, 3000, 1 << kind::IOCTL, &[]), []);
    assert_eq!((story.said().as_str(), story.tracker.open()), ("lost 3000", 0));
    assert_eq!(story.tracker.lost_returns.get(), 3);
}
