//! Which measured values can be, and which of them are news.
//!
//! In: batches of readings as sources delivered them. Out: the same batches, in place: a value that cannot be becomes an
//! absence with the reason `invalid`, and readings that are no news are taken out. Each is counted by reason.
//! The hot path: one hash per batch, none per reading, no allocation for what is known.
//! What can go wrong: more devices than [`SampleChecks::SUBJECTS_MAX`]; then the past of all is forgotten, and counted.

use std::collections::HashMap;

use crate::model::by_field::ByField;
use crate::model::field_table::{self, FieldRow, Range, Treatment};
use crate::model::signal::DeviceState;
use crate::model::{Absence, MonoNs, Origin, Reading, SampleValue, Samples, Signal, Subject};
use crate::telemetry::{Counter, Telemetry};

/// Checks readings against the table of fields, and against the ones before them.
#[derive(Debug)]
pub struct SampleChecks {
    subjects: HashMap<Subject, ByField<Last>>,
    counts: Counts,
}

/// The latest value of one field.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: Option<MonoNs>,
    /// There has been no value since.
    blank: bool,
}

#[derive(Debug)]
struct Counts {
    /// By source, in the order of [`ORIGINS`].
    received: [Counter; 3],
    range: Counter,
    not_finite: Counter,
    negative: Counter,
    text: Counter,
    out_of_order: Counter,
    duplicate: Counter,
    after_blank: Counter,
    forgotten: Counter,
}

const ORIGINS: [Origin; 3] = [Origin::Dcgm, Origin::Nvml, Origin::Host];

/// Sources whose rates are differences of counters.
const VENDORS: [&str; 2] = ["dcgm", "nvml"];

/// How far a share may lie outside its range by rounding. Unit: of the whole range.
const ROUNDING: f64 = 1e-3;

impl SampleChecks {
    /// Devices and parts of devices that are kept.
    pub const SUBJECTS_MAX: usize = 2_048;

    /// Nothing known yet.
    pub fn new(telemetry: &Telemetry) -> Self {
        let invalid = |reason| telemetry.counter("warpgauge.samples.invalid", &[("reason", reason)]);
        let dropped = |reason| telemetry.counter("warpgauge.samples.dropped", &[("reason", reason)]);
        let received =
            |origin: Origin| telemetry.counter("warpgauge.samples.received", &[("source", origin.name())]);
        let counts = Counts {
            received: ORIGINS.map(received),
            range: invalid("range"),
            not_finite: invalid("not_finite"),
            negative: invalid("negative"),
            text: invalid("text"),
            out_of_order: dropped("out_of_order"),
            duplicate: dropped("duplicate"),
            after_blank: dropped("after_blank"),
            forgotten: telemetry.counter("warpgauge.correlate.refused", &[("reason", "subjects")]),
        };
        Self { subjects: HashMap::new(), counts }
    }

    /// Looks at any signal, and corrects those with readings.
    pub fn push(&mut self, signal: &mut Signal) {
        match signal {
            Signal::Samples { samples, .. } => self.check(samples),
            Signal::GpuState { hw_id, state: DeviceState::Gone, .. } => {
                self.subjects.retain(|subject, _| *subject.hw_id != **hw_id);
            }
            Signal::Source { source, .. } if !source.up && VENDORS.contains(&source.name.as_str()) => {
                let all = self.subjects.values_mut().flat_map(ByField::iter_mut);
                all.for_each(|last| last.blank = true);
            }
            _ => {} // every other kind passes as it is
        }
    }

