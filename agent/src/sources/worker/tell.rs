//! The way out of the worker source: signals into the pipeline, states into logs and gauges.
//!
//! In: signals and state changes. Out: the same, where they belong.
//! What can go wrong: the pipeline takes nothing. Values are dropped at once, what tells of a change waits a moment;
//! both are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::timeout;
use tracing::{info, warn};

use super::board::{Board, Standing};
use super::clean;
use super::refused::Refused;
use super::states::Change;
use crate::host::mono_now;
use crate::model::Signal;
use crate::model::signal::REPLACEMENT;
use crate::sources::Outlet;
use crate::telemetry::Telemetry;
use crate::wire::report::Note;

/// How long a signal that tells of a change waits for room. Shorter than a heartbeat: the worker must not look silent.
const PATIENCE: Duration = Duration::from_millis(100);
/// Reasons that get a gauge of their own; the words are the worker's.
const REASONS_MAX: usize = 48;
/// Notes that are remembered, so that each is logged once; what comes after them is counted only.
const NOTES_MAX: usize = 256;

/// The way out.
#[derive(Debug)]
pub struct Tell {
    telemetry: Telemetry,
    refused: Refused,
    reasons: BTreeSet<String>,
    board: Board,
    /// The lack that is published of each source.
    lacks: BTreeMap<&'static str, String>,
    /// Notes that were logged, by source, reason and words.
    notes: BTreeSet<(String, String, String)>,
}

impl Tell {
    /// Nothing told yet.
    pub fn new(telemetry: &Telemetry, refused: Refused, board: Board) -> Self {
        let telemetry = telemetry.clone();
        Self {
            telemetry,
            refused,
            board,
            reasons: BTreeSet::new(),
            lacks: BTreeMap::new(),
            notes: BTreeSet::new(),
        }
    }

    /// Hands signals on.
    pub async fn signals(&self, outlet: &Outlet, signals: &mut Vec<Signal>) {
        let mut patient = true; // one wait for all of them
        for signal in signals.drain(..) {
            match signal {
                Signal::Samples { .. } | Signal::Processes { .. } | Signal::VendorCalls { .. } => {
                    outlet.offer(signal);
                }
                _ if patient => {
                    if timeout(PATIENCE, outlet.send(signal)).await.is_err() {
                        self.refused.pipeline.add(1);
                        patient = false;
                    }
                }
                _ => outlet.offer(signal),
            }
        }
    }

    /// Says what changed: to the stages, in the log, in `warpgauge.source.*`.
    pub async fn changes(&mut self, outlet: &Outlet, changes: Vec<Change>) {
        for change in changes {
            self.board.put(Standing::from(&change));
            let Change { source, name, what, remedy, .. } = change;
            self.telemetry.gauge("warpgauge.source.up", &[("source", name)]).set(u64::from(source.up));
            let reason = source.reason.as_deref().map(|reason| self.bounded(reason));
            if let Some(before) = self.lacks.remove(name) {
                self.lack(name, &before, 0);
            }
            match reason {
                None => info!(source = name, how = what, "A source is up."),
                Some(reason) => {
                    self.lack(name, &reason, 1);
                    // Told to let go is no fault, nor is an exchange.
                    if reason == "released" || reason == REPLACEMENT {
                        info!(source = name, reason, what, remedy, "A source is down for now, as planned.");
                    } else {
                        warn!(
                            source = name,
                            reason, what, remedy, "A source is not available; the rest goes on."
                        );
                    }
                    self.lacks.insert(name, reason);
                }
            }
            self.signals(outlet, &mut vec![Signal::Source { at: mono_now(), source }]).await;
        }
    }

    /// Logs a note once and counts it. The words are the worker's: cleaned, and bounded in number.
    pub fn note(&mut self, note: &Note) {
        let Some(reason) = clean::word(&note.reason) else { return self.refused.invalid.add(1) };
        let reason = self.bounded(&reason);
        self.telemetry.counter("warpgauge.worker.notes", &[("reason", &reason)]).add(1);
        let name = clean::name(&note.name).unwrap_or_default();
        let [what, remedy] = [&note.what, &note.remedy].map(|words| clean::text(words).unwrap_or_default());
        let is_new =
            self.notes.len() < NOTES_MAX && self.notes.insert((name.clone(), reason.clone(), what.clone()));
        if is_new {
            warn!(source = name, reason, what, remedy, "A source has something to say; it goes on.");
        }
    }

    fn bounded(&mut self, reason: &str) -> String {
        if self.reasons.len() < REASONS_MAX {
            self.reasons.insert(reason.to_owned());
        }
        if self.reasons.contains(reason) { reason.to_owned() } else { "other".to_owned() }
    }

    fn lack(&self, source: &str, reason: &str, lacking: u64) {
        let labels = [("source", source), ("reason", reason)];
        self.telemetry.gauge("warpgauge.source.lack", &labels).set(lacking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_counted_each_time_and_remembered_once() {
        let telemetry = Telemetry::default();
        let mut tell = Tell::new(&telemetry, Refused::new(&telemetry), Board::default());
        let note = |reason: &str, what: &str| Note {
            name: "dcgm".into(),
            reason: reason.into(),
            what: what.into(),
            remedy: "none".into(),
        };
        for (reason, what) in [("conflict", "a"), ("conflict", "a"), ("conflict", "b"), ("not a word\n", "c")]
        {
            tell.note(&note(reason, what));
        }
        assert_eq!(tell.notes.len(), 2);
        assert_eq!(telemetry.counter("warpgauge.worker.notes", &[("reason", "conflict")]).get(), 3);
        assert_eq!(tell.refused.invalid.get(), 1);
        (0..NOTES_MAX + 10).for_each(|n| tell.note(&note("conflict", &n.to_string())));
        assert_eq!(tell.notes.len(), NOTES_MAX, "bounded");
    }
}
