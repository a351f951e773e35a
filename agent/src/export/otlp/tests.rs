//! Tests of the senders against a collector inside the test.
//!
//! In: records and points, and a script for the collector. Out: assertions on what it took, in which order, and on the
//! numbers that account for every record and point.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use tonic::{Code, Status};

use super::fake_collector::{Answer, Collector, DEADLINE, records, text, until};
use super::*;
use crate::config::OtlpConfig;
use crate::export::catalog;
use crate::export::point::{Point, Value};
use crate::export::record::Recorder;
use crate::export::samples::{self, NOW};
use crate::model::operation::Majors;
use crate::model::{StallState, WallNs};
use crate::test_dir::TestDir;

const TIMEOUT: Duration = Duration::from_millis(500);

struct Rig {
    setup: Setup,
    otlp: Otlp,
}

fn setup(addr: std::net::SocketAddr, dir: Option<&TestDir>, queue_records: usize) -> Setup {
    let config = OtlpConfig {
        endpoint: format!("http://{addr}"),
        headers: Vec::new(),
        timeout: TIMEOUT,
        gzip: true,
        ca_file: None,
        client_identity: None,
        queue_records,
    };
    Setup {
        connector: Arc::new(Connector::new(config).unwrap()),
        resource: resource(&[("service.name".into(), "warpgauge".into())]),
        policy: retry::Policy { first: Duration::from_millis(10), longest: Duration::from_millis(40) },
        delivery: Arc::default(),
        spool: dir.map(|dir| Spool::new(dir.path())),
        telemetry: Telemetry::default(),
        reach: reach::Reach::default(),
    }
}

fn rig(setup: Setup) -> Rig {
    Rig { otlp: Otlp::start(setup.clone()).unwrap(), setup }
}

impl Rig {
    /// An XID of the kernel log: its uid is `boot:SEQ`.
    fn xid(&self, seq: u64) {
        self.setup.delivery.read(seq, true);
        let fact = samples::xid(Some(seq));
        self.otlp.emit(&Recorder::new("boot").finding(&fact.item, &fact, &Majors::new(None), NOW));
    }

    /// A stall: its uid is `boot:ID:begin`.
    fn stall(&self, id: &str) {
        let mut fact = samples::stall(StallState::Begin);
        fact.item.id = id.into();
        self.otlp.emit(&Recorder::new("boot").finding(&fact.item, &fact, &Majors::new(None), NOW));
    }

    async fn finish(self, within: Duration) -> (Left, Setup) {
        (self.otlp.finish(within, Batch::default).await, self.setup)
    }
}

impl Setup {
    fn log(&self, state: &'static str) -> u64 {
        self.telemetry.counter("warpgauge.log.records", &[("state", state)]).get()
    }

    fn sum_of(&self, name: &str) -> u64 {
        self.telemetry.read().iter().filter(|(n, ..)| *n == name).map(|(.., value)| value).sum()
    }

    fn point_state(&self, state: &'static str) -> u64 {
        self.telemetry.counter("warpgauge.metric.points", &[("state", state)]).get()
    }

    fn dropped_logs(&self, reason: &'static str) -> u64 {
        self.telemetry.counter("warpgauge.log.records.dropped", &[("reason", reason)]).get()
    }

    /// Every record is somewhere.
    fn accounts(&self) {
        let came = self.log("emitted") + self.log("reloaded");
        let kept = self.log("acknowledged") + self.log("spooled") + self.log("reread");
        let (dropped, queued) =
            (self.sum_of("warpgauge.log.records.dropped"), self.sum_of("warpgauge.log.records.queued"));
        assert_eq!(came, kept + dropped + queued);
        let outcomes = self.point_state("acknowledged") + self.sum_of("warpgauge.metric.points.dropped");
        assert_eq!(self.point_state("emitted"), outcomes);
    }
}

fn uids(seqs: impl IntoIterator<Item = u64>) -> Vec<String> {
    seqs.into_iter().map(|seq| format!("boot:{seq}")).collect()
}

