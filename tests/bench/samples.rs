//! Measured values through the agent's own code, so many times: for callgrind to count instructions.
//!
//! In: devices, rounds and the last stage, as arguments. Out: what came out at that stage, in one line. Each round is a
//! second of the node: a batch of 60 values of each device. Run for N and 2 N rounds and take the difference: what is
//! left is the steady state. Run up to each stage and take the differences: what is left is the stage.
//! What can go wrong: wrong arguments; a value that does not come through is a failure, not a fast one.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it talks to `cargo xtask bench`")]

use std::hint::black_box;
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use prost::Message as _;
use warpgauge::config::Config;
use warpgauge::export::otlp::encode;
use warpgauge::export::point::Point;
use warpgauge::export::series::Limits;
use warpgauge::export::snapshot::Snapshot;
use warpgauge::model::operation::Majors;
use warpgauge::model::{Attributed, Fact, MonoNs, Pid, Signal, WallAnchor, WallNs};
use warpgauge::pipeline::Stages;
use warpgauge::sources::worker::intake::Intake;
use warpgauge::sources::worker::refused::Refused;
use warpgauge::telemetry::Telemetry;
use warpgauge::wire::report::{self, Content, Device, Inventory, Kind};
use warpgauge::wire::{self, Decoder, Report};

/// In the order of the way; each includes those before it.
const STAGES: [&str; 7] = ["frame", "decode", "intake", "correlate", "book", "collect", "encode"];
/// Rounds between two collections, the default metric interval.
const COLLECT_EVERY: u64 = 10;
/// As the metric sender cuts them.
const REQUEST_POINTS: usize = 2_000;
/// As the session reads them.
const READ_AT_ONCE: usize = 64 * 1_024;
const SECOND: u64 = 1_000_000_000;
const FIELDS: &str = include_str!("../fixtures/bench/gpu8.yaml");

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("usage: bench-samples DEVICES ROUNDS STAGE");
    let (devices, rounds, stage) = (next()?.parse()?, next()?.parse::<u64>()?, next()?);
    let depth = STAGES.iter().position(|s| *s == stage).with_context(|| format!("stages: {STAGES:?}"))?;
    let mut bench = Bench::new(devices, depth)?;
    for round in 1..=rounds {
        bench.round(round)?;
    }
    bench.tell(rounds)
}

/// All stages, with what passes between them.
struct Bench {
    depth: usize,
    devices: u32,
    fields: Vec<u32>,
    bytes: Vec<u8>,
    decoder: Decoder,
    intake: Intake,
    stages: Stages,
    snapshot: Snapshot,
    telemetry: Telemetry,
    signals: Vec<Signal>,
    facts: Vec<Attributed<Fact>>,
    points: u64,
    sent: u64,
}

impl Bench {
    fn new(devices: u32, depth: usize) -> anyhow::Result<Self> {
        let list = FIELDS.rsplit_once('[').and_then(|(_, list)| list.split_once(']')).context("no list")?.0;
        let fields: Result<Vec<u32>, _> = list.split(',').map(|id| id.trim().parse()).collect();
        let telemetry = Telemetry::default();
        let mut bench = Self {
            depth,
            devices,
            fields: fields.context("a list of fields")?,
            bytes: Vec::new(),
            decoder: Decoder::default(),
            intake: Intake::new(Pid(1), Refused::new(&telemetry)),
            stages: Stages::new(&Config::default(), None, &telemetry),
            snapshot: Snapshot::new(WallNs(SECOND), Majors::new(None), Limits::default(), telemetry.clone()),
            telemetry,
            signals: Vec::new(),
            facts: Vec::new(),
            points: 0,
            sent: 0,
        };
        let device = |key: u32| Device {
            hw_id: format!("GPU-00000000-0000-4000-8000-{key:012}"),
            key,
            kind: 1,
            ..Device::default()
        };
        let devices = (0..devices).map(device).collect();
        bench.tell_agent(Kind::Inventory(Inventory { origin: 1, devices, ..Inventory::default() }))?;
        bench.hear(MonoNs(SECOND))?;
        Ok(bench)
    }

