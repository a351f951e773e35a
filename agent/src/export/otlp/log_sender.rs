//! Log records on their way to the collector: at once, in order, one request at a time.
//!
//! In: records. Out: export requests; settled kernel-log numbers; counts that account for every record.
//! What can go wrong: the collector is away (records wait, bounded, the oldest make room), refuses (dropped, counted)
//! or loses its answer (sent again with the same `log.record.uid`). What is left at the end is spooled for the next
//! run: all of it, since a restart of the machine empties the kernel log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use prost::Message;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;

use super::channel::{Failure, OtlpError, answer, words};
use super::queue::{Bounds, Item, Queue};
use super::reach::Sender;
use super::retry::{Backoff, Verdict};
use super::spool::{Loaded, Spool};
use super::{HURRY, Setup, encode};
use crate::export::record::{GAP_EVENT, Record};
use crate::export::session::GapSettled;
use crate::model::Delivery;
use crate::telemetry::{Counter, Gauge, Telemetry};

/// One request. Receivers take 4 MiB by default.
const BATCH: Bounds = Bounds { records: 512, bytes: 2 << 20 };
/// Encoded records that may wait.
const QUEUE_BYTES: usize = 8 << 20;

/// The way to the collector for log records.
#[derive(Debug)]
pub struct LogSender {
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What became of the records that were left at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Kept in the state directory for the next run.
    pub spooled: u64,
    /// Lost: there is no state directory, or it did not take them.
    pub dropped: u64,
}

impl LogSender {
    /// Starts sending, first what the previous run left.
    ///
    /// # Errors
    /// [`OtlpError`], for a configuration that cannot work.
    pub fn start(setup: Setup) -> Result<Self, OtlpError> {
        let client = client(&setup)?;
        let bounds = Bounds { records: setup.connector.config().queue_records.max(1), bytes: QUEUE_BYTES };
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(bounds)),
            wake: Notify::new(),
            numbers: Numbers::new(&setup.telemetry),
            delivery: Arc::clone(&setup.delivery),
            gap: setup.gap.clone(),
            spool: setup.spool.clone(),
            owed: Mutex::default(),
        });
        match setup.spool.as_ref().map(Spool::load).transpose() {
            Ok(loaded) => shared.reload(loaded.unwrap_or_default()),
            Err(error) => tracing::warn!("records of the previous run: {error}"),
        }
        let stop = CancellationToken::new();
        let backoff = Backoff::new(setup.policy);
        let worker = Worker {
            shared: Arc::clone(&shared),
            client,
            setup,
            stop: stop.clone(),
            backoff,
            refused: false,
            told: false,
        };
        Ok(Self { shared, stop, task: tokio::spawn(worker.run()) })
    }

    /// Nobody sends any more, though it was not told to stop: a panic.
    pub fn is_dead(&self) -> bool {
        self.task.is_finished()
    }

    /// Takes a record; never waits.
    pub fn emit(&self, record: &Record) {
        let bytes = encode::record(record).encode_to_vec();
        self.shared.numbers.emitted.add(1);
        let gap = record.event_name == GAP_EVENT;
        self.shared.push(Item { bytes, seq: record.seq, reloaded: false, gap });
        self.shared.wake.notify_one();
    }

    /// Sends what waits until the deadline, then takes care of the rest, for which the disk gets until `kept_by`.
    pub async fn finish(self, deadline: Instant, kept_by: Instant) -> Left {
        self.stop.cancel();
        let mut task = self.task;
        if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
            task.abort();
            // Ended by the abort; there is nothing in the result.
            let _ = task.await;
        }
        self.shared.keep_rest(kept_by).await
    }
}

fn client(setup: &Setup) -> Result<LogsServiceClient<Channel>, OtlpError> {
    let client = LogsServiceClient::new(setup.connector.channel()?);
    let gzip = setup.connector.config().gzip;
    // A server may answer compressed once it was asked compressed.
    let gzipped = |client: LogsServiceClient<Channel>| {
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip)
    };
    Ok(if gzip { gzipped(client) } else { client })
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Notify,
    numbers: Numbers,
    delivery: Arc<Delivery>,
    gap: GapSettled,
    spool: Option<Spool>,
    owed: Mutex<Owed>,
}

