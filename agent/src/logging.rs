//! The agent's own log lines: to standard error, and as OTLP records where there is a collector.
//!
//! In: `tracing` events, and through it those of the `log` crate (lines of the kernel programs). Out: text.
//! `WARPGAUGE_LOG` sets the level (default `info`). What can go wrong: a filter that cannot be read; `info` is taken.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::ExportConfig;
use crate::export::otlp::resource::{self, HostFacts};
use crate::export::otlp::{Connector, OtlpError};
use crate::export::own_logs::{self, OwnLogs};

/// What the last lines get to reach the collector; the records before them have had their time.
const LAST: Duration = Duration::from_millis(300);

/// Ends the logging.
#[derive(Debug)]
pub struct Logging(Option<OwnLogs>);

/// Starts logging for the whole process. Must be called on the runtime, once.
///
/// # Errors
/// [`OtlpError`], for a configuration that cannot work.
pub fn start(export: &ExportConfig, facts: &HostFacts, filter: Option<String>) -> Result<Logging, OtlpError> {
    let filter =
        filter.and_then(|text| EnvFilter::try_new(text).ok()).unwrap_or_else(|| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    let (records, own_logs) = match export.otlp.as_ref().filter(|_| export.own_logs) {
        None => (None, None),
        Some(otlp) => {
            let attributes = resource::attributes(facts, &export.service_name, &export.resource_attributes);
            let (layer, own_logs) = own_logs::layer(&Connector::new(otlp.clone())?, &attributes)?;
            (Some(layer), Some(own_logs))
        }
    };
    // Fails only when somebody has set one before, and then lines go there.
    let _ = tracing_subscriber::registry().with(records).with(filter).with(lines).try_init();
    Ok(Logging(own_logs))
}

impl Logging {
    /// Sends the last lines.
    pub async fn finish(self) {
        if let Some(own_logs) = self.0 {
            own_logs.finish(LAST).await;
        }
    }
}
