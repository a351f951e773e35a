//! Metric points on their way to the collector: the newest snapshot, in order, one request at a time.
//!
//! In: batches. Out: export requests; the generation up to which explicit zeros are settled.
//! What can go wrong: the collector is away; then a newer batch takes the place of the one that waits, whose points are
//! dropped and counted. Values are cumulative, so the next point makes up for them; ends of series, which are told once,
//! go over to the newer batch; zeros come again with every batch, and no other point of their series leaves before them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;

use super::channel::{Failure, OtlpError, answer, words};
use super::reach::Sender;
use super::retry::{Backoff, Verdict};
use super::{HURRY, Setup, encode};
use crate::export::point::{Batch, Point};
use crate::telemetry::{Counter, Telemetry};

/// Points in one request; a histogram takes about 600 bytes, and receivers take 4 MiB by default.
const REQUEST_POINTS: usize = 2_000;

/// The way to the collector for metrics.
#[derive(Debug)]
pub struct MetricSender {
    slot: Arc<Slot>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    numbers: Numbers,
    settled: Arc<AtomicU64>,
}

/// Room for one batch: the newest.
#[derive(Debug, Default)]
struct Slot {
    batch: Mutex<Option<Batch>>,
    wake: Notify,
}

impl Slot {
    /// Answers how many points of the batch in its place are dropped.
    fn put(&self, mut batch: Batch) -> u64 {
        let mut place = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = place.take().map_or(0, |old| old.len() - batch.take_over_ends(old.points));
        *place = Some(batch);
        drop(place);
        self.wake.notify_one();
        dropped
    }

    fn take(&self) -> Option<Batch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl MetricSender {
    /// Starts sending.
    ///
    /// # Errors
    /// [`OtlpError`], for a configuration that cannot work.
    pub fn start(setup: Setup) -> Result<Self, OtlpError> {
        let (slot, settled) = (Arc::new(Slot::default()), Arc::new(AtomicU64::new(0)));
        let (client, stop) = (client(&setup)?, CancellationToken::new());
        let numbers = Numbers::new(&setup.telemetry);
        let backoff = Backoff::new(setup.policy);
        let worker = Worker {
            slot: Arc::clone(&slot),
            client,
            setup,
            stop: stop.clone(),
            backoff,
            numbers: numbers.clone(),
            settled: Arc::clone(&settled),
            refused: false,
            told: false,
        };
        Ok(Self { slot, stop, task: tokio::spawn(worker.run()), numbers, settled })
    }

    /// Nobody sends any more, though it was not told to stop: a panic.
    pub fn is_dead(&self) -> bool {
        self.task.is_finished()
    }

    /// Hands over the newest batch; never waits. One that has not left yet is dropped, counted.
    pub fn offer(&self, batch: Batch) {
        self.numbers.emitted.add(batch.len());
        self.numbers.superseded.add(self.slot.put(batch));
    }

    /// The zeros of all batches up to this generation need no more sending.
    pub fn zeros_settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Sends what waits until the deadline.
    pub async fn finish(self, deadline: Instant) {
        self.stop.cancel();
        let mut task = self.task;
        if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
            task.abort();
            // Ended by the abort; there is nothing in the result.
            let _ = task.await;
        }
        self.numbers.shutdown.add(self.numbers.unaccounted());
    }
}

fn client(setup: &Setup) -> Result<MetricsServiceClient<Channel>, OtlpError> {
    let client = MetricsServiceClient::new(setup.connector.channel()?);
    let gzip = setup.connector.config().gzip;
    // A server may answer compressed once it was asked compressed.
    let gzipped = |client: MetricsServiceClient<Channel>| {
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip)
    };
    Ok(if gzip { gzipped(client) } else { client })
}

#[derive(Clone, Debug)]
struct Numbers {
    emitted: Counter,
    acknowledged: Counter,
    superseded: Counter,
    rejected: Counter,
    refused: Counter,
    shutdown: Counter,
    sent: Counter,
    failed: Counter,
}

impl Numbers {
    fn new(telemetry: &Telemetry) -> Self {
        let state = |state| telemetry.counter("warpgauge.metric.points", &[("state", state)]);
        let dropped = |reason| telemetry.counter("warpgauge.metric.points.dropped", &[("reason", reason)]);
        let exports = |outcome| telemetry.counter("warpgauge.metric.exports", &[("outcome", outcome)]);
        Self {
            emitted: state("emitted"),
            acknowledged: state("acknowledged"),
            superseded: dropped("superseded"),
            rejected: dropped("rejected"),
            refused: dropped("refused"),
            shutdown: dropped("shutdown"),
            sent: exports("success"),
            failed: exports("failure"),
        }
    }

    /// Points without an outcome: those in the slot, on the wire or waiting for another try.
    fn unaccounted(&self) -> u64 {
        let outcomes = [&self.acknowledged, &self.superseded, &self.rejected, &self.refused, &self.shutdown];
        self.emitted.get().saturating_sub(outcomes.into_iter().map(Counter::get).sum())
    }
}

/// A batch cut into requests, the zeros first.
struct Work {
    generation: u64,
    zeros: VecDeque<Vec<Point>>,
    points: VecDeque<Vec<Point>>,
}