#[tokio::test]
async fn records_leave_at_once_in_order_with_resource_and_scope() {
    let mut collector = Collector::start([]).await;
    let rig = rig(setup(collector.addr, None, 2_000));
    rig.xid(1);
    let request = collector.logs().await;
    let logs = &request.resource_logs[0];
    assert_eq!(text(&logs.resource.as_ref().unwrap().attributes, "service.name"), "warpgauge");
    let scope = logs.scope_logs[0].scope.as_ref().unwrap();
    assert_eq!((scope.name.as_str(), scope.version.as_str()), ("warpgauge", env!("CARGO_PKG_VERSION")));
    let first = records(&request).next().unwrap();
    assert_eq!((first.event_name.as_str(), first.severity_number), ("gpu.xid", 21));

    (2..=1_200).for_each(|seq| rig.xid(seq));
    assert_eq!(collector.uids(1_199).await, uids(2..=1_200));
    let (left, setup) = rig.finish(DEADLINE).await;
    assert_eq!((left, setup.log("acknowledged")), (Left::default(), 1_200));
    assert_eq!(setup.delivery.resume_at(), Some(1_201));
    setup.accounts();
}

#[tokio::test]
async fn a_collector_that_is_busy_gets_the_same_record_again() {
    let busy = retry::throttled(Code::ResourceExhausted, Duration::from_millis(80));
    let script = [Answer::Refuse(Status::unavailable("restarting")), Answer::Refuse(busy)];
    let mut collector = Collector::start(script).await;
    let rig = rig(setup(collector.addr, None, 100));
    rig.xid(7);
    collector.asked().await;
    collector.asked().await;
    let told = Instant::now();
    assert_eq!(collector.uids(1).await, uids([7]));
    assert!(told.elapsed() >= Duration::from_millis(60), "RetryInfo said 80 ms");
    let (_, setup) = rig.finish(DEADLINE).await;
    assert_eq!(setup.telemetry.counter("warpgauge.log.retries", &[]).get(), 2);
    setup.accounts();
}

#[tokio::test]
async fn what_is_refused_for_good_is_dropped_counted_and_settled() {
    let script = [
        Answer::Refuse(Status::invalid_argument("no")),
        Answer::Refuse(Status::resource_exhausted("too large")),
        Answer::TakeAllBut(1),
    ];
    let mut collector = Collector::start(script).await;
    let rig = rig(setup(collector.addr, None, 100));
    for seq in 1..=3 {
        rig.xid(seq);
        collector.asked().await;
        until("settled", || rig.setup.delivery.resume_at() == Some(seq + 1)).await;
    }
    let (_, setup) = rig.finish(DEADLINE).await;
    assert_eq!((setup.dropped_logs("refused"), setup.dropped_logs("rejected")), (2, 1));
    assert_eq!(setup.log("acknowledged"), 0);
    setup.accounts();
}

#[tokio::test]
async fn a_collector_that_hangs_or_loses_its_answer_gets_the_record_on_a_new_connection() {
    let mut collector = Collector::start([Answer::Hang, Answer::LoseReply]).await;
    let rig = rig(setup(collector.addr, None, 100));
    rig.xid(7);
    assert_eq!(collector.uids(2).await, uids([7, 7]), "at least once, with the same uid");
    let (_, setup) = rig.finish(DEADLINE).await;
    assert_eq!(setup.log("acknowledged"), 1);
    setup.accounts();
}

#[tokio::test]
async fn a_collector_may_come_late_and_be_killed_and_nothing_is_lost() {
    let addr = Collector::start([]).await.kill().await;
    let rig = rig(setup(addr, None, 100));
    rig.xid(1);
    until("a try", || rig.setup.telemetry.counter("warpgauge.log.retries", &[]).get() > 0).await;
    let mut collector = Collector::start_at(addr, []).await;
    assert_eq!(collector.uids(1).await, uids([1]));
    until("settled", || rig.setup.delivery.resume_at() == Some(2)).await;
    collector.kill().await;
    rig.xid(2);
    rig.xid(3);
    let mut collector = Collector::start_at(addr, []).await;
    assert_eq!(collector.uids(2).await, uids([2, 3]));
    let (left, setup) = rig.finish(DEADLINE).await;
    assert_eq!((left, setup.log("acknowledged")), (Left::default(), 3));
    setup.accounts();
}

#[tokio::test]
async fn the_oldest_make_room_while_the_collector_is_away() {
    let addr = Collector::start([]).await.kill().await;
    let rig = rig(setup(addr, None, 10));
    (1..=25).for_each(|seq| rig.xid(seq));
    let queued = rig.setup.sum_of("warpgauge.log.records.queued");
    assert_eq!((queued, rig.setup.dropped_logs("queue_full")), (10, 15));
    rig.setup.accounts();
    assert_eq!(rig.setup.delivery.resume_at(), Some(16), "the dropped are not owed any more");
    let mut collector = Collector::start_at(addr, []).await;
    assert_eq!(collector.uids(10).await, uids(16..=25));
    rig.finish(DEADLINE).await.1.accounts();
}

