//! Profiling: paused for another profiler, and stuck.
//!
//! In: profiling values, and one value that moves with the load (203, 155). Out: [`Stuck`] or mended. What can go
//! wrong: a GPU that idles or runs one endless kernel gives equal values rightly; so equal ones count only while they
//! are not zero and the use or the power of the same GPU changes.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::engine::{FieldValue, Value};
use crate::model::MonoNs;

/// Equal for this long, while the GPU's load changes, is not a coincidence: each value is an average of its interval.
const EQUAL: Duration = Duration::from_secs(60);
/// How often a stuck GPU is watched anew.
pub(super) const MEND_EVERY: Duration = Duration::from_secs(300);
/// GPU use in percent and power in watts.
const LOAD: [u16; 2] = [203, 155];

/// What is known of one GPU's profiling.
#[derive(Clone, Debug, Default)]
struct Gpu {
    /// Newest value by (key of the device, field), as bits.
    values: HashMap<(u32, u16), u64>,
    /// When one of them last changed, and what the load did since.
    changed: MonoNs,
    load: HashMap<u16, u64>,
    load_moved: bool,
    /// There was a value.
    worked: bool,
    stuck: bool,
    mended: Option<MonoNs>,
}

/// All GPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Profiling {
    gpus: BTreeMap<u32, Gpu>,
    /// Paused by request, and how.
    pub(super) paused: Option<PausedBy>,
    /// Paused by another client or by a diagnosis, as the engine said when values stayed away.
    elsewhere: bool,
}

/// How profiling is paused; what pauses it must be undone the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PausedBy {
    /// The engine's module is paused, for all of its clients.
    Engine,
    /// The engine has nothing to pause: the fields are not watched.
    Unwatched,
}

/// What is to be done about a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It became stuck: say so and watch anew.
    Stuck,
    /// It still is, and it is time to watch anew once more.
    StillStuck,
    /// It works again.
    Mended,
}

impl Profiling {
    /// Takes a profiling value, of the GPU itself or of an instance.
    pub(super) fn value(&mut self, gpu: u32, key: u32, value: &FieldValue<'_>, now: MonoNs) {
        let Some(bits) = bits(value) else { return };
        let known = self.gpus.entry(gpu).or_default();
        known.worked = true;
        self.elsewhere = false;
        if known.values.insert((key, value.field), bits) != Some(bits) {
            known.changed = now;
            known.load_moved = false;
            known.load.clear();
        }
    }

    /// Takes any other value of a GPU.
    pub(super) fn other(&mut self, gpu: u32, value: &FieldValue<'_>) {
        if !LOAD.contains(&value.field) {
            return;
        }
        let Some((known, bits)) = self.gpus.get_mut(&gpu).zip(bits(value)) else { return };
        let was = known.load.insert(value.field, bits);
        known.load_moved |= was.is_some_and(|was| was != bits);
    }

    /// Judges one GPU; `every` is the interval of its profiling fields, `missed` the time of reads in a row without a
    /// new value. A time without a read, such as during a slow call, tells nothing.
    pub(super) fn verdict(
        &mut self,
        gpu: u32,
        every: Duration,
        missed: Duration,
        now: MonoNs,
    ) -> Option<Verdict> {
        if self.paused.is_some() {
            return None;
        }
        let known = self.gpus.get_mut(&gpu)?;
        let age = |at: MonoNs| now.since(at).unwrap_or_default();
        if !known.worked {
            return None;
        }
        // A GPU that was lost is known as such within two seconds.
        let limit = every.saturating_mul(3).max(Duration::from_secs(5));
        let frozen = known.load_moved
            && age(known.changed) >= EQUAL.max(every.saturating_mul(10))
            // What is at either end of its range may well stay there.
            && known.values.values().any(|bits| ![0, 1, 1.0_f64.to_bits()].contains(bits));
        let stuck = frozen || missed >= limit;
        match (known.stuck, stuck) {
            (false, true) => {
                known.stuck = true;
                known.mended = Some(now);
                Some(Verdict::Stuck)
            }
            (true, true) if known.mended.is_none_or(|at| age(at) >= MEND_EVERY) => {
                known.mended = Some(now);
                Some(Verdict::StillStuck)
            }
            (true, false) => {
                known.stuck = false;
                Some(Verdict::Mended)
            }
            _ => None,
        }
    }

