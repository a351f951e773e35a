//! What one field says over time: a curve, a text, or why there is no value.
//!
//! In: YAML by way of serde and a time. Out: an answer. What can go wrong: nothing; a curve gives a number for any time.

use serde::Deserialize;

use crate::answer::{Answer, Sentinel, Value};

/// Plan of one field. Exactly what is said replaces the driver's usual answer; the rest stays.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FieldPlan {
    /// The number over time. A number outside the field's range is given as it is.
    pub curve: Option<Curve>,
    /// A constant text.
    pub text: Option<String>,
    /// A sentinel instead of a value.
    pub absent: Option<Sentinel>,
    /// The status of the value, below 0.
    pub status: Option<i32>,
    /// The answer of the watch call, below 0: the field is refused.
    pub watch: Option<i32>,
    /// `absent` and `status` hold from here. Unit: s.
    pub from: Option<f64>,
    /// `absent` and `status` hold up to here. Unit: s.
    pub until: Option<f64>,
}

/// A number over time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Curve {
    /// Always the same.
    Constant(f64),
    /// Grows.
    Ramp {
        /// At 0 s.
        from: f64,
        /// Growth. Unit: 1/s.
        per_s: f64,
        /// It stays there.
        #[serde(default)]
        to: Option<f64>,
    },
    /// Swings.
    Sine {
        /// Middle.
        mean: f64,
        /// Half of the swing.
        amplitude: f64,
        /// Unit: s.
        period: f64,
    },
    /// Jumps: pairs of time and value, in order.
    Steps(Vec<(f64, f64)>),
    /// A counter of whole numbers; it begins again at `reset_at`.
    Counter {
        /// At 0 s.
        #[serde(default)]
        start: f64,
        /// Growth. Unit: 1/s.
        per_s: f64,
        /// When it falls back to 0. Unit: s.
        #[serde(default)]
        reset_at: Option<f64>,
    },
}

impl Curve {
    /// The number at `t` seconds.
    pub fn at(&self, t: f64) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Ramp { from, per_s, to } => {
                let value = from + per_s * t.max(0.0);
                match to {
                    Some(to) if 0.0 <= *per_s => value.min(*to),
                    Some(to) => value.max(*to),
                    None => value,
                }
            }
            Self::Sine { mean, amplitude, period } if *period != 0.0 => {
                mean + amplitude * (t / period * std::f64::consts::TAU).sin()
            }
            Self::Sine { mean, .. } => *mean,
            Self::Steps(steps) => {
                let reached = steps.iter().take_while(|(from, _)| *from <= t).last().or(steps.first());
                reached.map_or(0.0, |(_, value)| *value)
            }
            Self::Counter { start, per_s, reset_at } => match reset_at {
                Some(reset) if *reset <= t => (per_s * (t - reset)).floor(),
                _ => start + (per_s * t.max(0.0)).floor(),
            },
        }
    }
}

impl FieldPlan {
    /// Puts the plan over the driver's usual `answer` at `t` seconds.
    pub fn apply(&self, mut answer: Answer, t: f64) -> Answer {
        if let Some(text) = &self.text {
            answer.status = 0;
            answer.value = Value::Text(text.clone());
        }
        if let Some(curve) = &self.curve {
            answer.status = 0;
            answer.value = Value::of_kind(answer.kind, curve.at(t));
        }
        let within = self.from.is_none_or(|from| from <= t) && self.until.is_none_or(|until| t < until);
        if let Some(sentinel) = self.absent.filter(|_| within) {
            answer.status = 0;
            answer.value = Value::Absent(sentinel);
        }
        if let Some(status) = self.status.filter(|_| within) {
            answer.status = status;
            answer.value = Value::Absent(Sentinel::Blank);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Kind;

    #[test]
    fn curves_say_their_number_at_a_time() {
        let check = |curve: Curve, at: &[(f64, f64)]| {
            for (t, value) in at {
                assert!((curve.at(*t) - value).abs() < 1e-9, "{curve:?} at {t}: {}", curve.at(*t));
            }
        };
        check(Curve::Constant(5.0), &[(0.0, 5.0), (1e9, 5.0)]);
        check(Curve::Ramp { from: 1.0, per_s: 2.0, to: Some(4.0) }, &[(0.0, 1.0), (1.0, 3.0), (9.0, 4.0)]);
        check(
            Curve::Sine { mean: 10.0, amplitude: 2.0, period: 4.0 },
            &[(0.0, 10.0), (1.0, 12.0), (3.0, 8.0)],
        );
        check(Curve::Steps(vec![(0.0, 1.0), (5.0, 7.0)]), &[(-1.0, 1.0), (4.9, 1.0), (5.0, 7.0)]);
        let counter = Curve::Counter { start: 100.0, per_s: 10.0, reset_at: Some(5.0) };
        check(counter, &[(0.0, 100.0), (4.55, 145.0), (5.0, 0.0), (6.0, 10.0)]);
    }

    #[test]
    fn absence_holds_within_its_span_only() {
        let plan = FieldPlan { status: Some(-6), from: Some(2.0), until: Some(4.0), ..FieldPlan::default() };
        let usual = Answer { status: 0, kind: Kind::Int, value: Value::Int(7) };
        assert_eq!(plan.apply(usual.clone(), 1.0), usual);
        assert_eq!(plan.apply(usual.clone(), 2.0).status, -6);
        assert_eq!(plan.apply(usual.clone(), 4.0), usual);
    }
}
