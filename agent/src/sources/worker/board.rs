//! The notice board: what is said of each source in the worker and of the probes' budget, for who asks (`warpgauge doctor`).
//!
//! In: changes of state. Out: the latest [`Standing`] of each source. Clones share. Nothing can go wrong.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::states::Change;

/// What is said of a source, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Standing {
    /// `dcgm`, `nvml`, `profiling`, `worker`, or `probes` for their budget.
    pub source: String,
    /// It gives data.
    pub up: bool,
    /// Why not, in one word; empty when it is up.
    pub reason: String,
    /// What is missing, or how it is up.
    pub what: String,
    /// What the operator can do.
    pub remedy: String,
    /// The vendor's library with its release; empty where none was opened.
    pub library: String,
}

/// The board. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Board {
    tx: Arc<watch::Sender<Vec<Standing>>>,
}

impl Default for Board {
    fn default() -> Self {
        Self { tx: Arc::new(watch::Sender::new(Vec::new())) }
    }
}

impl From<&Change> for Standing {
    fn from(change: &Change) -> Self {
        Self {
            source: change.name.to_owned(),
            up: change.source.up,
            reason: change.source.reason.clone().unwrap_or_default(),
            what: change.what.clone(),
            remedy: change.remedy.clone(),
            library: change.library.clone(),
        }
    }
}

impl Board {
    /// Puts up what replaces the source's notice.
    pub fn put(&self, standing: Standing) {
        self.tx.send_modify(|all| match all.iter_mut().find(|known| known.source == standing.source) {
            Some(known) => *known = standing,
            None => all.push(standing),
        });
    }

    /// All that is up there.
    pub fn read(&self) -> Vec<Standing> {
        self.tx.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_word_on_each_source_stands() {
        let board = Board::default();
        let standing = |source: &str, up| Standing { source: source.into(), up, ..Standing::default() };
        for (source, up) in [("dcgm", false), ("nvml", true), ("dcgm", true)] {
            board.clone().put(standing(source, up));
        }
        assert_eq!(board.read(), [standing("dcgm", true), standing("nvml", true)]);
    }
}
