//! The samples of one field of one entity.
//!
//! In: watches, the node and the time. Out: samples, at `k × interval` from the watch on. What can go wrong: nothing;
//! samples are bounded by their keep time and by number, but the last is never dropped: an engine serves it for ever.

use std::collections::VecDeque;

use gpu_scenario::answer::{Answer, Sentinel, Value};
use gpu_scenario::catalog::{FieldRow, Level};
use gpu_scenario::fault::Fault;
use gpu_scenario::overlay::EngineState;
use gpu_scenario::world::World;

use super::Entity;
use super::groups::WatchCall;

const SAMPLES_MAX: usize = 4096;
/// Blank samples that the engine writes each second for a lost GPU.
const BLANKS: i64 = 20;
/// What a link's rate says first after a gap: its whole counter divided by the interval. Unit: MB/s.
const WHOLE_COUNTER: i64 = 3_091_674;

/// One sample.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Unit: µs since 1970.
    pub(crate) ts_us: i64,
    pub(crate) answer: Answer,
}

/// One watch of a series.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Watcher {
    pub(crate) owner: usize,
    pub(crate) group: usize,
    pub(crate) field_group: usize,
    interval_us: i64,
    keep_us: i64,
    spoiled: bool,
}

impl Watcher {
    pub(crate) fn new(owner: usize, call: &WatchCall, spoiled: bool) -> Self {
        // the engine takes 0 and less silently; 1 ms is the shortest it keeps up with
        let interval_us = call.interval_us.clamp(1_000, 86_400_000_000);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "casts of floats clip; the engine cuts to whole seconds"
        )]
        let keep_us = (call.keep_s as i64).saturating_mul(1_000_000);
        let by_count = i64::from(call.max_samples).saturating_mul(interval_us).saturating_mul(11) / 10;
        Self {
            owner,
            group: call.group,
            field_group: call.field_group,
            interval_us,
            keep_us: keep_us.max(by_count).max(1_000_000),
            spoiled,
        }
    }
}

/// What surrounds a series while it catches up.
pub(crate) struct Around<'a> {
    pub(crate) world: &'a World,
    pub(crate) detached: bool,
    /// When the last attaching was through. Unit: µs since 1970.
    pub(crate) attached_us: i64,
    pub(crate) paused: bool,
    pub(crate) dead_from: Option<i64>,
    pub(crate) since_us: i64,
}

pub(crate) struct Series {
    row: &'static FieldRow,
    /// The entity that is read; for a global field the first through which it was watched.
    entity: Entity,
    is_global: bool,
    watchers: Vec<Watcher>,
    next_due_us: i64,
    pub(crate) samples: VecDeque<Sample>,
    /// Whether a profiling sample exists to which the next one can be compared.
    primed: bool,
    /// Whether the last sample was a blank of the whole GPU.
    after_gap: bool,
    pub(crate) was_watched: bool,
}

impl Series {
    pub(crate) fn new(stored: Entity, read: Entity, row: &'static FieldRow) -> Self {
        Self {
            row,
            entity: read,
            is_global: stored.0 == 0,
            watchers: Vec::new(),
            next_due_us: i64::MAX,
            samples: VecDeque::new(),
            primed: false,
            after_gap: false,
            was_watched: false,
        }
    }

    pub(crate) fn watch(&mut self, watcher: Watcher, now_us: i64) {
        let same = |other: &Watcher| {
            (other.owner, other.group, other.field_group)
                == (watcher.owner, watcher.group, watcher.field_group)
        };
        self.watchers.retain(|other| !same(other));
        self.watchers.push(watcher);
        self.next_due_us = now_us;
        self.was_watched = true;
    }

    pub(crate) fn unwatch(&mut self, which: impl Fn(&Watcher) -> bool) {
        self.watchers.retain(|watcher| !which(watcher));
    }

    /// The driver was detached or attached: sampling begins anew at that moment.
    pub(crate) fn driver_changed(&mut self, now_us: i64, detached: bool) {
        if detached || !(self.is_global || is_event(self.row)) {
            self.next_due_us = now_us;
        }
    }

