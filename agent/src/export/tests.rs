//! Tests of the exporters together: facts in, a collector inside the test at the other end.
//!
//! In: facts on the inlet. Out: assertions on what arrives, and on what the next run does.

use super::otlp::fake_collector::{Collector, records, text, until};
use super::*;
use crate::config::{Config, OtlpConfig};
use crate::model::{Finding, FindingKind, Known, Pid, Process, Signal, StallState};
use crate::test_dir::TestDir;

const INTERVAL: Duration = Duration::from_millis(20);

struct Rig {
    facts: mpsc::Sender<Attributed<Fact>>,
    run: tokio::task::JoinHandle<Report>,
    delivery: Arc<Delivery>,
    telemetry: Telemetry,
}

fn exporter(addr: std::net::SocketAddr, state_dir: Option<PathBuf>) -> (Exporter, Arc<Delivery>, Telemetry) {
    let otlp = OtlpConfig {
        endpoint: format!("http://{addr}"),
        headers: Vec::new(),
        timeout: Duration::from_secs(5),
        gzip: false,
        ca_file: None,
        client_identity: None,
        queue_records: 100,
    };
    let config = ExportConfig {
        otlp: Some(otlp),
        console: true,
        metric_interval: INTERVAL,
        service_name: "warpgauge".into(),
        resource_attributes: Vec::new(),
        own_logs: false,
    };
    let (delivery, telemetry) = (Arc::<Delivery>::default(), Telemetry::default());
    let facts = HostFacts { boot_id: Some("boot".into()), ..HostFacts::default() };
    let exporter = Exporter::new(Parts {
        config,
        facts,
        host: HostRoot::default(),
        state_dir,
        delivery: Arc::clone(&delivery),
        telemetry: telemetry.clone(),
        stdout: Box::new(std::io::sink()),
    });
    (exporter.unwrap(), delivery, telemetry)
}

fn rig(addr: std::net::SocketAddr, state_dir: Option<PathBuf>) -> Rig {
    let (exporter, delivery, telemetry) = exporter(addr, state_dir);
    let (facts, inlet) = mpsc::channel(16);
    Rig { facts, run: tokio::spawn(exporter.run(inlet)), delivery, telemetry }
}

fn fact(finding: Attributed<Finding>) -> Attributed<Fact> {
    Attributed { item: Fact::Finding(Box::new(finding.item)), processes: finding.processes }
}

impl Rig {
    async fn stall(&self, state: StallState, seconds: u64) {
        let mut finding = samples::stall(state);
        if let FindingKind::Stall(stall) = &mut finding.item.kind {
            stall.duration = Duration::from_secs(seconds);
        }
        self.facts.send(fact(finding)).await.unwrap();
    }

    async fn end(self) -> Report {
        drop(self.facts);
        self.run.await.unwrap()
    }
}

/// A metric's points as debug text; empty where it is absent.
async fn points_of(collector: &mut Collector, name: &str) -> String {
    let metrics = collector.metrics().await;
    metrics.iter().filter(|metric| metric.name == name).map(|metric| format!("{:?}", metric.data)).collect()
}

#[tokio::test]
async fn a_hung_call_is_exported_while_it_hangs_and_closed_with_its_length() {
    let mut collector = Collector::start([]).await;
    let rig = rig(collector.addr, None);
    rig.stall(StallState::Begin, 1).await;
    let begin = collector.logs().await;
    let begin = records(&begin).next().unwrap();
    assert_eq!(text(&begin.attributes, "gpu.stall.state"), "begin");
    assert_eq!(text(&begin.attributes, "process.linux.cgroup"), "/kubepods.slice/pod.slice/c.scope");
    while !points_of(&mut collector, "gpu.stall.active").await.contains("AsInt(1)") {}
    rig.stall(StallState::End, 7).await;
    let end = collector.logs().await;
    let end = records(&end).next().unwrap();
    assert_eq!(text(&end.attributes, "log.record.uid"), "boot:stall-1:end");
    while !points_of(&mut collector, "gpu.stall.time").await.contains("AsDouble(7.0)") {}
    let report = rig.end().await;
    assert_eq!(report, Report { findings: 2, left: Left::default() });
}

#[tokio::test]
async fn a_killed_run_leaves_a_gap_that_the_next_one_reports_and_a_stopped_one_does_not() {
    let dir = TestDir::new();
    let mut collector = Collector::start([]).await;
    let first = rig(collector.addr, Some(dir.path().into()));
    collector.metrics().await;
    until("marked", || dir.path().join("session").exists()).await; // the disk may be slower than the network
    first.run.abort();
    assert!(first.run.await.is_err());

    let second = rig(collector.addr, Some(dir.path().into()));
    let gap = collector.logs().await;
    assert_eq!(records(&gap).next().unwrap().event_name, "warpgauge.restart");
    assert_eq!(second.telemetry.counter("warpgauge.restart.gaps", &[]).get(), 1);
    second.end().await;

    let third = rig(collector.addr, Some(dir.path().into()));
    assert_eq!(third.telemetry.counter("warpgauge.restart.gaps", &[]).get(), 0);
    third.end().await;
}