#[tokio::test]
async fn what_is_left_at_the_end_is_sent_first_by_the_next_run_and_each_once() {
    let dir = TestDir::new();
    let addr = Collector::start([]).await.kill().await;
    let first = rig(setup(addr, Some(&dir), 100));
    first.stall("a");
    first.xid(5);
    first.stall("b");
    let (left, setup_of_first) = first.finish(Duration::from_millis(100)).await;
    assert_eq!(left, Left { spooled: 2, reread: 1, dropped: 0 });
    assert_eq!(setup_of_first.delivery.resume_at(), Some(5), "the kernel log keeps its own");
    setup_of_first.accounts();

    // A second run that reaches nobody either keeps them, and adds its own.
    let second = rig(setup(addr, Some(&dir), 100));
    second.stall("c");
    let (left, setup_of_second) = second.finish(Duration::from_millis(100)).await;
    assert_eq!((left.spooled, setup_of_second.log("reloaded")), (3, 2));
    setup_of_second.accounts();

    let mut collector = Collector::start_at(addr, []).await;
    let third = rig(setup(addr, Some(&dir), 100));
    assert_eq!(collector.uids(3).await, ["boot:a:begin", "boot:b:begin", "boot:c:begin"]);
    third.xid(5);
    assert_eq!(collector.uids(1).await, uids([5]));
    let (left, setup_of_third) = third.finish(DEADLINE).await;
    assert_eq!(left, Left::default());
    assert!(!dir.path().join("undelivered.pb").exists());
    setup_of_third.accounts();
    collector.nothing_more();
}

#[tokio::test]
async fn without_a_state_directory_what_is_left_is_dropped_and_counted() {
    let addr = Collector::start([]).await.kill().await;
    let rig = rig(setup(addr, None, 100));
    rig.stall("a");
    let (left, setup) = rig.finish(Duration::from_millis(50)).await;
    assert_eq!((left.dropped, setup.dropped_logs("shutdown")), (1, 1));
    setup.accounts();
}

#[tokio::test]
async fn a_hung_collector_does_not_hold_up_the_end() {
    let dir = TestDir::new();
    let mut collector = Collector::start([Answer::Hang, Answer::Hang, Answer::Hang]).await;
    let rig = rig(setup(collector.addr, Some(&dir), 100));
    rig.stall("a");
    collector.asked().await;
    let began = Instant::now();
    let (left, setup) = rig.finish(Duration::from_millis(200)).await;
    assert_eq!(left.spooled, 1);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    setup.accounts();
}

#[tokio::test]
async fn whatever_the_collector_does_every_record_is_accounted_for_and_none_overtakes_another() {
    for seed in 1..=4_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut roll = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 60) as u8
        };
        let script: Vec<Answer> = (0..30)
            .map(|_| match roll() {
                0..=5 => Answer::Refuse(Status::unavailable("busy")),
                6..=8 => Answer::Refuse(Status::internal("no")),
                9 => Answer::TakeAllBut(1),
                10 => Answer::Refuse(retry::throttled(Code::ResourceExhausted, Duration::from_millis(5))),
                _ => Answer::Take,
            })
            .collect();
        let mut collector = Collector::start(script).await;
        let rig = rig(setup(collector.addr, None, 40));
        for seq in 1..=300 {
            rig.xid(seq);
            if roll() == 0 {
                collector.asked().await;
            }
        }
        let (left, setup) = rig.finish(DEADLINE).await;
        setup.accounts();
        assert_eq!((left, setup.delivery.resume_at()), (Left::default(), Some(301)), "seed {seed}");
        let dropped = setup.dropped_logs("queue_full") + setup.dropped_logs("refused");
        let arrived = collector.uids((300 - dropped) as usize).await;
        collector.nothing_more();
        let seqs: Vec<u64> = arrived.iter().map(|uid| uid["boot:".len()..].parse().unwrap()).collect();
        assert!(seqs.is_sorted_by(|a, b| a < b), "seed {seed}: {seqs:?}");
    }
}

