//! The agent's own log lines as OTLP records.
//!
//! In: `tracing` events. Out: a layer for the subscriber, and a guard that sends what is left at the end.
//! Lines are handed to a bounded queue and sent by a thread of the SDK: logging never waits for a collector.
//! What can go wrong: the queue is full or the collector away; lines are lost then, uncounted (see [`OwnLogs`]). Lines
//! of what sends lines are left out, or each would make the next.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{BatchConfigBuilder, BatchLogProcessor, SdkLoggerProvider};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::otlp::{Connector, OtlpError};

/// Sends what is left; see [`Self::finish`].
///
/// Own lines are a convenience: standard error has every line, and nothing about GPUs is only in them. That is why the
/// SDK's queue may drop some, whose number it keeps to itself: no `warpgauge.*` metric has it. Records of findings go
/// another way, on which each is accounted for.
#[derive(Debug)]
pub struct OwnLogs {
    provider: SdkLoggerProvider,
}

/// The layer to put into the subscriber. Must be called on the runtime.
///
/// # Errors
/// [`OtlpError`], for a configuration that cannot work.
pub fn layer<S>(
    connector: &Connector,
    resource: &[(String, String)],
) -> Result<(Box<dyn Layer<S> + Send + Sync>, OwnLogs), OtlpError>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let mut builder = LogExporter::builder()
        .with_tonic()
        .with_channel(connector.channel()?)
        .with_metadata(connector.headers().clone());
    if connector.config().gzip {
        builder = builder.with_compression(opentelemetry_otlp::Compression::Gzip);
    }
    let exporter = builder.build().map_err(|error| OtlpError::Endpoint {
        endpoint: connector.config().endpoint.clone(),
        what: error.to_string(),
    })?;
    let delay = BatchConfigBuilder::default().with_scheduled_delay(Duration::from_secs(1)).build();
    let processor = BatchLogProcessor::builder(exporter).with_batch_config(delay).build();
    let attributes = resource.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    let resource = Resource::builder_empty().with_attributes(attributes).build();
    let provider = SdkLoggerProvider::builder().with_resource(resource).with_log_processor(processor).build();
    let layer = OpenTelemetryTracingBridge::new(&provider).with_filter(filter_fn(is_sent));
    Ok((Box::new(layer), OwnLogs { provider }))
}

impl OwnLogs {
    /// Sends what is left, at most within this time.
    pub async fn finish(self, within: Duration) {
        let shutdown = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(within));
        // Whether the last lines arrived or not, there is nowhere left to say so.
        let _ = tokio::time::timeout(within, shutdown).await;
    }
}

/// Everything that takes part in sending. `log` is where lines of the `log` crate come from, whoever wrote them.
const SENDERS: &[&str] = &[
    "opentelemetry",
    "tonic",
    "h2",
    "hyper",
    "hyper_util",
    "tower",
    "rustls",
    "log",
    "warpgauge::export::otlp",
    "warpgauge::export::own_logs",
];

fn is_sent(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO && !sends_lines(metadata.target())
}

fn sends_lines(target: &str) -> bool {
    SENDERS.iter().any(|sender| {
        let rest = target.strip_prefix(sender);
        // `opentelemetry_sdk` and its like count with `opentelemetry`.
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || *sender == "opentelemetry")
    })
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::config::OtlpConfig;
    use crate::export::otlp::fake_collector::{Collector, DEADLINE, records, text};

    fn connector(addr: std::net::SocketAddr) -> Connector {
        Connector::new(OtlpConfig {
            endpoint: format!("http://{addr}"),
            headers: Vec::new(),
            timeout: Duration::from_millis(500),
            gzip: true,
            ca_file: None,
            client_identity: None,
            queue_records: 1,
        })
        .unwrap()
    }

    #[test]
    fn what_sends_lines_does_not_send_its_own() {
        for (target, want) in [
            ("warpgauge::sources::kmsg", false),
            ("warpgauge::export::console", false),
            ("warpgauge::export::otlp::log_sender", true),
            ("opentelemetry_sdk", true),
            ("opentelemetry-otlp", true),
            ("h2::client", true),
            ("h2", true),
            ("h2o", false),
            ("tower::buffer::worker", true),
        ] {
            assert_eq!(sends_lines(target), want, "{target}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lines_arrive_with_the_resource() {
        let mut collector = Collector::start([]).await;
        let resource = [("service.name".to_owned(), "warpgauge".to_owned())];
        let (layer, own_logs) = layer(&connector(collector.addr), &resource).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!(target: "h2::client", "not this one");
            tracing::debug!("nor this");
            tracing::warn!(target: "warpgauge::sources", pid = 7, "a source failed");
        });
        own_logs.finish(DEADLINE).await;
        let request = collector.logs().await;
        assert_eq!(
            text(&request.resource_logs[0].resource.as_ref().unwrap().attributes, "service.name"),
            "warpgauge"
        );
        let lines: Vec<_> = records(&request).map(|r| (r.severity_number, format!("{:?}", r.body))).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].0 == 13 && lines[0].1.contains("a source failed"), "{lines:?}");
        collector.nothing_more();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_waits_for_a_collector_that_is_away() {
        let addr = Collector::start([]).await.kill().await;
        let (layer, own_logs) = layer(&connector(addr), &[]).unwrap();
        let began = std::time::Instant::now();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            (0..10_000).for_each(|n| tracing::info!(n, "a line"));
        });
        own_logs.finish(Duration::from_millis(300)).await;
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
