//! What is to be done on a connection, and what outlives it.
//!
//! In: the configuration, resolved. Out: [`Task`] and [`Memory`]. Nothing can go wrong.

use std::time::Duration;

use super::inventory::Names;
use super::plan::{Group, NoField};
use super::poll::Slots;
use super::profiling::PausedBy;
use super::xid::Told;
use crate::worker::keys::Keys;
use crate::worker::numa::NumaNode;

/// What outlives a connection: nothing of a device's identity is lost when the engine is made anew.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) keys: Keys,
    pub(super) slots: Slots,
    pub(super) told: Told,
    /// Profiling is paused by request, and how it was in the last connection.
    pub(super) paused: Option<PausedBy>,
    pub(super) names: Names,
}

/// What is to be done on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) groups: &'a [Group],
    pub(super) health_every: Duration,
    pub(super) only_look: bool,
    /// As the inventory says it.
    pub(super) version: &'a str,
    /// The library's file and release.
    pub(super) library: &'a str,
    /// Configured fields that nobody knows.
    pub(super) unknown: &'a [NoField],
    pub(super) numa: &'a dyn NumaNode,
}