/// Records of the spool's file that are not settled yet; the file goes when there are none.
#[derive(Debug, Default)]
struct Owed {
    /// Taken into the queue.
    reloaded: usize,
    /// To be read again from the kernel log, by number.
    reread: BTreeMap<u64, Vec<u8>>,
}

impl Owed {
    fn is_empty(&self) -> bool {
        self.reloaded == 0 && self.reread.is_empty()
    }
}

#[derive(Debug)]
struct Numbers {
    emitted: Counter,
    reloaded: Counter,
    acknowledged: Counter,
    spooled: Counter,
    reread: Counter,
    queued: Gauge,
    retries: Counter,
    queue_full: Counter,
    rejected: Counter,
    refused: Counter,
    shutdown: Counter,
}

impl Numbers {
    fn new(telemetry: &Telemetry) -> Self {
        let state = |state| telemetry.counter("warpgauge.log.records", &[("state", state)]);
        let dropped = |reason| telemetry.counter("warpgauge.log.records.dropped", &[("reason", reason)]);
        Self {
            emitted: state("emitted"),
            reloaded: state("reloaded"),
            acknowledged: state("acknowledged"),
            spooled: state("spooled"),
            reread: state("reread"),
            queued: telemetry.gauge("warpgauge.log.records.queued", &[]),
            retries: telemetry.counter("warpgauge.log.retries", &[]),
            queue_full: dropped("queue_full"),
            rejected: dropped("rejected"),
            refused: dropped("refused"),
            shutdown: dropped("shutdown"),
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, item: Item) {
        let mut queue = self.queue();
        let dropped = queue.push(item);
        self.numbers.queued.set(queue.len() as u64);
        drop(queue);
        self.numbers.queue_full.add(dropped.len() as u64);
        self.over(&dropped);
    }

    fn reload(&self, loaded: Loaded) {
        let Loaded { records, reread } = loaded;
        self.numbers.reloaded.add((records.len() + reread.len()) as u64);
        self.numbers.reread.add(reread.len() as u64);
        *self.owed() = Owed { reloaded: records.len(), reread: reread.into_iter().collect() };
        for bytes in records {
            self.push(Item { bytes, seq: None, reloaded: true, gap: false });
        }
    }

    /// The next request, whose records are on the wire from now on.
    fn next(&self) -> Option<Vec<LogRecord>> {
        let mut queue = self.queue();
        let batch = queue.take(BATCH);
        // What this program encoded decodes again.
        let records = batch.into_iter().filter_map(|bytes| LogRecord::decode(bytes).ok());
        Some(records.collect()).filter(|records: &Vec<_>| !records.is_empty())
    }

    /// The records on the wire have their answer; returns how many.
    fn settle(&self) -> u64 {
        let mut queue = self.queue();
        let settled = queue.settle();
        self.numbers.queued.set(queue.len() as u64);
        drop(queue);
        self.over(&settled);
        settled.len() as u64
    }

    /// Nothing is owed of these any more.
    fn over(&self, items: &[Item]) {
        let mut owed = self.owed();
        let had_some = !owed.is_empty();
        for item in items {
            if let Some(seq) = item.seq {
                self.delivery.settle(seq);
                owed.reread.remove(&seq);
            }
            if item.gap {
                self.gap.settle();
            }
            owed.reloaded = owed.reloaded.saturating_sub(usize::from(item.reloaded));
        }
        if had_some
            && owed.is_empty()
            && let Some(spool) = &self.spool
        {
            spool.remove();
        }
    }

    /// What is left of the kernel log is kept but not settled: it is read again, unless the machine is restarted.
    async fn keep_rest(&self, kept_by: Instant) -> Left {
        let rest = self.queue().drain();
        self.numbers.queued.set(0);
        let mut owed = std::mem::take(&mut *self.owed());
        for seq in rest.iter().filter_map(|item| item.seq) {
            owed.reread.remove(&seq);
        }
        if rest.iter().any(|item| item.gap) {
            self.gap.settle();
        }
        let count = rest.len() as u64;
        // What this run should have read again and did not (that source may be off) stays where it was; it was
        // counted when it was loaded.
        let items: Vec<Vec<u8>> =
            owed.reread.into_values().chain(rest.into_iter().map(|item| item.bytes)).collect();
        let stored = match &self.spool {
            _ if items.is_empty() => true,
            None => false,
            Some(spool) => {
                let stored = spool.store(items, kept_by).await;
                if let Err(error) = &stored {
                    tracing::warn!("{count} undelivered records are lost: {error}");
                }
                stored.is_ok()
            }
        };
        let left =
            if stored { Left { spooled: count, dropped: 0 } } else { Left { spooled: 0, dropped: count } };
        self.numbers.spooled.add(left.spooled);
        self.numbers.shutdown.add(left.dropped);
        left
    }
}

struct Worker {
    shared: Arc<Shared>,
    client: LogsServiceClient<Channel>,
    setup: Setup,
    stop: CancellationToken,
    backoff: Backoff,
    /// Said already; said again only after it was over.
    refused: bool,
    /// The same for what it says along with an acceptance.
    told: bool,
}

impl Worker {
    async fn run(mut self) {
        loop {
            let Some(records) = self.shared.next() else {
                if self.stop.is_cancelled() {
                    return;
                }
                tokio::select! {
                    () = self.shared.wake.notified() => {}
                    () = self.stop.cancelled() => {}
                }
                continue;
            };
            match self.send(records).await {
                Ok(rejected) => self.accepted(rejected),
                Err(failure) => self.failed(failure).await,
            }
        }
    }

