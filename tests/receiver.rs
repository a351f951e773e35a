//! A small OTLP receiver for the demo, where neither Go nor a built Collector is on the machine, and for tests of values.
//!
//! In: OTLP over gRPC on $WARPGAUGE_COLLECTOR_OTLP. Out: the requests as lines of JSON in $WARPGAUGE_COLLECTOR_LOGS and
//! $WARPGAUGE_COLLECTOR_METRICS, as the real Collector's file exporter writes them.
//! What can go wrong: the port is taken. No test of delivery takes this for the real Collector.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use tonic::{Request, Response, Status};

struct Lines(Mutex<File>);

impl Lines {
    fn open(variable: &str) -> anyhow::Result<Self> {
        let path = std::env::var(variable).with_context(|| format!("{variable} must name a file"))?;
        let file = File::options().create(true).append(true).open(&path).with_context(|| path)?;
        Ok(Self(Mutex::new(file)))
    }

    fn write(&self, request: &impl serde::Serialize) -> Result<(), Status> {
        let mut line = serde_json::to_vec(request).map_err(|e| Status::internal(e.to_string()))?;
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).map_err(|e| Status::unavailable(e.to_string()))
    }
}

#[tonic::async_trait]
impl LogsService for Lines {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.write(request.get_ref())?;
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Lines {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.write(request.get_ref())?;
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let address =
        std::env::var("WARPGAUGE_COLLECTOR_OTLP").context("WARPGAUGE_COLLECTOR_OTLP must name host:port")?;
    let logs = LogsServiceServer::new(Lines::open("WARPGAUGE_COLLECTOR_LOGS")?);
    let metrics = MetricsServiceServer::new(Lines::open("WARPGAUGE_COLLECTOR_METRICS")?);
    let server = tonic::transport::Server::builder().add_service(logs).add_service(metrics);
    server.serve(address.parse()?).await.with_context(|| format!("cannot serve on {address}"))
}