    fn check(&mut self, samples: &mut Samples) {
        let of = ORIGINS.iter().position(|origin| *origin == samples.origin);
        if let Some(received) = of.and_then(|of| self.counts.received.get(of)) {
            received.add(samples.readings.len() as u64);
        }
        if !self.subjects.contains_key(&samples.subject) {
            if self.subjects.len() >= Self::SUBJECTS_MAX {
                self.counts.forgotten.add(1);
                self.subjects.clear();
            }
            self.subjects.insert(samples.subject.clone(), ByField::default());
        }
        let (Some(fields), counts) = (self.subjects.get_mut(&samples.subject), &self.counts) else { return };
        samples.readings.retain_mut(|reading| {
            let first = Last { at: None, blank: true };
            let last = match fields.get_mut(reading.field) {
                Some(last) => last,
                None => match fields.insert(reading.field, first) {
                    Some(last) => last,
                    None => return false, // one more unknown field than anybody asks for
                },
            };
            let row = field_table::row(reading.field);
            counts.keep(reading, row, last)
        });
    }
}

impl Counts {
    /// Whether the reading is news; what it says is corrected.
    fn keep(&self, reading: &mut Reading, row: Option<&FieldRow>, last: &mut Last) -> bool {
        if matches!(reading.value, SampleValue::Absent(_)) {
            last.blank = true;
            return true;
        }
        // Events may be told late, and are told apart by who reads them.
        let in_order = row.is_none_or(|row| row.treatment != Treatment::Event);
        if let (true, Some(before)) = (in_order, last.at)
            && reading.at <= before
        {
            let same = reading.at == before;
            if same {
                self.duplicate.add(1)
            } else {
                self.out_of_order.add(1)
            }
            return false;
        }
        last.at = last.at.max(Some(reading.at));
        let after_blank = std::mem::take(&mut last.blank);
        if after_blank && row.is_some_and(FieldRow::is_difference_of_a_counter) {
            self.after_blank.add(1);
            return false;
        }
        if let Some((counter, absence)) = self.correct(&mut reading.value, row) {
            counter.add(1);
            reading.value = SampleValue::Absent(absence);
            last.blank = true;
        }
        true
    }

    /// What is wrong with the value; shares are rounded into their range.
    fn correct(&self, value: &mut SampleValue, row: Option<&FieldRow>) -> Option<(&Counter, Absence)> {
        let treatment = row.map(|row| row.treatment);
        let range = row.map_or(Range::Any, |row| row.range);
        let wrong = |counter| Some((counter, Absence::Invalid));
        match value {
            SampleValue::Text(_) if matches!(treatment, Some(Treatment::Info(_) | Treatment::Refused)) => {
                None
            }
            SampleValue::Text(_) => Some((&self.text, Absence::Unexportable)),
            SampleValue::Int(n) => match range {
                Range::Any => None,
                Range::Positive => wrong(&self.negative).filter(|_| *n < 0),
                Range::Percent => wrong(&self.range).filter(|_| !(0..=100).contains(n)),
                Range::Ratio => wrong(&self.range).filter(|_| !(0..=1).contains(n)),
                Range::Celsius => wrong(&self.range).filter(|_| !(-273..=1_000).contains(n)),
            },
            SampleValue::Number(n) if !n.is_finite() => wrong(&self.not_finite),
            SampleValue::Number(n) => match range {
                Range::Any => None,
                Range::Positive => wrong(&self.negative).filter(|_| *n < 0.0),
                Range::Percent => wrong(&self.range).filter(|_| !round_into(n, 100.0)),
                Range::Ratio => wrong(&self.range).filter(|_| !round_into(n, 1.0)),
                Range::Celsius => wrong(&self.range).filter(|_| !(-273.15..=1_000.0).contains(n)),
            },
            SampleValue::Absent(_) => None,
        }
    }
}