    /// Whoever paused it.
    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some() || self.elsewhere
    }

    /// Whether somebody else paused it; answers the same.
    pub(super) fn set_elsewhere(&mut self, elsewhere: bool) -> bool {
        self.elsewhere = elsewhere;
        elsewhere
    }

    /// A GPU is stuck.
    pub(super) fn any_stuck(&self) -> bool {
        self.gpus.values().any(|gpu| gpu.stuck)
    }

    /// Nothing is expected for a while: the GPU is lost, paused or watched anew.
    pub(super) fn forget(&mut self, gpu: u32) {
        self.gpus.remove(&gpu);
    }

    /// The connection is new.
    pub(super) fn forget_all(&mut self) {
        self.gpus.clear();
        self.elsewhere = false;
    }
}

fn bits(value: &FieldValue<'_>) -> Option<u64> {
    match value.value.as_ref().ok()? {
        Value::Double(x) => Some(x.to_bits()),
        Value::Int(n) => Some(n.cast_unsigned()),
        Value::Text(_) | Value::Time(_) | Value::Binary => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::ReturnCode;
    use super::*;

    fn at(seconds: u64) -> MonoNs {
        MonoNs(seconds * 1_000_000_000)
    }

    fn double(field: u16, x: f64) -> FieldValue<'static> {
        FieldValue { field, status: ReturnCode::OK, ts_us: 1, value: Ok(Value::Double(x)) }
    }

    /// A minute and more of values, second by second: (profiling value, power).
    fn check(what: &str, of: impl Fn(u64) -> (Option<f64>, f64), want: &[(u64, Verdict)]) {
        let mut profiling = Profiling::default();
        let (mut got, mut missed) = (Vec::new(), Duration::ZERO);
        for second in 1..200 {
            let (value, power) = of(second);
            missed = if value.is_some() { Duration::ZERO } else { missed + Duration::from_secs(1) };
            if let Some(value) = value {
                profiling.value(0, 1, &double(1002, value), at(second));
            }
            profiling.other(0, &double(155, power));
            if let Some(verdict) = profiling.verdict(0, Duration::from_secs(1), missed, at(second)) {
                got.push((second, verdict));
            }
        }
        assert_eq!(got, want, "{what}");
    }

    #[test]
    fn equal_values_are_stuck_only_while_the_load_moves() {
        check("all moves", |s| (Some(s as f64), s as f64), &[]);
        check("idle", |s| (Some(0.0), s as f64), &[]);
        check("an endless kernel", |_| (Some(0.5), 300.0), &[]);
        check("saturated", |s| (Some(1.0), s as f64), &[]);
        check("frozen", |s| (Some(0.5), s as f64), &[(61, Verdict::Stuck)]);
        check(
            "and mended",
            |s| (Some(if s < 100 { 0.5 } else { s as f64 }), s as f64),
            &[(61, Verdict::Stuck), (100, Verdict::Mended)],
        );
    }

    #[test]
    fn blank_after_it_worked_is_stuck() {
        check("never worked", |s| (None, s as f64), &[]);
        check("blank", |s| ((s <= 10).then_some(s as f64), 1.0), &[(15, Verdict::Stuck)]);
    }

    #[test]
    fn a_stuck_gpu_is_watched_anew_once_in_five_minutes() {
        let mut profiling = Profiling::default();
        profiling.value(0, 1, &double(1002, 0.5), at(1));
        let missed = |second| Duration::from_secs(second - 1);
        let mut verdict = |second| profiling.verdict(0, Duration::from_secs(1), missed(second), at(second));
        assert_eq!(verdict(10), Some(Verdict::Stuck));
        assert_eq!(verdict(309), None);
        assert_eq!(verdict(310), Some(Verdict::StillStuck));
        assert_eq!(verdict(311), None);
    }
}