    /// Returns how many records the receiver would not take.
    async fn send(&mut self, log_records: Vec<LogRecord>) -> Result<u64, Failure> {
        let scope = Some(super::scope());
        let scope_logs = vec![ScopeLogs { scope, log_records, schema_url: super::SCHEMA_URL.into() }];
        let resource = Some(self.setup.resource.clone());
        let resource_logs = vec![ResourceLogs { resource, scope_logs, schema_url: super::SCHEMA_URL.into() }];
        let request = self.setup.connector.request(ExportLogsServiceRequest { resource_logs });
        let response = answer(self.setup.connector.config().timeout, self.client.export(request)).await?;
        let Some(partial) = response.partial_success else { return Ok(0) };
        if !partial.error_message.is_empty() && !std::mem::replace(&mut self.told, true) {
            let (count, said) = (partial.rejected_log_records, words(&partial.error_message));
            tracing::warn!("the collector took {count} log records less (said once): {said}");
        }
        Ok(u64::try_from(partial.rejected_log_records).unwrap_or(0))
    }

    fn accepted(&mut self, rejected: u64) {
        let settled = self.shared.settle();
        let rejected = rejected.min(settled);
        self.shared.numbers.rejected.add(rejected);
        self.shared.numbers.acknowledged.add(settled - rejected);
        self.backoff.reset();
        self.setup.reach.found(Sender::Logs);
        if std::mem::take(&mut self.refused) {
            tracing::info!("the collector takes log records again");
        }
    }

    async fn failed(&mut self, failure: Failure) {
        let Verdict::Retry(told) = failure.verdict else {
            let settled = self.shared.settle();
            self.shared.numbers.refused.add(settled);
            if !std::mem::replace(&mut self.refused, true) {
                tracing::warn!("the collector refused {settled} log records: {}", failure.what);
            }
            return;
        };
        self.shared.queue().give_back();
        self.shared.numbers.retries.add(1);
        self.setup.reach.lost(Sender::Logs, &self.setup.connector.config().endpoint, &failure);
        if failure.hung
            && let Ok(client) = client(&self.setup)
        {
            self.client = client;
        }
        if self.stop.is_cancelled() {
            self.backoff.hurry(HURRY);
            tokio::time::sleep(self.backoff.wait(None)).await;
            return;
        }
        let wait: Duration = self.backoff.wait(told);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.stop.cancelled() => {}
        }
    }
}