    /// One second.
    fn round(&mut self, round: u64) -> anyhow::Result<()> {
        let now = MonoNs(SECOND.saturating_mul(round + 1));
        for key in 0..self.devices {
            let values = self.fields.iter().map(|field| value(*field, round)).collect();
            let samples =
                report::Samples { origin: 1, key, read_ns: now.0, values, ..report::Samples::default() };
            self.tell_agent(Kind::Samples(samples))?;
        }
        self.hear(now)?;
        if round.is_multiple_of(COLLECT_EVERY) && self.reaches("collect") {
            self.collect(WallAnchor { mono: now, wall: WallNs(now.0 + SECOND) });
        }
        Ok(())
    }

    fn reaches(&self, stage: &str) -> bool {
        STAGES.iter().position(|s| *s == stage).is_some_and(|place| place <= self.depth)
    }

    /// The worker's side: a message becomes a frame.
    fn tell_agent(&mut self, kind: Kind) -> anyhow::Result<()> {
        wire::encode(&Report { kind: Some(kind) }, &mut self.bytes).context("a frame")
    }

    /// The agent's side, as far as asked.
    fn hear(&mut self, now: MonoNs) -> anyhow::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        for piece in black_box(&bytes).chunks(READ_AT_ONCE) {
            if !self.reaches("decode") {
                break;
            }
            self.decoder.push(piece);
            while let Some(report) = self.decoder.take::<Report>()? {
                let Some(kind) = black_box(report).kind.filter(|_| self.reaches("intake")) else { continue };
                self.intake.push(now, kind, &mut self.signals);
            }
        }
        self.bytes = bytes;
        self.bytes.clear();
        if !self.reaches("correlate") {
            self.signals.clear();
        }
        for signal in self.signals.drain(..) {
            self.stages.push(signal, &mut self.facts);
        }
        let books = self.reaches("book");
        for fact in black_box(&mut self.facts).drain(..).filter(|_| books) {
            self.snapshot.push(&fact);
        }
        Ok(())
    }

    fn collect(&mut self, now: WallAnchor) {
        let batch = black_box(self.snapshot.collect(now, Duration::from_nanos(SECOND * COLLECT_EVERY), None));
        self.points += batch.len();
        if self.reaches("encode") {
            self.sent += batch.points.chunks(REQUEST_POINTS).map(request).sum::<u64>();
        }
    }

    /// What came out; an error when it is not what went in.
    fn tell(&self, rounds: u64) -> anyhow::Result<()> {
        let samples = rounds * u64::from(self.devices) * self.fields.len() as u64;
        let received = self.telemetry.counter("warpgauge.samples.received", &[("source", "dcgm")]).get();
        if self.reaches("correlate") {
            anyhow::ensure!(received == samples, "{received} of {samples} samples came through");
        }
        let collections = rounds / COLLECT_EVERY;
        if self.reaches("collect") {
            let least = collections * u64::from(self.devices) * self.fields.len() as u64;
            anyhow::ensure!(self.points >= least, "{} points; at least {least} are expected", self.points);
        }
        println!("{samples} samples, {} points, {} bytes", self.points, self.sent);
        Ok(())
    }
}

/// Bytes of a request.
fn request(points: &[Point]) -> u64 {
    let metrics = encode::metrics(points.iter());
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..ResourceMetrics::default() }];
    black_box(ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()).len() as u64
}

/// A value that is in every field's range, grows (counters may not fall), and is another one each second.
fn value(field: u32, round: u64) -> report::Value {
    let n = i64::try_from(round.min(100)).unwrap_or(100);
    let share = field == 155 || (1_001..=1_008).contains(&field);
    let content = if share { Content::Number(n as f64 / 100.0) } else { Content::Int(n) };
    report::Value { field, age_ns: 20_000_000, content: Some(content), stamp_us: 0 }
}