    /// An event, put where its time belongs.
    pub(crate) fn event(&mut self, ts_us: i64, value: i64) {
        let answer = Answer { status: 0, kind: self.row.kind, value: Value::Int(value) };
        self.insert(Sample { ts_us, answer });
    }

    pub(crate) fn catch_up(&mut self, around: &Around<'_>, now_us: i64) {
        let Some(interval) = self.watchers.iter().map(|watcher| watcher.interval_us).min() else { return };
        let keep = self.watchers.iter().map(|watcher| watcher.keep_us).max().unwrap_or(0);
        let room = i64::try_from(SAMPLES_MAX).unwrap_or(0).saturating_mul(interval).min(keep + 2 * interval);
        if self.next_due_us < now_us.saturating_sub(room) {
            // nobody can ever see these
            self.next_due_us += (now_us - room - self.next_due_us) / interval * interval;
        }
        while self.next_due_us <= now_us {
            let due = self.next_due_us;
            if around.world.engine(due) == EngineState::Hung {
                // no catching up: sampling goes on, in a new phase, when the engine does
                self.next_due_us += 10_000;
                continue;
            }
            self.take(around, due);
            self.next_due_us = due + interval;
        }
        while 1 < self.samples.len() && self.samples[0].ts_us < now_us.saturating_sub(keep) {
            self.samples.pop_front();
        }
    }

    fn take(&mut self, around: &Around<'_>, due: i64) {
        let gpu = around.world.gpu_of(self.entity);
        if around.dead_from.is_some_and(|from| from <= due) && gpu.is_some() && !self.is_global {
            return self.gap(due, if self.after_gap { 1 } else { 3 });
        }
        if gpu.is_some_and(|gpu| around.world.lost(gpu, due)) && !self.is_global {
            return self.gap(due, BLANKS);
        }
        if around.detached || due < around.attached_us {
            // what is read as an NVML field value stays frozen, and so do name and UUID
            let frozen = self.row.nvml.is_some() || matches!(self.row.id, 50 | 54);
            return if frozen { self.after_gap = true } else { self.gap(due, 1) };
        }
        let t = around.world.seconds(due);
        let stale = |fault: &Fault| matches!(fault, Fault::Stale(of) if of.holds(gpu, self.row.id, t));
        if is_event(self.row) || around.world.any(stale) || due < around.since_us {
            return;
        }
        let Some(mut answer) = around.world.read(self.entity, self.row, due) else { return self.gap(due, 1) };
        if answer.status == -14 {
            return;
        }
        let blank = Answer::absent(answer.kind, 0, Sentinel::Blank);
        let has_value = answer.status == 0 && !matches!(answer.value, Value::Absent(_));
        if self.row.is_profiling() && has_value && (!self.primed || around.paused) {
            answer = blank.clone();
        } else if self.row.is_link_rate() && self.after_gap && has_value {
            answer.value = Value::Int(WHOLE_COUNTER);
        }
        self.primed = true;
        self.after_gap = false;
        if self.watchers.iter().any(|watcher| watcher.spoiled) {
            answer = blank;
        }
        self.insert(Sample { ts_us: due, answer });
    }

    /// Blank samples, status 0, fresh time: the whole GPU has no data.
    fn gap(&mut self, due: i64, count: i64) {
        self.primed = false;
        self.after_gap = true;
        for place in 0..count {
            let answer = Answer::absent(self.row.kind, 0, Sentinel::Blank);
            self.insert(Sample { ts_us: due + place * 150, answer });
        }
    }

    fn insert(&mut self, sample: Sample) {
        let at = self.samples.partition_point(|other| other.ts_us <= sample.ts_us);
        self.samples.insert(at, sample);
        if SAMPLES_MAX < self.samples.len() {
            self.samples.pop_front();
        }
    }
}

/// Fields that are never polled.
pub(crate) fn is_event(row: &FieldRow) -> bool {
    matches!(row.id, 6 | 230) || (row.level == Level::Global && matches!(row.id, 350..=363))
}
