//! What is known of one process: the evidence in force, by rank, each with its begin.
//!
//! In: evidence as it begins and ends. Out: the devices of the best-ranked evidence.
//! What can go wrong: more evidence than is kept of one process; the caller counts it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::standing::Standing;
use crate::model::open_nodes::OpenNodes;
use crate::model::{MonoNs, StartTicks, UseEvidence};

/// Evidence for one device.
pub(super) type Row = (UseEvidence, Arc<str>);

/// A process.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// When it began, where that was told.
    pub(super) start: Option<StartTicks>,
    /// In the order of rank; the time is when the evidence began.
    pub(super) rows: BTreeMap<Row, MonoNs>,
    /// What it has open, and since when that was so.
    pub(super) open: Option<(MonoNs, Box<OpenNodes>)>,
    pub(super) standing: Standing,
    pub(super) ended: Option<MonoNs>,
}

impl Process {
    /// Most evidence kept of one process: more devices than any node has.
    pub(super) const ROWS_MAX: usize = 512;

    /// The rows of the best rank.
    pub(super) fn best(&self) -> impl Iterator<Item = &Row> {
        let best = self.rows.first_key_value().map(|((evidence, _), _)| *evidence);
        self.rows.keys().take_while(move |(evidence, _)| Some(*evidence) == best)
    }

    /// The devices it uses. `parent` tells the GPU of a MIG device: where the best evidence names a GPU, and other
    /// evidence MIG devices of that GPU, these are the same said more exactly (unified memory registers either one).
    pub(super) fn devices<'a>(
        &'a self,
        parent: impl Fn(&str) -> Option<&'a str>,
    ) -> BTreeMap<&'a str, UseEvidence> {
        let mut devices = BTreeMap::new();
        for (evidence, hw_id) in self.best() {
            let mut parts = self.rows.keys().filter(|(_, part)| parent(part) == Some(hw_id)).peekable();
            match parts.peek() {
                None => {
                    devices.entry(&**hw_id).or_insert(*evidence);
                }
                Some((first, _)) => {
                    let first = *first;
                    for (by, part) in parts.take_while(|(by, _)| *by == first) {
                        devices.entry(&**part).or_insert(*by);
                    }
                }
            }
        }
        devices
    }

    /// Nothing is known that anybody would miss.
    pub(super) fn is_blank(&self) -> bool {
        self.rows.is_empty()
            && self.open.is_none()
            && self.standing == Standing::Victim
            && self.ended.is_none()
    }
}
