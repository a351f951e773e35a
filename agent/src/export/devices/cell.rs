//! What one field of one device has come to: a level, a count since its begin, an integral.
//!
//! In: values in the field's unit with the times of their samples, in order. Out: values in the metric's unit.
//! Whole numbers stay whole (a byte counter passes 2^53 within days). What can go wrong: a device's counter falls, which
//! means that it began anew: [`Cell::take`] says so.

use crate::export::point::Value;
use crate::model::MonoNs;
use crate::model::field_table::{FieldRow, Scale, Treatment};

use super::parts::Parts;

/// A measured number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Exact.
    Whole(i64),
    /// As precise as the field.
    Double(f64),
}

impl Number {
    fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a < b,
            (a, b) => a.double() < b.double(),
        }
    }

    fn minus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Self::Whole(a.saturating_sub(b)),
            (a, b) => Self::Double(a.double() - b.double()),
        }
    }

    fn double(self) -> f64 {
        match self {
            Self::Whole(n) => n as f64,
            Self::Double(n) => n,
        }
    }

    /// The nearest whole number.
    pub fn whole(self) -> i64 {
        match self {
            Self::Whole(n) => n,
            Self::Double(n) => n.round() as i64, // saturates
        }
    }

    /// The value on the wire.
    pub fn scaled(self, scale: Scale, double: bool) -> Value {
        match (self, scale) {
            (Self::Whole(n), Scale::Times(by)) if !double => Value::Whole(n.saturating_mul(by)),
            (n, Scale::Times(by)) => Value::Double(n.double() * by as f64),
            (n, Scale::Per(by)) => Value::Double(n.double() / by as f64),
        }
    }
}

/// The state of one series, or of the series of one mask.
#[derive(Debug)]
pub enum Cell {
    /// The latest value.
    Level(Number),
    /// A counter of the device.
    Counter(Count),
    /// The integral of a rate.
    Rate(Integral),
    /// Time per bit, or events per number.
    Parts(Box<Parts>),
}

/// A counter of the device, and where we began to count.
#[derive(Debug)]
pub struct Count {
    base: Number,
    latest: Number,
    at: MonoNs,
}

/// Value times time.
#[derive(Debug, Default)]
pub struct Integral {
    /// Unit: the field's times ns.
    total: u128,
    steps: Steps,
}

/// The distances between samples: how long a value counts.
#[derive(Debug, Default)]
pub struct Steps {
    latest: Option<MonoNs>,
    step: Option<u64>,
}

impl Steps {
    /// A step of more than this many times the one before it is a gap.
    const GAP: u64 = 3;

    /// How long the sample at `at` is after the one before it, and whether there was a gap between them; then it is as
    /// long as the step before. `None` for the first sample, and for the first after a pause. Unit: ns.
    pub fn step(&mut self, at: MonoNs) -> Option<(u64, bool)> {
        let distance = at.0.saturating_sub(self.latest.replace(at)?.0);
        let before = self.step.replace(distance).unwrap_or(distance);
        let gap = distance > before.saturating_mul(Self::GAP);
        Some((if gap { before } else { distance }, gap))
    }

    /// There was no value: nothing is bridged.
    pub fn pause(&mut self) {
        self.latest = None;
    }
}

impl Cell {
    /// The cell of a field with its first value.
    pub fn new(row: Option<&FieldRow>, parts: impl FnOnce() -> Parts, first: Number, at: MonoNs) -> Self {
        let mut cell = match row.map_or(Treatment::Level, |row| row.treatment) {
            Treatment::Counter => Self::Counter(Count { base: first, latest: first, at }),
            Treatment::Rate => Self::Rate(Integral::default()),
            Treatment::Mask | Treatment::Event => Self::Parts(Box::new(parts())),
            Treatment::Level | Treatment::Info(_) | Treatment::Refused => Self::Level(first),
        };
        cell.take(first, at);
        cell
    }

    /// Takes the next value. When the device's counter began anew: the time of the sample before it.
    pub fn take(&mut self, value: Number, at: MonoNs) -> Option<MonoNs> {
        match self {
            Self::Level(level) => *level = value,
            Self::Rate(rate) => {
                let step = rate.steps.step(at).map_or(0, |(step, _)| step);
                let value = u128::try_from(value.whole()).unwrap_or(0);
                rate.total = rate.total.saturating_add(value.saturating_mul(u128::from(step)));
            }
            Self::Parts(parts) => parts.take(value.whole(), at),
            Self::Counter(count) => {
                let before = std::mem::replace(count, Count { base: count.base, latest: value, at });
                if value.is_below(before.latest) {
                    count.base = Number::Whole(0);
                    return Some(before.at);
                }
            }
        }
        None
    }

    /// The field has no value now.
    pub fn pause(&mut self) {
        match self {
            Self::Rate(rate) => rate.steps.pause(),
            Self::Parts(parts) => parts.pause(),
            Self::Level(_) | Self::Counter(_) => {}
        }
    }

