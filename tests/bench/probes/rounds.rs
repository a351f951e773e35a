//! Measurements with and without probes in turns → ratios.
//!
//! In: for each measurement a number per workload; before and after each with probes there is one without.
//! Out: the median of the ratios of a measurement to the mean of its neighbours, with the quartiles, and how many ratios
//! there are: where the neighbours differ too much, something else has changed meanwhile, and there is none. And the ratio
//! of the least of all with to the least of all without, which is what is left where nothing is quiet for long.
//! What can go wrong: a machine so busy that no ratio is left, shown as NaN.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// By how much neighbours may differ.
const AGREE: f64 = 1.25;

/// All measurements.
pub(crate) struct Rounds {
    workloads: Vec<String>,
    /// Names of ways, in the order they came.
    ways: Vec<&'static str>,
    plain: Vec<Vec<f64>>,
    /// Of the round that is not over: a way, its numbers, the place of the measurement before it.
    open: Vec<(&'static str, Vec<f64>, usize)>,
    ratios: BTreeMap<(usize, &'static str), Vec<f64>>,
    /// Of all measurements of a workload in a way.
    least: BTreeMap<(usize, &'static str), f64>,
}

impl Rounds {
    pub(crate) fn new(workloads: Vec<String>) -> Self {
        let (ways, plain, open) = (Vec::new(), Vec::new(), Vec::new());
        Self { workloads, ways, plain, open, ratios: BTreeMap::new(), least: BTreeMap::new() }
    }

    /// Without probes.
    pub(crate) fn plain(&mut self, numbers: Vec<f64>) {
        self.plain.push(numbers);
    }

    /// With them; one without came before, another one comes next.
    pub(crate) fn with(&mut self, way: &'static str, numbers: Vec<f64>) {
        if !self.ways.contains(&way) {
            self.ways.push(way);
        }
        self.open.push((way, numbers, self.plain.len()));
    }

    /// The last one without probes has come.
    pub(crate) fn end_round(&mut self) {
        for (way, numbers, next) in self.open.drain(..) {
            let neighbours = self.plain.get(next.wrapping_sub(1)).zip(self.plain.get(next));
            let Some((before, after)) = neighbours else { continue };
            for (at, ((with, before), after)) in numbers.iter().zip(before).zip(after).enumerate() {
                let least = self.least.entry((at, way)).or_insert(f64::INFINITY);
                *least = least.min(*with);
                if before.max(*after) <= AGREE * before.min(*after) {
                    self.ratios.entry((at, way)).or_default().push(with / ((before + after) / 2.0));
                }
            }
        }
    }

    /// A line per workload: ns without probes, then a column of ratios per way.
    pub(crate) fn text(&self, per: &str) -> String {
        let mut text = format!("{:<34} {:>13}", "ratio [quartiles] n; of least", format!("ns {per}"));
        for way in &self.ways {
            // Writing to a String cannot fail, here and below.
            let _ = write!(text, " {way:>28}");
        }
        for (at, workload) in self.workloads.iter().enumerate() {
            let plain: Vec<f64> = self.plain.iter().filter_map(|numbers| numbers.get(at).copied()).collect();
            let least_plain = plain.iter().copied().fold(f64::INFINITY, f64::min);
            let _ = write!(text, "\n{workload:<34} {:>13.0}", quartiles(plain)[1]);
            for way in &self.ways {
                let ratios = self.ratios.get(&(at, *way)).cloned().unwrap_or_default();
                let count = ratios.len();
                let least = self.least.get(&(at, *way)).map_or(f64::NAN, |least| least / least_plain);
                let [low, middle, high] = quartiles(ratios);
                let _ =
                    write!(text, " {:>28}", format!("{middle:.2} [{low:.2}-{high:.2}] {count}; {least:.2}"));
            }
        }
        text
    }
}

fn quartiles(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().saturating_sub(1) as f64;
    [0.25, 0.5, 0.75].map(|part| numbers.get((last * part).round() as usize).copied().unwrap_or(f64::NAN))
}
