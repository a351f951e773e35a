//! The agent's own log lines: to standard error, and as OTLP records where there is a collector.
//!
//! In: `tracing` events, and through it those of the `log` crate (lines of the kernel programs). Out: text, written by a
//! thread of its own from a bounded queue: a terminal or a pipe that takes nothing must not stop the agent.
//! What can go wrong: a filter that cannot be read, which is refused; a full queue, which drops lines and counts them.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::ExportConfig;
use crate::export::otlp::resource::{self, HostFacts};
use crate::export::otlp::{Connector, OtlpError};
use crate::export::own_logs::{self, OwnLogs};
use crate::telemetry::Telemetry;

/// What the last lines get to reach the collector; the records before them have had their time.
const LAST: Duration = Duration::from_millis(300);

/// Lines that may wait for standard error.
const LINES_MAX: usize = 8_192;

/// Ends the logging.
#[derive(Debug)]
pub struct Logging {
    own_logs: Option<OwnLogs>,
    /// Writes what is left when it is dropped, for a second at most.
    _stderr: WorkerGuard,
}

/// Logging that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The OTLP configuration cannot work.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    /// Not a level, nor a list of targets with levels.
    #[error("WARPGAUGE_LOG={text:?}: {why}; set it to a level such as info or debug")]
    Filter {
        /// As set.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Starts logging for the whole process. Must be called on the runtime, once.
///
/// # Errors
/// [`LoggingError`], for a configuration that cannot work.
pub fn start(
    export: &ExportConfig,
    facts: &HostFacts,
    filter: Option<String>,
    telemetry: &Telemetry,
) -> Result<Logging, LoggingError> {
    let text = filter.unwrap_or_else(|| "info".to_owned());
    let filter = EnvFilter::try_new(&text)
        .map_err(|e| LoggingError::Filter { text: text.clone(), why: e.to_string() })?;
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_MAX)
        .lossy(true)
        .thread_name("warpgauge-log")
        .finish(stderr());
    let (counter, lost) = (telemetry.counter("warpgauge.log.lines.lost", &[]), writer.error_counter());
    tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_secs(1));
        loop {
            every.tick().await;
            counter.raise_to(lost.dropped_lines() as u64);
        }
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(stderr().is_terminal());
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
    Ok(Logging { own_logs, _stderr: guard })
}

impl Logging {
    /// Sends the last lines.
    pub async fn finish(self) {
        if let Some(own_logs) = self.own_logs {
            own_logs.finish(LAST).await;
        }
    }
}