fn point(metric: &'static catalog::Metric, at: u64, value: u64) -> Point {
    let attributes = Arc::new(vec![("gpu.xid.class", "bus".to_owned())]);
    Point { metric, attributes, start: Some(WallNs(10)), at: WallNs(at), value: Value::Count(value) }
}

/// A zero at 10 that batch 1 introduced, and the value at the batch's own time.
fn batch(generation: u64, value: u64) -> Batch {
    let zero = point(&catalog::XID_ERRORS, 10, 0);
    let points = vec![point(&catalog::XID_ERRORS, 10 + generation * 10, value)];
    Batch { generation, zeros: vec![(1, zero)], points }
}

fn times_and_values(metrics: &[Metric]) -> Vec<(u64, i64)> {
    let sums = metrics.iter().map(|metric| match &metric.data {
        Some(metric::Data::Sum(sum)) => &sum.data_points,
        other => panic!("{other:?}"),
    });
    sums.flatten()
        .map(|point| match point.value {
            Some(number_data_point::Value::AsInt(n)) => (point.time_unix_nano, n),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn the_zero_arrives_before_the_value_and_is_not_lost_with_its_request() {
    let mut collector = Collector::start([Answer::LoseReply, Answer::Take, Answer::Take]).await;
    let rig = rig(setup(collector.addr, None, 100));
    rig.otlp.offer(batch(1, 1));
    for want in [(10, 0), (10, 0), (20, 1)] {
        assert_eq!(times_and_values(&collector.metrics().await), [want]);
    }
    until("settled", || rig.otlp.zeros_settled() == 1).await;
    rig.otlp.offer(batch(2, 3));
    assert_eq!(times_and_values(&collector.metrics().await), [(30, 3)], "its zero was settled meanwhile");
    let (_, setup) = rig.finish(DEADLINE).await;
    assert_eq!(setup.point_state("acknowledged"), 3);
    setup.accounts();
}

#[tokio::test]
async fn a_newer_batch_takes_the_place_of_one_that_could_not_leave() {
    let addr = Collector::start([]).await.kill().await;
    let rig = rig(setup(addr, None, 100));
    let failed = || rig.setup.telemetry.counter("warpgauge.metric.exports", &[("outcome", "failure")]).get();
    rig.otlp.offer(batch(1, 1));
    until("a try", || failed() > 0).await;
    rig.otlp.offer(batch(2, 4));
    rig.otlp.offer(batch(3, 9));
    let superseded = || rig.setup.sum_of("warpgauge.metric.points.dropped");
    until("superseded", || superseded() == 4).await;
    let mut collector = Collector::start_at(addr, []).await;
    for want in [(10, 0), (40, 9)] {
        assert_eq!(times_and_values(&collector.metrics().await), [want], "exact, without the ones between");
    }
    rig.finish(DEADLINE).await.1.accounts();
    collector.nothing_more();
}

#[tokio::test]
async fn many_points_leave_in_several_requests_and_refused_ones_are_counted() {
    let script = [Answer::Take, Answer::Refuse(Status::invalid_argument("no")), Answer::TakeAllBut(3)];
    let mut collector = Collector::start(script).await;
    let rig = rig(setup(collector.addr, None, 100));
    let points = (0..4_500).map(|n| point(&catalog::XID_ERRORS, 20, n)).collect();
    rig.otlp.offer(Batch { generation: 1, zeros: Vec::new(), points });
    for want in [2_000, 500] {
        assert_eq!(times_and_values(&collector.metrics().await).len(), want);
    }
    let (_, setup) = rig.finish(DEADLINE).await;
    let dropped =
        |reason| setup.telemetry.counter("warpgauge.metric.points.dropped", &[("reason", reason)]).get();
    assert_eq!(
        (setup.point_state("acknowledged"), dropped("refused"), dropped("rejected")),
        (2_497, 2_000, 3)
    );
    setup.accounts();
}

#[tokio::test]
async fn the_last_points_know_what_became_of_the_last_records() {
    let mut collector = Collector::start([]).await;
    let rig = rig(setup(collector.addr, None, 100));
    rig.stall("a");
    let setup = rig.setup.clone();
    let last = || {
        let acknowledged = setup.log("acknowledged");
        Batch { generation: 1, zeros: vec![], points: vec![point(&catalog::XID_ERRORS, 20, acknowledged)] }
    };
    rig.otlp.finish(DEADLINE, last).await;
    assert_eq!(times_and_values(&collector.metrics().await), [(20, 1)]);
    setup.accounts();
}
