//! A collector inside the test: takes, refuses, hangs or loses its answer, as scripted.
//!
//! In: OTLP requests on a port of its own. Out: what it took, in order, as messages.
//! What can go wrong is what the script says.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Longer than any test should take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// How one request is answered; without a script all is taken.
#[derive(Clone)]
pub(crate) enum Answer {
    Take,
    TakeAllBut(i64),
    Refuse(Status),
    /// Never answers, and takes nothing.
    Hang,
    /// Takes it, and never answers.
    LoseReply,
}

#[derive(Clone)]
struct Service {
    script: Arc<Mutex<VecDeque<Answer>>>,
    asked: mpsc::UnboundedSender<()>,
    logs: mpsc::UnboundedSender<ExportLogsServiceRequest>,
    metrics: mpsc::UnboundedSender<ExportMetricsServiceRequest>,
}

pub(crate) struct Collector {
    pub(crate) addr: SocketAddr,
    asked: mpsc::UnboundedReceiver<()>,
    logs: mpsc::UnboundedReceiver<ExportLogsServiceRequest>,
    metrics: mpsc::UnboundedReceiver<ExportMetricsServiceRequest>,
    /// Of its own, so that all its connections can be made to die with it.
    runtime: Option<Runtime>,
}

impl Collector {
    pub(crate) async fn start(script: impl IntoIterator<Item = Answer>) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), script).await
    }

    pub(crate) async fn start_at(addr: SocketAddr, script: impl IntoIterator<Item = Answer>) -> Self {
        let script = Arc::new(Mutex::new(script.into_iter().collect()));
        let (asked_tx, asked) = mpsc::unbounded_channel();
        let (logs_tx, logs) = mpsc::unbounded_channel();
        let (metrics_tx, metrics) = mpsc::unbounded_channel();
        let service = Service { script, asked: asked_tx, logs: logs_tx, metrics: metrics_tx };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listen = async move {
            let listener = tokio::net::TcpListener::bind(addr).await.unwrap();
            let addr = listener.local_addr().unwrap();
            let gzip = CompressionEncoding::Gzip;
            let serve = tonic::transport::Server::builder()
                .add_service(
                    LogsServiceServer::new(service.clone()).accept_compressed(gzip).send_compressed(gzip),
                )
                .add_service(MetricsServiceServer::new(service).accept_compressed(gzip).send_compressed(gzip))
                .serve_with_incoming(TcpIncoming::from(listener));
            tokio::spawn(serve);
            addr
        };
        let addr = runtime.spawn(listen).await.unwrap();
        Self { addr, asked, logs, metrics, runtime: Some(runtime) }
    }

    /// Waits for the next request, whatever its answer.
    pub(crate) async fn asked(&mut self) {
        tokio::time::timeout(DEADLINE, self.asked.recv()).await.expect("a request").unwrap();
    }

    /// The next records it took.
    pub(crate) async fn logs(&mut self) -> ExportLogsServiceRequest {
        tokio::time::timeout(DEADLINE, self.logs.recv()).await.expect("log records").unwrap()
    }

    /// The `log.record.uid`s of what it took, until there are so many.
    pub(crate) async fn uids(&mut self, count: usize) -> Vec<String> {
        let mut uids = Vec::new();
        while uids.len() < count {
            uids.extend(records(&self.logs().await).map(|record| text(&record.attributes, "log.record.uid")));
        }
        uids
    }

    /// The next points it took.
    pub(crate) async fn metrics(&mut self) -> Vec<Metric> {
        let taken = tokio::time::timeout(DEADLINE, self.metrics.recv()).await.expect("points").unwrap();
        taken.resource_metrics.into_iter().flat_map(|r| r.scope_metrics).flat_map(|s| s.metrics).collect()
    }

    /// Nothing more was taken than the test has seen.
    pub(crate) fn nothing_more(&mut self) {
        assert!(self.logs.try_recv().is_err() && self.metrics.try_recv().is_err());
    }

    /// Dies at once, with all its connections.
    pub(crate) async fn kill(mut self) -> SocketAddr {
        let (addr, runtime) = (self.addr, self.runtime.take().unwrap());
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
        addr
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) fn records(request: &ExportLogsServiceRequest) -> impl Iterator<Item = &LogRecord> {
    request.resource_logs.iter().flat_map(|r| &r.scope_logs).flat_map(|s| &s.log_records)
}

/// The text of an attribute.
pub(crate) fn text(attributes: &[KeyValue], name: &str) -> String {
    let value = attributes.iter().find(|pair| pair.key == name).and_then(|pair| pair.value.clone());
    match value.and_then(|any| any.value) {
        Some(any_value::Value::StringValue(text)) => text,
        other => panic!("{name}: {other:?}"),
    }
}

/// Waits until the condition holds; fails at the deadline.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, poll).await.unwrap_or_else(|_| panic!("never: {what}"));
}

impl Service {
    /// Whether to take the request, how many parts not, and whether to answer.
    async fn answer(&self) -> Result<(i64, bool), Status> {
        let answer = self.script.lock().unwrap().pop_front().unwrap_or(Answer::Take);
        let _ = self.asked.send(());
        match answer {
            Answer::Take => Ok((0, true)),
            Answer::TakeAllBut(n) => Ok((n, true)),
            Answer::Refuse(status) => Err(status),
            Answer::Hang => std::future::pending().await,
            Answer::LoseReply => Ok((0, false)),
        }
    }
}

#[tonic::async_trait]
impl LogsService for Service {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let (rejected, replies) = self.answer().await?;
        let _ = self.logs.send(request.into_inner());
        if !replies {
            std::future::pending::<()>().await;
        }
        let partial = ExportLogsPartialSuccess { rejected_log_records: rejected, error_message: "no".into() };
        let partial_success = (rejected > 0).then_some(partial);
        Ok(Response::new(ExportLogsServiceResponse { partial_success }))
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let (rejected, replies) = self.answer().await?;
        let _ = self.metrics.send(request.into_inner());
        if !replies {
            std::future::pending::<()>().await;
        }
        let partial =
            ExportMetricsPartialSuccess { rejected_data_points: rejected, error_message: "no".into() };
        let partial_success = (rejected > 0).then_some(partial);
        Ok(Response::new(ExportMetricsServiceResponse { partial_success }))
    }
}
