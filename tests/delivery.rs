//! The Collector goes away, hangs, comes back; the agent is killed: its own numbers account for every record.

use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

use crate::kernel_log::{Lines, setup};

/// emitted = acknowledged + dropped + queued, in the latest numbers that the Collector has.
fn account(collector: &Collector) -> (f64, f64, f64, f64) {
    let latest = |name, attributes: &[(&str, &str)]| collector.latest(name, attributes).unwrap_or(0.0);
    (
        latest("warpgauge.log.records", &[("state", "emitted")]),
        latest("warpgauge.log.records", &[("state", "acknowledged")]),
        latest("warpgauge.log.records.dropped", &[]),
        latest("warpgauge.log.records.queued", &[]),
    )
}

#[track_caller]
fn wait_for_balance(collector: &Collector, acknowledged_least: usize) {
    let mut last = Default::default();
    wait_for("the account to balance", 30, || {
        last = account(collector);
        let (emitted, acknowledged, dropped, queued) = last;
        let balanced = emitted == acknowledged + dropped + queued && queued == 0.0;
        (balanced && acknowledged_least as f64 <= acknowledged).then_some(())
    });
}

#[test]
fn a_collector_that_was_away_gets_everything() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("away");
    let mut collector = Collector::stopped(scratch.path());
    let mut lines = Lines::new("away");
    let mut agent = setup(&scratch, &collector).start(); // absent at start
    lines.write(100);
    wait_for("the agent to say that nobody answers", 30, || {
        agent.log().contains("unreachable").then_some(())
    });
    collector.run();
    lines.wait_for_all(&collector);

    collector.kill(); // lost
    lines.write(100);
    wait_for("the agent to notice", 30, || (agent.log().matches("unreachable").count() == 2).then_some(()));
    collector.run();
    lines.wait_for_all(&collector);
    wait_for_balance(&collector, lines.written());
    assert_eq!(account(&collector).2, 0.0, "nothing was dropped");
    assert!(agent.is_running());
    assert!(agent.terminate().success());
}

#[test]
fn a_collector_that_hangs_is_given_up_on_and_asked_again() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("hung");
    let collector = Collector::start(scratch.path());
    let mut lines = Lines::new("hung");
    let agent = setup(&scratch, &collector).start();
    lines.write(10);
    lines.wait_for_all(&collector);
    collector.hang();
    lines.write(10);
    wait_for("a call to be given up", 30, || agent.log().contains("unreachable").then_some(()));
    collector.resume();
    lines.wait_for_all(&collector);
    // A call that was given up may have arrived all the same: then it is repeated, under the same uid.
    let uids = lines.by_text(&collector);
    assert!(uids.values().all(|uids| uids.iter().all(|uid| *uid == uids[0])), "{uids:?}");
    assert!(agent.terminate().success());
}

#[test]
fn stopping_with_a_dead_collector_loses_nothing() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("stop-dead");
    let mut collector = Collector::start(scratch.path());
    let mut lines = Lines::new("stop-dead");
    let mut setup = setup(&scratch, &collector);
    let agent = setup.start();
    lines.write(10);
    lines.wait_for_all(&collector);
    collector.kill();
    lines.write(10);
    assert!(agent.terminate().success());
    collector.run();
    let agent = setup.start();
    lines.wait_for_all(&collector);
    wait_for_balance(&collector, 10);
    let repeated: Vec<_> =
        lines.by_text(&collector).into_iter().filter(|(_, uids)| uids.len() != 1).collect();
    assert_eq!(repeated, [], "each once");
    assert!(agent.terminate().success());
}

#[test]
fn stopping_with_a_hung_collector_takes_less_than_five_seconds() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("stop-hung");
    let collector = Collector::start(scratch.path());
    let mut lines = Lines::new("stop-hung");
    let mut setup = setup(&scratch, &collector).env("OTEL_EXPORTER_OTLP_TIMEOUT", "60000");
    let agent = setup.start();
    lines.write(10);
    lines.wait_for_all(&collector);
    collector.hang();
    lines.write(10);
    let began = std::time::Instant::now();
    assert!(agent.terminate().success());
    let took = began.elapsed().as_secs_f64();
    assert!(took < 5.0, "{took} s");
    collector.resume();
    let agent = setup.start();
    lines.wait_for_all(&collector);
    // What was on its way when the agent gave up may have arrived: then it is repeated, under the same uid.
    let uids = lines.by_text(&collector);
    assert!(uids.values().all(|uids| uids.iter().all(|uid| *uid == uids[0])), "{uids:?}");
    assert!(agent.terminate().success());
}

#[test]
fn a_killed_agent_accounts_for_what_it_does_after_its_restart() {
    needs!(Root, KmsgWrite, Collector);
    let scratch = Scratch::new("killed");
    let collector = Collector::start(scratch.path());
    let mut lines = Lines::new("killed");
    let mut setup = setup(&scratch, &collector);
    let agent = setup.start();
    lines.write(50);
    lines.wait_for_all(&collector);
    lines.write(50);
    agent.kill();
    let agent = setup.start();
    lines.write(50);
    lines.wait_for_all(&collector);
    wait_for_balance(&collector, 50);
    let gaps = wait_for("the gap in the numbers", 30, || collector.latest("warpgauge.restart.gaps", &[]));
    assert_eq!(gaps, 1.0);
    assert!(agent.terminate().success());
}