/// Rounds a share into 0 to `whole`; `false` when it lies too far outside.
fn round_into(share: &mut f64, whole: f64) -> bool {
    let rounding = ROUNDING * whole;
    let near = (-rounding..=whole + rounding).contains(share);
    if near {
        *share = share.clamp(0.0, whole);
    }
    near
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::signal::SourceState;
    use crate::model::{Field, Part};

    struct Bench {
        checks: SampleChecks,
        telemetry: Telemetry,
        second: u64,
    }

    impl Bench {
        fn new() -> Self {
            let telemetry = Telemetry::default();
            Self { checks: SampleChecks::new(&telemetry), telemetry, second: 0 }
        }

        /// What is left of values that come a second apart.
        fn feed(&mut self, field: u16, values: impl IntoIterator<Item = SampleValue>) -> Vec<SampleValue> {
            let mut left = Vec::new();
            for value in values {
                self.second += 1;
                left.extend(self.one(field, self.second, value));
            }
            left
        }

        fn one(&mut self, field: u16, second: u64, value: SampleValue) -> Option<SampleValue> {
            let at = MonoNs(second * 1_000_000_000);
            let subject = Subject { hw_id: "GPU-1".into(), part: Part::Whole };
            let readings = vec![Reading { at, field: Field::Dcgm(field), value }];
            let samples = Box::new(Samples { subject, origin: Origin::Dcgm, readings });
            let mut signal = Signal::Samples { at, samples };
            self.checks.push(&mut signal);
            let Signal::Samples { mut samples, .. } = signal else { panic!("{signal:?}") };
            samples.readings.pop().map(|reading| reading.value)
        }

        fn counted(&self, name: &'static str, reason: &str) -> u64 {
            self.telemetry.counter(name, &[("reason", reason)]).get()
        }
    }

    fn ints(values: &[i64]) -> Vec<SampleValue> {
        values.iter().map(|n| SampleValue::Int(*n)).collect()
    }

    fn numbers(values: &[f64]) -> Vec<SampleValue> {
        values.iter().map(|n| SampleValue::Number(*n)).collect()
    }

    const INVALID: SampleValue = SampleValue::Absent(Absence::Invalid);

    /// Values of which those at `invalid` cannot be.
    fn ints_but(values: &[i64], invalid: &[usize]) -> Vec<SampleValue> {
        let mut values = ints(values);
        invalid.iter().for_each(|at| values[*at] = INVALID);
        values
    }

    #[test]
    fn what_cannot_be_is_absent_and_counted() {
        #[track_caller]
        fn check(field: u16, given: Vec<SampleValue>, want: Vec<SampleValue>, counted: &[(&str, u64)]) {
            let mut bench = Bench::new();
            assert_eq!(bench.feed(field, given), want, "{field}");
            for (reason, n) in counted {
                assert_eq!(bench.counted("warpgauge.samples.invalid", reason), *n, "{field} {reason}");
            }
        }
        let given = [97, 4_294_967_295, 96, 131_072, 1_300, 0, 100, -1];
        let mut want = ints(&given);
        [1, 3, 4, 7].into_iter().for_each(|at| want[at] = INVALID);
        check(203, ints(&given), want, &[("range", 4)]);
        let given = [0.98, 1.000_000_4, 7.2, f64::NAN, -0.000_5, -0.01, f64::INFINITY];
        let mut want = numbers(&[0.98, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        [2, 3, 5, 6].into_iter().for_each(|at| want[at] = INVALID);
        check(1001, numbers(&given), want, &[("range", 2), ("not_finite", 2)]);
        check(150, ints(&[45, -300, -40, 65_535]), ints_but(&[45, 0, -40, 0], &[1, 3]), &[("range", 2)]);
        check(202, ints(&[3, -1]), vec![SampleValue::Int(3), INVALID], &[("negative", 1)]);
        check(
            155,
            numbers(&[-3.5, f64::INFINITY]),
            vec![INVALID, INVALID],
            &[("negative", 1), ("not_finite", 1)],
        );
        check(150, ints(&[-40]), ints(&[-40]), &[("range", 0), ("negative", 0)]);
        let text = || SampleValue::Text("GPU".into());
        check(150, vec![text()], vec![SampleValue::Absent(Absence::Unexportable)], &[("text", 1)]);
        check(50, vec![text()], vec![text()], &[("text", 0)]);
        check(60_000, ints(&[-1]), ints(&[-1]), &[("range", 0), ("negative", 0)]);
    }

    #[test]
    fn counters_cannot_be_negative() {
        for row in field_table::rows() {
            let counts = matches!(row.treatment, Treatment::Counter | Treatment::Rate | Treatment::Mask);
            assert!(!counts || row.range == Range::Positive, "{}", row.name);
        }
    }

    #[test]
    fn samples_that_are_no_news_are_taken_out() {
        let mut bench = Bench::new();
        let int = SampleValue::Int;
        assert_eq!(bench.one(150, 5, int(60)), Some(int(60)));
        assert_eq!(bench.one(150, 5, int(60)), None);
        assert_eq!(bench.one(150, 4, int(59)), None);
        let blank = SampleValue::Absent(Absence::Blank);
        assert_eq!(bench.one(150, 4, blank.clone()), Some(blank), "a lack is news at any time");
        assert_eq!(bench.one(150, 6, int(61)), Some(int(61)));
        let dropped = |reason| bench.counted("warpgauge.samples.dropped", reason);
        assert_eq!((dropped("duplicate"), dropped("out_of_order")), (1, 1));
        let received =
            |source| bench.telemetry.counter("warpgauge.samples.received", &[("source", source)]).get();
        assert_eq!((received("dcgm"), received("nvml")), (5, 0), "those that are no news count too");
        assert_eq!(bench.one(230, 9, int(31)), Some(int(31)));
        assert_eq!(bench.one(230, 8, int(79)), Some(int(79)), "an XID may be told late");
    }

    #[test]
    fn the_first_computed_rate_after_a_gap_is_nonsense() {
        let mut bench = Bench::new();
        assert_eq!(bench.feed(449, ints(&[0, 20, 21])), ints(&[20, 21]));
        let blank = || SampleValue::Absent(Absence::Blank);
        let lost = [blank(), SampleValue::Int(3_091_674), SampleValue::Int(22)];
        assert_eq!(bench.feed(449, lost), [blank(), SampleValue::Int(22)]);
        let source = SourceState { name: "dcgm".into(), up: false, reason: None, late: None };
        bench.checks.push(&mut Signal::Source { at: MonoNs(0), source });
        assert_eq!(bench.feed(449, ints(&[10_481_374, 23])), ints(&[23]));
        assert_eq!(bench.counted("warpgauge.samples.dropped", "after_blank"), 3);
        assert_eq!(bench.feed(1009, [blank(), SampleValue::Int(5)]), [blank(), SampleValue::Int(5)]);
    }

    #[test]
    fn ever_new_devices_do_not_fill_the_memory() {
        let mut bench = Bench::new();
        for n in 0..=SampleChecks::SUBJECTS_MAX {
            let subject = Subject { hw_id: format!("MIG-{n}").into(), part: Part::Whole };
            let readings =
                vec![Reading { at: MonoNs(1), field: Field::Dcgm(150), value: SampleValue::Int(1) }];
            let samples = Box::new(Samples { subject, origin: Origin::Dcgm, readings });
            let mut signal = Signal::Samples { at: MonoNs(1), samples };
            bench.checks.push(&mut signal);
            let Signal::Samples { samples, .. } = signal else { panic!("{signal:?}") };
            assert_eq!(samples.readings.len(), 1, "{n}");
        }
        assert_eq!(bench.checks.subjects.len(), 1);
        assert_eq!(bench.counted("warpgauge.correlate.refused", "subjects"), 1);
    }

    #[test]
    fn a_device_that_went_is_forgotten() {
        let mut bench = Bench::new();
        bench.feed(150, ints(&[60]));
        let state = DeviceState::Gone;
        bench.checks.push(&mut Signal::GpuState { at: MonoNs(0), hw_id: "GPU-1".into(), state });
        assert!(bench.checks.subjects.is_empty());
        assert_eq!(bench.one(150, 1, SampleValue::Int(60)), Some(SampleValue::Int(60)), "its past is too");
    }
}