impl Work {
    /// Zeros that were settled after the batch was made are left out: their series have moved on since.
    fn new(batch: Batch, settled: u64) -> (Self, u64) {
        let zeros: Vec<Point> =
            batch.zeros.iter().filter(|(since, _)| *since > settled).map(|(_, zero)| zero.clone()).collect();
        let needless = (batch.zeros.len() - zeros.len()) as u64;
        let work = Self { generation: batch.generation, zeros: cut(zeros), points: cut(batch.points) };
        (work, needless)
    }

    fn len(&self) -> u64 {
        self.zeros.iter().chain(&self.points).map(|points| points.len() as u64).sum()
    }
}

fn cut(points: Vec<Point>) -> VecDeque<Vec<Point>> {
    points.chunks(REQUEST_POINTS).map(<[Point]>::to_vec).collect()
}

struct Worker {
    slot: Arc<Slot>,
    client: MetricsServiceClient<Channel>,
    setup: Setup,
    stop: CancellationToken,
    backoff: Backoff,
    numbers: Numbers,
    settled: Arc<AtomicU64>,
    /// Said already; said again only after it was over.
    refused: bool,
    /// The same for what it says along with an acceptance.
    told: bool,
}

impl Worker {
    async fn run(mut self) {
        let mut work: Option<Work> = None;
        let mut not_before = Instant::now();
        loop {
            if let Some(mut newer) = self.slot.take() {
                let old = work
                    .take()
                    .map_or(0, |work| work.len() - newer.take_over_ends(work.points.into_iter().flatten()));
                let (new, needless) = Work::new(newer, self.settled.load(Ordering::Acquire));
                self.numbers.superseded.add(old + needless);
                work = Some(new);
            }
            let stopping = self.stop.is_cancelled();
            let Some(current) = &mut work else {
                if stopping {
                    return;
                }
                tokio::select! {
                    () = self.slot.wake.notified() => {}
                    () = self.stop.cancelled() => {}
                }
                continue;
            };
            if Instant::now() < not_before {
                tokio::select! {
                    () = tokio::time::sleep_until(not_before) => {}
                    () = self.slot.wake.notified() => {}
                    () = self.stop.cancelled(), if !stopping => not_before = Instant::now(),
                }
                continue;
            }
            match self.step(current).await {
                Ok(true) => work = None,
                Ok(false) => {}
                Err(until) => not_before = until,
            }
        }
    }

    /// Sends the next request of the work. `Ok(true)`: there is no more. `Err`: not again before this time.
    async fn step(&mut self, work: &mut Work) -> Result<bool, Instant> {
        let of_zeros = !work.zeros.is_empty();
        let requests = if of_zeros { &mut work.zeros } else { &mut work.points };
        if let Some(points) = requests.front() {
            let count = points.len() as u64;
            match self.send(points).await {
                Ok(rejected) => self.accepted(count, rejected.min(count)),
                Err(failure) => self.failed(failure, count)?,
            }
            requests.pop_front();
        }
        if of_zeros && work.zeros.is_empty() {
            self.settled.fetch_max(work.generation, Ordering::Release);
        }
        Ok(work.zeros.is_empty() && work.points.is_empty())
    }

    /// Returns how many points the receiver would not take.
    async fn send(&mut self, points: &[Point]) -> Result<u64, Failure> {
        let (scope, metrics) = (Some(super::scope()), encode::metrics(points.iter()));
        let scope_metrics = vec![ScopeMetrics { scope, metrics, schema_url: super::SCHEMA_URL.into() }];
        let resource = Some(self.setup.resource.clone());
        let schema_url = super::SCHEMA_URL.into();
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, schema_url }];
        let request = self.setup.connector.request(ExportMetricsServiceRequest { resource_metrics });
        let response = answer(self.setup.connector.config().timeout, self.client.export(request)).await?;
        let Some(partial) = response.partial_success else { return Ok(0) };
        if !partial.error_message.is_empty() && !std::mem::replace(&mut self.told, true) {
            let (count, said) = (partial.rejected_data_points, words(&partial.error_message));
            tracing::warn!("the collector took {count} points less (said once): {said}");
        }
        Ok(u64::try_from(partial.rejected_data_points).unwrap_or(0))
    }

    fn accepted(&mut self, count: u64, rejected: u64) {
        self.numbers.sent.add(1);
        self.numbers.acknowledged.add(count - rejected);
        self.numbers.rejected.add(rejected);
        self.backoff.reset();
        self.setup.reach.found(Sender::Metrics);
        if std::mem::take(&mut self.refused) {
            tracing::info!("the collector takes metrics again");
        }
    }

    /// `Ok` when the request is not to be sent again.
    fn failed(&mut self, failure: Failure, count: u64) -> Result<(), Instant> {
        self.numbers.failed.add(1);
        let Verdict::Retry(told) = failure.verdict else {
            self.numbers.refused.add(count);
            if !std::mem::replace(&mut self.refused, true) {
                tracing::warn!("the collector refused {count} points: {}", failure.what);
            }
            return Ok(());
        };
        self.setup.reach.lost(Sender::Metrics, &self.setup.connector.config().endpoint, &failure);
        if failure.hung
            && let Ok(client) = client(&self.setup)
        {
            self.client = client;
        }
        if self.stop.is_cancelled() {
            self.backoff.hurry(HURRY);
        }
        Err(Instant::now() + self.backoff.wait(told))
    }
}
