//! Tests of the senders against a collector inside the test.
//!
//! In: records and a script for the collector. Out: assertions on what it took, in which order, and on the
//! numbers that account for every record and point.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Status};

use super::fake_collector::{Answer, Collector, DEADLINE, records, text, until};
use super::*;
use crate::config::OtlpConfig;
use crate::export::record::Recorder;
use crate::export::samples::{self, NOW};
use crate::export::state_writer::StateWriter;
use crate::model::StallState;
use crate::model::operation::Majors;
use crate::test_dir::TestDir;

mod points;
mod spooled;

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
    let telemetry = Telemetry::default();
    Setup {
        connector: Arc::new(Connector::new(config).unwrap()),
        resource: resource(&[("service.name".into(), "warpgauge".into())]),
        policy: retry::Policy { first: Duration::from_millis(10), longest: Duration::from_millis(40) },
        delivery: Arc::default(),
        gap: GapSettled::default(),
        spool: dir.map(|dir| spool(dir, "boot", &telemetry)),
        telemetry,
        reach: reach::Reach::default(),
    }
}

fn spool(dir: &TestDir, boot_id: &str, telemetry: &Telemetry) -> Spool {
    let errors = telemetry.counter("warpgauge.state.errors", &[]);
    Spool::new(dir.path(), Some(boot_id.into()), StateWriter::start().unwrap(), errors)
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
        (self.otlp.finish(Instant::now() + within, Batch::default, async |_| {}).await, self.setup)
    }

    /// The end while the collector is away: little time for it, and enough for the disk.
    async fn give_up(self) -> (Left, Setup) {
        let Otlp { logs, metrics } = self.otlp;
        let now = Instant::now();
        let left = logs.finish(now + Duration::from_millis(100), now + DEADLINE).await;
        metrics.finish(now).await;
        (left, self.setup)
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
