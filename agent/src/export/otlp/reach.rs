//! Whether the collector answers, said once for both senders.
//!
//! In: what each sender finds. Out: one log line when the first of them gets no answer, one when all do again.
//! Nothing can go wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::channel::Failure;

/// Shared by the senders.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// A bit for each sender without an answer.
    without: Arc<AtomicU8>,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Sender {
    Logs = 1,
    Metrics = 2,
}

impl Reach {
    /// This sender got no answer; returns whether it was said.
    pub fn lost(&self, sender: Sender, endpoint: &str, failure: &Failure) -> bool {
        let first = self.without.fetch_or(sender as u8, Ordering::Relaxed) == 0;
        let what = &failure.what;
        if first && failure.no_descriptors {
            tracing::warn!(
                reason = "no_descriptors",
                endpoint,
                what,
                remedy = "raise the limit of open files (LimitNOFILE, ulimit -n), or fs.file-max of the node",
                "No file descriptor is left to reach the Collector: log records wait, bounded; counters stay exact."
            );
        } else if first {
            tracing::warn!(
                reason = "unreachable",
                endpoint,
                what,
                remedy = "start the OpenTelemetry Collector, or correct OTEL_EXPORTER_OTLP_ENDPOINT",
                "The Collector does not answer: log records wait for it, bounded; counters stay exact."
            );
        }
        first
    }

    /// This sender got an answer; returns whether that was said.
    pub fn found(&self, sender: Sender) -> bool {
        let last = self.without.fetch_and(!(sender as u8), Ordering::Relaxed) == sender as u8;
        if last {
            tracing::info!("The Collector answers again.");
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::otlp::retry::Verdict;

    #[test]
    fn an_outage_is_said_once_and_so_is_its_end() {
        let reach = Reach::default();
        let refused = Failure {
            verdict: Verdict::Retry(None),
            what: "refused".to_owned(),
            hung: false,
            no_descriptors: false,
        };
        let said = [
            reach.found(Sender::Logs),
            reach.lost(Sender::Metrics, "c", &refused),
            reach.lost(Sender::Logs, "c", &refused),
            reach.lost(Sender::Logs, "c", &refused),
            reach.found(Sender::Metrics),
            reach.lost(Sender::Metrics, "c", &refused),
            reach.found(Sender::Metrics),
            reach.found(Sender::Logs),
            reach.lost(Sender::Logs, "c", &refused),
        ];
        assert_eq!(said, [false, true, false, false, false, false, false, true, true]);
    }
}