    /// Counts from here on.
    pub fn restart(&mut self) {
        match self {
            Self::Counter(count) => count.base = count.latest,
            Self::Rate(rate) => rate.total = 0,
            Self::Parts(parts) => parts.restart(),
            Self::Level(_) => {}
        }
    }

    /// The value of a cell that is one series.
    pub fn value(&self, row: Option<&FieldRow>) -> Option<Value> {
        let (scale, double) = row.map_or((Scale::Times(1), false), |row| (row.scale, row.double));
        match self {
            Self::Level(level) => Some(level.scaled(scale, double)),
            Self::Counter(count) => Some(count.latest.minus(count.base).scaled(scale, double)),
            Self::Rate(rate) => {
                let by = if let Scale::Times(by) = scale { u128::from(by.unsigned_abs()) } else { 1 };
                let total = rate.total.saturating_mul(by) / 1_000_000_000;
                Some(Value::Whole(i64::try_from(total).unwrap_or(i64::MAX)))
            }
            Self::Parts(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Field;
    use crate::model::field_table::row;

    fn at(ms: u64) -> MonoNs {
        MonoNs(ms * 1_000_000)
    }

    /// The value after the samples, and the times at which the counter began anew.
    fn fed(id: u16, samples: &[(u64, Number)]) -> (Value, Vec<MonoNs>) {
        let row = row(Field::Dcgm(id));
        let (first, rest) = samples.split_first().unwrap();
        let mut cell = Cell::new(row, || panic!("no parts"), first.1, at(first.0));
        let anew = rest.iter().filter_map(|(ms, value)| cell.take(*value, at(*ms))).collect();
        (cell.value(row).unwrap(), anew)
    }

    #[test]
    fn each_unit_becomes_that_of_its_metric() {
        use Number::{Double, Whole};
        for (id, value, want) in [
            (252, Whole(1_024), Value::Whole(1_024 * 1_048_576)), // MiB
            (250, Whole(81_559), Value::Whole(81_559 * 1_048_576)), // not 10^6
            (203, Whole(97), Value::Double(0.97)),                // percent
            (100, Whole(1_980), Value::Whole(1_980_000_000)),     // MHz
            (150, Whole(61), Value::Whole(61)),
            (155, Double(250.5), Value::Double(250.5)),
            (155, Whole(250), Value::Double(250.0)), // a double field stays one
            (1002, Double(0.93), Value::Double(0.93)),
            (1437, Whole(250), Value::Double(0.25)), // ms
        ] {
            assert_eq!(fed(id, &[(0, value)]).0, want, "{id}");
        }
    }

    #[test]
    fn a_counter_is_the_increase_since_the_first_sample_exactly() {
        let big = (1i64 << 60) + 1;
        let whole = |n| Number::Whole(n);
        assert_eq!(fed(1201, &[(0, whole(big)), (1_000, whole(big + 3))]), (Value::Whole(3), vec![]));
        let counted = fed(1201, &[(0, whole(0)), (1_000, whole(big))]).0;
        assert_eq!(counted, Value::Whole(big), "above 2^53 every byte counts");
        assert_eq!(fed(156, &[(0, whole(7_000)), (1_000, whole(7_250))]).0, Value::Double(0.25), "mJ to J");
        assert_eq!(fed(240, &[(0, whole(5)), (1, whole(1_500_000_005))]).0, Value::Double(1.5), "ns to s");
    }

    #[test]
    fn a_counter_that_falls_began_anew_after_the_sample_before() {
        let samples = [(0, 100), (1_000, 130), (2_000, 4), (3_000, 9)].map(|(t, n)| (t, Number::Whole(n)));
        assert_eq!(fed(202, &samples), (Value::Whole(9), vec![at(1_000)]));
    }

    #[test]
    fn a_rate_counts_for_its_step_and_no_gap_is_bridged() {
        let rate = |samples: &[(u64, i64)]| {
            let samples: Vec<_> = samples.iter().map(|(t, n)| (*t, Number::Whole(*n))).collect();
            fed(1009, &samples).0
        };
        assert_eq!(rate(&[(0, 500)]), Value::Whole(0), "the first one begins the series");
        assert_eq!(rate(&[(0, 500), (1_000, 1_000), (3_000, 10)]), Value::Whole(1_020));
        assert_eq!(
            rate(&[(0, 1), (1_000, 1_000), (60_000, 1_000)]),
            Value::Whole(2_000),
            "one step, not 59 s"
        );
        let slower = [(0, 1), (1_000, 10), (11_000, 10), (21_000, 10)];
        assert_eq!(rate(&slower), Value::Whole(10 + 10 + 100), "a longer interval is learned");
        assert_eq!(rate(&[(0, 1), (1_000, i64::MAX), (2_000, i64::MAX)]), Value::Whole(i64::MAX));
        let mb = fed(449, &[(0, Number::Whole(0)), (500, Number::Whole(3))]).0;
        assert_eq!(mb, Value::Whole(1_500_000), "half a second of 3 MB/s");
    }
}
