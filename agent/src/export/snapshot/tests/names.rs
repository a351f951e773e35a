//! Names of workloads that come after their series have begun: everything is counted once.
//!
//! In: hand-made facts. Out: assertions on the batches. What can go wrong is what is tested.
use super::*;

const OLD: &str = "k8s.pod.uid=p container.id=c";
const NEW: &str = "k8s.pod.uid=p k8s.namespace.name=ml k8s.pod.name=train-0 container.id=c";

/// So many calls of the pod `p`, with or without its name.
fn made(seconds: u64, n: u32, named: bool) -> Attributed<Fact> {
    with_name(at(seconds, of(calls(1, 3, n, false), 1, "p")), named)
}

fn with_name(mut fact: Attributed<Fact>, named: bool) -> Attributed<Fact> {
    if let (true, Some((_, Known::Is(process)))) = (named, fact.processes.first_mut()) {
        let names = ["ml", "train-0"].map(|name| Some(name.to_owned()));
        [process.workload.namespace, process.workload.pod] = names;
    }
    fact
}

/// Points of the metric as `owner start at value`; times in seconds, a histogram's value is its count.
fn shown<'a>(points: impl IntoIterator<Item = &'a Point>, name: &str) -> Vec<String> {
    let second = |at: WallNs| (at.0 - wall(0).0) / 1_000_000_000;
    let of = points.into_iter().filter(|point| point.metric.name == name);
    let show = |point: &Point| {
        let owner = attributes(point);
        let owner = if owner.ends_with(NEW) { "new" } else { owner.ends_with(OLD).then_some("old").unwrap() };
        let value = match &point.value {
            Value::Latency(latency) => latency.count().to_string(),
            Value::Count(n) => n.to_string(),
            Value::Nanos(n) => format!("{n} ns"),
            Value::End => "end".to_owned(),
            other => panic!("{other:?}"),
        };
        let start = point.start.map_or("-".to_owned(), |start| second(start).to_string());
        format!("{owner} {start} {} {value}", second(point.at))
    };
    of.map(show).collect()
}

const CALLS: &str = "gpu.driver.call.duration";

#[test]
fn a_name_that_comes_before_the_first_export_is_there_from_the_start() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&made(7, 2, false));
    snapshot.push(&made(8, 3, true));
    let batch = snapshot.collect(anchor(10), INTERVAL, None);
    assert_eq!(shown(&batch.points, CALLS), ["new 0 8 5"]);
}

#[test]
fn a_series_ends_under_the_old_names_and_goes_on_from_nothing_under_the_new_ones() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&made(8, 2, false));
    assert_eq!(shown(&snapshot.collect(anchor(10), INTERVAL, None).points, CALLS), ["old 0 8 2"]);
    snapshot.push(&made(18, 3, true));
    let second = snapshot.collect(anchor(20), INTERVAL, None);
    assert_eq!(shown(&second.points, CALLS), ["old 0 18 5"], "all that was counted so far");
    snapshot.push(&made(28, 1, false)); // from a process whose name is not known: the workload's is
    let third = snapshot.collect(anchor(30), INTERVAL, None);
    let zeros = |batch: &Batch| shown(batch.zeros.iter().map(|(_, point)| point), CALLS);
    assert_eq!(zeros(&third), ["old 0 18 5", "new 18 18 0"], "until it is known that they arrived");
    assert_eq!(shown(&third.points, CALLS), ["new 18 28 1"]);
    let generations: Vec<u64> = third.zeros.iter().map(|(since, _)| *since).collect();
    assert!(generations.iter().all(|since| [2, 3].contains(since)), "{generations:?}");

    snapshot.settle_zeros(3);
    snapshot.push(&made(38, 4, true));
    let fourth = snapshot.collect(anchor(40), INTERVAL, None);
    assert_eq!(shown(&fourth.points, CALLS), ["old 0 40 end", "new 18 38 5"], "5 and 5 are the 10 calls");
    assert_eq!(zeros(&fourth), [] as [&str; 0]);
    let fifth = snapshot.collect(anchor(50), INTERVAL, None);
    assert_eq!(shown(&fifth.points, CALLS), ["new 18 50 5"]);
}

#[test]
fn a_stall_that_goes_on_is_told_once_under_either_name() {
    let mut snapshot = snapshot(Limits::default());
    snapshot.push(&at(3, with_name(stall("s", StallState::Begin, 1), false)));
    snapshot.collect(anchor(10), INTERVAL, None);
    snapshot.push(&made(11, 1, true));
    let second = snapshot.collect(anchor(20), INTERVAL, None);
    assert_eq!(shown(&second.points, "gpu.stall.active"), ["old - 20 1"]);
    let third = snapshot.collect(anchor(30), INTERVAL, None);
    assert_eq!(shown(&third.points, "gpu.stall.active"), ["old - 30 end", "new - 30 1"]);
    snapshot.push(&at(35, with_name(stall("s", StallState::End, 32), true)));
    let fourth = snapshot.collect(anchor(40), INTERVAL, None);
    assert_eq!(shown(&fourth.points, "gpu.stall.active"), ["new - 35 0"]);
    assert_eq!(shown(&fourth.points, "gpu.stall.time"), ["new 20 35 32000000000 ns"], "booked at its end");
    let last = |batch: &Batch| shown(batch.zeros.iter().map(|(_, point)| point), "gpu.stall.count");
    assert!(last(&fourth).contains(&"old 0 20 1".to_owned()), "{:?}", last(&fourth));
}

#[test]
fn while_a_collector_is_away_only_so_many_series_wait_for_their_end() {
    let limits = Limits { per_metric: 2, total: 2 };
    let mut snapshot = snapshot(limits);
    snapshot.push(&made(8, 1, false));
    snapshot.collect(anchor(10), INTERVAL, None);
    snapshot.push(&made(11, 1, true));
    snapshot.collect(anchor(20), INTERVAL, None);
    let mut fact = made(21, 1, true);
    if let Known::Is(process) = &mut fact.processes[0].1 {
        process.workload.container = Some("main".into());
    }
    snapshot.collect(anchor(30), INTERVAL, None);
    snapshot.push(&fact);
    for at in [40, 50] {
        let batch = snapshot.collect(anchor(at), INTERVAL, None);
        assert_eq!(shown(&batch.points, CALLS).len(), 1, "under the name it has");
        assert_eq!(batch.zeros.len(), 4, "durations and errors, their ends and their zeros");
    }
    snapshot.settle_zeros(5);
    let batch = snapshot.collect(anchor(60), INTERVAL, None);
    let durations = of_metric(&batch.points, CALLS);
    assert_eq!(durations.len(), 2);
    snapshot.settle_zeros(6);
    let batch = snapshot.collect(anchor(70), INTERVAL, None);
    let whose: Vec<String> = of_metric(&batch.points, CALLS).into_iter().map(attributes).collect();
    assert!(whose.iter().any(|whose| whose.contains("k8s.container.name=main")), "{whose:?}");
}
