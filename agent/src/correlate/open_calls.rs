//! The calls that threads are in, as far as they are known: at most one per thread and layer.
//!
//! In: entries, ends and looks. Out: the outermost and the innermost call of a thread. Calls nest by the time of their
//! entry: a page fault may lie outside of everything, in a system call, or in the driver's own function.
//! What can go wrong: too many at once; the surplus is refused, and the rule counts it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::call::LockWait;
use crate::model::{Call, CallKind, Holder, Inside, Layer, MonoNs, Tid};

/// Which call of which thread.
pub type Key = (Tid, Layer);

/// A call that has begun.
#[derive(Debug)]
pub struct OpenCall {
    /// Its entry.
    pub call: Box<Call>,
    /// When it began.
    pub enter: MonoNs,
    /// From this length on it is a stall.
    pub threshold: Duration,
    /// The last answer of the check, the thread's state and the time then; `None` until it was checked.
    pub checked: Option<(Inside, Option<char>, MonoNs)>,
    /// When the episode was last told; `None` while it is not one.
    pub told: Option<MonoNs>,
    /// Time spent waiting for locks within it that is over.
    pub locked: Duration,
    /// The lock it waits for, or waited for last.
    pub blame: Option<Blame>,
    /// A GPU is (or was) brought up within it.
    pub brings_up: bool,
}

/// A wait for a lock, and who was last known to have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Blame {
    /// The lock.
    pub wait: LockWait,
    /// Who has it.
    pub holder: Option<Holder>,
    /// The holder's process has ended.
    pub dead: bool,
}

/// The driver's function that brings a GPU up.
const BRINGS_UP: &str = "rm_init_adapter";

impl OpenCall {
    /// A call that begins at `enter`.
    pub fn new(call: &Call, enter: MonoNs, threshold: Duration) -> Self {
        Self {
            call: Box::new(call.clone()),
            enter,
            threshold,
            checked: None,
            told: None,
            locked: Duration::ZERO,
            blame: None,
            brings_up: false,
        }
    }

    /// Looked at since its entry, and not found outside.
    pub fn was_checked(&self) -> bool {
        matches!(self.checked, Some((Inside::Inside | Inside::Unknown, ..)))
    }

    /// The last time there was a sign of the call.
    pub fn last_seen(&self) -> MonoNs {
        self.checked.map_or(self.enter, |(_, _, at)| at)
    }

    /// An open during which a GPU is brought up: slow by nature, once.
    pub fn is_first_open(&self) -> bool {
        self.call.kind == CallKind::Open && self.brings_up
    }
}

/// All open calls.
#[derive(Debug, Default)]
pub struct OpenCalls {
    calls: BTreeMap<Key, OpenCall>,
}

impl OpenCalls {
    /// Most open calls kept, twice what the kernel's in-flight map holds.
    pub const MAX: usize = 16_384;

    /// Adds a call; the thread's outermost one learns of it. `false`: there is no room.
    pub fn enter(&mut self, open: OpenCall) -> bool {
        if self.calls.len() >= Self::MAX {
            return false;
        }
        let (tid, layer) = (open.call.tid, open.call.kind.layer());
        let brings_up = open.call.function.as_deref() == Some(BRINGS_UP);
        self.calls.insert((tid, layer), open);
        if brings_up && let Some(outer) = self.outermost_mut(tid) {
            outer.brings_up = true;
        }
        true
    }

    /// Takes a call out. What the thread began within it is over as well, unless the call's own end is in doubt.
    pub fn leave(&mut self, at: MonoNs, (tid, layer): Key, lost: bool) -> Option<OpenCall> {
        let open = self.calls.remove(&(tid, layer))?;
        if layer == Layer::Lock {
            let waited = at.since(open.enter).unwrap_or_default();
            if let Some(outer) = self.outermost_mut(tid) {
                outer.locked = outer.locked.saturating_add(waited);
            }
        } else if !lost {
            let within =
                |key: &Key, other: &OpenCall| key.0 == tid && (other.enter, key.1) > (open.enter, layer);
            self.calls
                .extract_if((tid, Layer::Syscall)..=(tid, Layer::Lock), |key, other| within(key, other))
                .for_each(drop);
        }
        Some(open)
    }

    /// One call.
    pub fn get(&self, key: Key) -> Option<&OpenCall> {
        self.calls.get(&key)
    }

    /// One call, to be changed.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut OpenCall> {
        self.calls.get_mut(&key)
    }

    /// Every call, by thread and layer.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &OpenCall)> {
        self.calls.iter()
    }

    /// The calls of a thread, the outermost first.
    pub fn of(&self, tid: Tid) -> Vec<&OpenCall> {
        let mut calls: Vec<&OpenCall> = self.range(tid).map(|(_, open)| open).collect();
        calls.sort_by_key(|open| (open.enter, open.call.kind.layer()));
        calls
    }

    /// The layer of the call that a thread is in with all others.
    pub fn outermost(&self, tid: Tid) -> Option<Layer> {
        self.range(tid).min_by_key(|((_, layer), open)| (open.enter, *layer)).map(|((_, layer), _)| *layer)
    }

    /// The outermost call of a thread, to be changed.
    pub fn outermost_mut(&mut self, tid: Tid) -> Option<&mut OpenCall> {
        let layer = self.outermost(tid)?;
        self.calls.get_mut(&(tid, layer))
    }

    /// Threads that wait for this lock.
    pub fn waiting_for(&self, lock: &str) -> usize {
        let waits = self.calls.iter().filter(|((_, layer), _)| *layer == Layer::Lock);
        waits.filter(|(_, open)| open.call.lock.as_ref().is_some_and(|wait| wait.lock == lock)).count()
    }

    fn range(&self, tid: Tid) -> impl Iterator<Item = (&Key, &OpenCall)> {
        self.calls.range((tid, Layer::Syscall)..=(tid, Layer::Lock))
    }
}
