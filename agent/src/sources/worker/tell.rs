//! The way out of the worker source: signals into the pipeline, states into logs and gauges.
//!
//! In: signals and state changes. Out: the same, where they belong.
//! What can go wrong: the pipeline takes nothing. Values are dropped at once and counted; what tells of a change waits a
//! moment, then it is kept and tried again with whatever is told next, and with each look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::timeout;
use tracing::{info, warn};

use super::board::{Board, Standing};
use super::clean;
use super::refused::Refused;
use super::states::Change;
use super::undelivered::{Put, Undelivered};
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
    undelivered: Undelivered,
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
            undelivered: Undelivered::default(),
        }
    }

    /// Hands signals on.
    pub async fn signals(&mut self, outlet: &Outlet, signals: &mut Vec<Signal>) {
        let mut patience = PATIENCE; // one wait for all of them
        for signal in signals.drain(..) {
            match self.undelivered.put(signal) {
                Put::Kept => {}
                Put::Full => self.refused.pipeline.add(1),
                Put::Value(value) => {
                    // A device is told of before its values.
                    self.deliver(outlet, &mut patience).await;
                    outlet.offer(value);
                }
            }
        }
        self.deliver(outlet, &mut patience).await;
    }

    /// Delivers what there is room for; `patience` is spent at the first that has none.
    async fn deliver(&mut self, outlet: &Outlet, patience: &mut Duration) {
        while let Some(signal) = self.undelivered.first() {
            // At its end the pipeline takes nothing more, and needs nothing more.
            if timeout(*patience, outlet.send(signal.clone())).await.is_err() {
                *patience = Duration::ZERO;
                return;
            }
            self.undelivered.delivered();
        }
    }

    /// Says what changed: to the stages, in the log, in `warpgauge.source.*`.
    pub async fn changes(&mut self, outlet: &Outlet, changes: Vec<Change>) {
        let mut patience = Duration::ZERO;
        for change in changes {
            self.board.put(Standing::from(&change));
            if !change.is_news {
                continue;
            }
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
        self.deliver(outlet, &mut patience).await;
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
    use crate::model::MonoNs;
    use crate::model::signal::SourceState;
    use crate::sources::queue;

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

    #[tokio::test(start_paused = true)]
    async fn a_change_that_found_the_pipeline_full_is_told_once_there_is_room() {
        let telemetry = Telemetry::default();
        let (tx, mut pipeline) = queue(1);
        let outlet = Outlet::new(tx, "worker", &telemetry);
        let mut tell = Tell::new(&telemetry, Refused::new(&telemetry), Board::default());
        let change = |name: &'static str, up| Change {
            source: SourceState { name: name.to_owned(), up, reason: None, late: None },
            name,
            what: String::new(),
            remedy: String::new(),
            library: String::new(),
            is_news: true,
        };
        outlet.offer(Signal::Tick { at: MonoNs(1) });
        tell.changes(&outlet, vec![change("dcgm", false), change("nvml", true)]).await;
        tell.changes(&outlet, vec![change("dcgm", true)]).await;
        let mut told = Vec::new();
        for _ in 0..4 {
            match pipeline.try_recv() {
                Ok(Signal::Source { source, .. }) => told.push((source.name, source.up)),
                Ok(other) => assert_eq!(other, Signal::Tick { at: MonoNs(1) }),
                Err(_) => told.push(("nothing".to_owned(), false)),
            }
            tell.changes(&outlet, Vec::new()).await; // a look
        }
        let want = [("nvml", true), ("dcgm", true), ("nothing", false)];
        assert_eq!(told, want.map(|(name, up)| (name.to_owned(), up)));
        let dropped = telemetry.counter("warpgauge.worker.frames.dropped", &[("reason", "pipeline_full")]);
        assert_eq!(dropped.get(), 0);
    }
}
