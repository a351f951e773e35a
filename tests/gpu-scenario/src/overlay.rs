//! What a `.now` file injects into a running simulator.
//!
//! In: the YAML of `<SCENARIO>.now`, which a test rewrites while the simulator runs. Out: one [`Overlay`]; the file's
//! whole content counts, so what is taken out of it ends. What can go wrong: a file that does not parse is ignored
//! until it is rewritten, and the complaint goes to standard error.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::event::{Incident, Xid};
use crate::fault::InCall;
use crate::node::{Mig, Process};
use crate::plan::FieldPlan;

/// The content of a `.now` file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overlay {
    /// When the simulated node started, so that several processes agree. Unit: s since 1970.
    pub start: Option<f64>,
    /// State of the engine's process.
    pub engine: EngineState,
    /// GPUs that are off the bus.
    pub lost: Vec<u32>,
    /// Whether the driver is detached.
    pub detached: bool,
    /// XIDs raised at the moment when the entry appears (`t` is not used); entries that stay are not raised again.
    pub xids: Vec<Xid>,
    /// Calls that block.
    pub hang: Vec<InCall>,
    /// Calls that fail.
    pub fail: Vec<InCall>,
    /// Calls that end the process by SIGSEGV.
    pub crash: Vec<InCall>,
    /// New MIG layouts, by GPU; an empty list: MIG mode without instances.
    pub mig: BTreeMap<u32, Vec<MigEntry>>,
    /// Fields, by GPU and field id.
    pub fields: BTreeMap<u32, BTreeMap<u16, FieldPlan>>,
    /// Processes, by GPU.
    pub processes: BTreeMap<u32, Vec<Process>>,
    /// Health incidents; `t` is not used.
    pub health: Vec<Incident>,
    /// Value of field 6, once each time it changes: 1 reinitialising, 2 completed.
    pub bind_event: Option<i64>,
}

/// State of the engine's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineState {
    /// It runs.
    #[default]
    Up,
    /// It is gone.
    Down,
    /// It stands still (SIGSTOP).
    Hung,
}

/// An instance of a new MIG layout.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct MigEntry(pub Mig);

impl PartialEq for MigEntry {
    fn eq(&self, other: &Self) -> bool {
        (&self.0.profile, &self.0.uuid, self.0.gi) == (&other.0.profile, &other.0.uuid, other.0.gi)
    }
}