#[tokio::test]
async fn the_whole_gap_is_reported_when_the_run_that_knew_of_it_is_killed_too() {
    let dir = TestDir::new();
    let write = |text: &str| std::fs::write(dir.path().join("session"), text).unwrap();
    let session = || std::fs::read_to_string(dir.path().join("session")).unwrap();
    write("old 1000\n");
    let mut collector = Collector::start([]).await;
    let away = Collector::start([]).await.kill().await;
    let first = rig(away, Some(dir.path().into()));
    until("marked", || session().ends_with(" old 1000\n")).await;
    first.run.abort();
    assert!(first.run.await.is_err());

    let second = rig(collector.addr, Some(dir.path().into()));
    let gap = collector.logs().await;
    let gap = records(&gap).next().unwrap();
    assert_eq!(text(&gap.attributes, "warpgauge.restart.reason"), "reboot");
    until("settled", || session().split(' ').count() == 2).await;
    second.end().await;
    assert!(!dir.path().join("session").exists());
}

#[tokio::test]
async fn a_frozen_disk_stops_neither_the_flow_nor_the_end() {
    let dir = TestDir::new();
    let mut collector = Collector::start([]).await;
    let exporter = exporter(collector.addr, Some(dir.path().into())).0;
    let writer = exporter.session.as_ref().unwrap().writer.clone();
    let thaw = writer.freeze().await;
    let deadline = Arc::new(OnceLock::new());
    let (facts, inlet) = mpsc::channel(16);
    let run = tokio::spawn(exporter.ending_by(Arc::clone(&deadline)).run(inlet));
    facts.send(fact(samples::stall(StallState::Begin))).await.unwrap();
    assert_eq!(collector.uids(1).await, ["boot:stall-1:begin"]);
    collector.metrics().await;
    let began = Instant::now();
    deadline.set(began + Duration::from_millis(300)).unwrap();
    drop(facts);
    assert_eq!(run.await.unwrap(), Report { findings: 1, left: Left::default() });
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?} is more than the deadline, and less than without one");
    drop(thaw);
}

#[tokio::test]
async fn an_xid_settles_its_kernel_log_record_when_the_collector_has_it() {
    let mut collector = Collector::start([]).await;
    let rig = rig(collector.addr, None);
    rig.delivery.read(901, true);
    rig.facts.send(fact(samples::xid(Some(901)))).await.unwrap();
    assert_eq!(collector.uids(1).await, ["boot:901"]);
    until("settled", || rig.delivery.resume_at() == Some(902)).await;
    while points_of(&mut collector, "gpu.xid.errors.by_code").await.is_empty() {}
    rig.end().await;
}

#[tokio::test]
async fn the_latency_of_a_finished_call_arrives_in_its_bucket() {
    let mut collector = Collector::start([]).await;
    let rig = rig(collector.addr, None);
    let mut latency = crate::model::LatencyDelta { sum_ns: 3_000_000_000, ..Default::default() };
    latency.slots[31] = 1; // (2 s, 4 s]
    let stats = crate::model::CallStats {
        pid: Pid(77),
        cgroup: crate::model::CgroupId(9),
        device: None,
        kind: crate::model::CallKind::Open,
        function: None,
        op: 0,
        latency,
        last: false,
    };
    let at = crate::model::MonoNs(1);
    let reading = Fact::Reading(Signal::CallStats { at, stats: Box::new(stats) });
    let process = Known::Is(Process::default());
    rig.facts.send(Attributed { item: reading, processes: vec![(Pid(77), process)] }).await.unwrap();
    let sent = loop {
        let sent = points_of(&mut collector, "gpu.driver.call.duration").await;
        if !sent.is_empty() {
            break sent;
        }
    };
    assert!(sent.contains("offset: 1, bucket_counts: [1]") && sent.contains("sum: Some(3.0)"), "{sent}");
    rig.end().await;
}

#[tokio::test]
async fn what_cannot_work_is_an_error_at_start() {
    let config =
        ExportConfig { otlp: Some(OtlpConfig::to("ftp://x".to_owned())), ..Config::default().export };
    let exporter = Exporter::new(Parts {
        config,
        facts: HostFacts::default(),
        host: HostRoot::default(),
        state_dir: None,
        delivery: Arc::default(),
        telemetry: Telemetry::default(),
        stdout: Box::new(std::io::sink()),
    });
    assert!(matches!(exporter, Err(ExportError::Otlp(OtlpError::Endpoint { .. }))));
}
