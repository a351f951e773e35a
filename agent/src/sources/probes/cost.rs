//! What the kernel programs cost, probe by probe, and which are given up when it is too much.
//!
//! In: how long and how often each program ran in a sample. Out: [`Cost`] per probe, and a [`Step`]. Pure.
//! What can go wrong: a program that several probes share tells only its sum; it is divided by how often the probes'
//! own programs ran, which is an estimate.

use std::collections::BTreeMap;

use super::tactics::Probe;

/// What was used in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processor time per time. Unit: CPUs.
    pub cpus: f64,
    /// Unit: runs per second.
    pub runs: f64,
}

/// A probe (`None`: what all need), its programs, and whether each sees ends.
pub type Uses = (Option<Probe>, Vec<(&'static str, bool)>);

/// Divides the programs' cost among the probes.
pub fn by_probe(programs: &BTreeMap<String, Cost>, uses: &[Uses]) -> BTreeMap<Option<Probe>, Cost> {
    let of = |name: &str| programs.get(name).copied().unwrap_or_default();
    // how often the probe's calls begin
    let begun =
        |uses: &Uses| uses.1.iter().filter(|(_, end)| !end).map(|(name, _)| of(name).runs).sum::<f64>();
    let mut costs = BTreeMap::new();
    for (probe, own) in uses {
        let cost: &mut Cost = costs.entry(*probe).or_default();
        for (name, _) in own {
            let sharing = || uses.iter().filter(|(_, theirs)| theirs.iter().any(|(other, _)| other == name));
            let all: f64 = sharing().map(begun).sum();
            let part = match sharing().count() {
                1 => 1.0,
                count if all <= 0.0 => 1.0 / count as f64,
                _ => uses.iter().find(|(other, _)| other == probe).map_or(0.0, begun) / all,
            };
            let Cost { cpus, runs } = of(name);
            cost.cpus += cpus * part;
            cost.runs += runs * part;
        }
    }
    costs
}

/// What is given up, first to last: what is most often run and least often the cause comes first. What happens rarely
/// (XIDs, unloads, the end of processes) costs nothing and is never given up.
pub const ORDER: [Probe; 14] = [
    Probe::Scheduler,
    Probe::Locks,
    Probe::Poll,
    Probe::Mmap,
    Probe::UvmFault,
    Probe::Rm,
    Probe::UvmService,
    Probe::UvmEvict,
    Probe::UvmRegister,
    Probe::InitAdapter,
    Probe::Exec,
    Probe::Close,
    Probe::Open,
    Probe::Ioctl,
];

/// Without a word in the configuration: 2 % of one CPU, or a thousandth of all, whichever is more. A call into the
/// driver costs 3 to 6 µs with all probes. So the least is 4,000 calls a second, which is more than a steady job of 8
/// GPUs makes; and a thousandth of a large machine is less than any of its users can measure.
pub fn default_budget(online_cpus: u32) -> f64 {
    (f64::from(online_cpus) * 0.001).max(0.02)
}

/// Samples in a row that must be above the budget: a job that begins is no load.
const OVER: u32 = 2;
/// Samples in a row below half of the budget after which a probe is tried again: 10 minutes. Each further time it is
/// given up it waits twice as long, up to 16 times.
const QUIET: u32 = 20;
const LONGEST_WAIT: u32 = 16;

/// What is to be done after a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Keep,
    /// Take these off.
    Shed(Vec<Probe>),
    /// Attach this one again.
    Restore(Probe),
}

/// Watches the cost.
#[derive(Debug)]
pub struct Budget {
    /// Unit: CPUs.
    limit: f64,
    over: u32,
    quiet: u32,
    /// Given up now, in that order.
    shed: Vec<Probe>,
    /// How often each was.
    times: BTreeMap<Probe, u32>,
}

impl Budget {
    /// All programs together may use so much. Unit: CPUs.
    pub fn new(limit: f64) -> Self {
        Self { limit, over: 0, quiet: 0, shed: Vec::new(), times: BTreeMap::new() }
    }

    /// Unit: CPUs.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// What is given up now.
    pub fn shed(&self) -> &[Probe] {
        &self.shed
    }

    /// Looks at a sample.
    pub fn judge(&mut self, costs: &BTreeMap<Option<Probe>, Cost>) -> Step {
        let total: f64 = costs.values().map(|cost| cost.cpus).sum();
        self.over = if total > self.limit { self.over + 1 } else { 0 };
        self.quiet = if total < self.limit / 2.0 { self.quiet + 1 } else { 0 };
        if self.over >= OVER {
            self.over = 0;
            return self.give_up(total, costs);
        }
        let Some(last) = self.shed.last().copied() else { return Step::Keep };
        let times = self.times.get(&last).copied().unwrap_or(1);
        let wait = QUIET * 2_u32.saturating_pow(times.saturating_sub(1)).min(LONGEST_WAIT);
        if self.quiet < wait {
            return Step::Keep;
        }
        self.quiet = 0;
        self.shed.pop();
        Step::Restore(last)
    }

    /// In their order, those that cost anything, until the rest is within the budget.
    fn give_up(&mut self, mut total: f64, costs: &BTreeMap<Option<Probe>, Cost>) -> Step {
        let mut shed = Vec::new();
        for probe in ORDER {
            let cost = costs.get(&Some(probe)).map_or(0.0, |cost| cost.cpus);
            if total <= self.limit {
                break;
            }
            if cost > 0.0 && !self.shed.contains(&probe) {
                total -= cost;
                *self.times.entry(probe).or_default() += 1;
                shed.push(probe);
            }
        }
        self.shed.extend(&shed);
        if shed.is_empty() { Step::Keep } else { Step::Shed(shed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(parts: &[(Probe, f64)]) -> BTreeMap<Option<Probe>, Cost> {
        parts.iter().map(|(probe, cpus)| (Some(*probe), Cost { cpus: *cpus, runs: 1.0 })).collect()
    }

    /// Samples of the same cost until something is to be done, at most so many; gives how many it took.
    fn steps(budget: &mut Budget, parts: &[(Probe, f64)], most: u32) -> (u32, Step) {
        let costs = costs(parts);
        for sample in 1..=most {
            let step = budget.judge(&costs);
            if step != Step::Keep {
                return (sample, step);
            }
        }
        (most, Step::Keep)
    }

    #[test]
    fn what_is_shared_is_divided_by_how_often_each_began() {
        let cost = |cpus, runs| Cost { cpus, runs };
        let programs = [
            ("kp_ioctl", cost(0.3, 300.0)),
            ("kp_open", cost(0.1, 100.0)),
            ("kr_call", cost(0.8, 400.0)),
            ("process_exit", cost(0.05, 5.0)),
        ];
        let programs = programs.map(|(name, cost)| (name.to_owned(), cost)).into();
        let call = |probe, entry| (Some(probe), vec![(entry, false), ("kr_call", true)]);
        let uses = [
            call(Probe::Ioctl, "kp_ioctl"),
            call(Probe::Open, "kp_open"),
            call(Probe::Poll, "kp_poll"),
            (Some(Probe::Rm), vec![]),
            (None, vec![("process_exit", false)]),
        ];
        let costs = by_probe(&programs, &uses);
        let near = |probe, cpus: f64, runs: f64| {
            let cost = costs[&probe];
            assert!(
                (cost.cpus - cpus).abs() < 1e-9 && (cost.runs - runs).abs() < 1e-9,
                "{probe:?}: {cost:?}"
            );
        };
        near(Some(Probe::Ioctl), 0.9, 600.0);
        near(Some(Probe::Open), 0.3, 200.0);
        near(Some(Probe::Poll), 0.0, 0.0);
        near(Some(Probe::Rm), 0.0, 0.0);
        near(None, 0.05, 5.0);
        // where none has begun anything it is divided evenly, and nothing is lost
        let uses = [call(Probe::Close, "kp_close"), call(Probe::Poll, "kp_poll")];
        assert_eq!(by_probe(&programs, &uses)[&Some(Probe::Poll)], cost(0.4, 200.0));
    }

    #[test]
    fn too_much_sheds_in_order_until_the_rest_fits() {
        for (parts, want) in [
            (vec![(Probe::Ioctl, 0.015), (Probe::Locks, 0.004)], Step::Keep),
            (vec![(Probe::Ioctl, 0.015), (Probe::Locks, 0.01)], Step::Shed(vec![Probe::Locks])),
            (
                vec![(Probe::Ioctl, 0.015), (Probe::Rm, 0.01), (Probe::Locks, 0.01)],
                Step::Shed(vec![Probe::Locks, Probe::Rm]),
            ),
            // what costs nothing is not given up for nothing
            (vec![(Probe::Ioctl, 0.03), (Probe::Locks, 0.0)], Step::Shed(vec![Probe::Ioctl])),
            // and what may not be given up is not
            (vec![(Probe::Xid, 0.03)], Step::Keep),
        ] {
            let mut budget = Budget::new(0.02);
            let (samples, step) = steps(&mut budget, &parts, OVER);
            assert_eq!((samples, step), (OVER, want), "{parts:?}");
        }
    }

    #[test]
    fn one_sample_above_the_budget_is_no_load() {
        let mut budget = Budget::new(0.02);
        for cpus in [0.5, 0.01, 0.5, 0.02, 0.5] {
            assert_eq!(budget.judge(&costs(&[(Probe::Locks, cpus)])), Step::Keep);
        }
        assert_eq!(budget.judge(&costs(&[(Probe::Locks, 0.5)])), Step::Shed(vec![Probe::Locks]));
    }

    #[test]
    fn what_was_shed_comes_back_after_a_quiet_time_that_doubles() {
        let mut budget = Budget::new(0.02);
        let (much, little) = ([(Probe::Locks, 0.1), (Probe::Ioctl, 0.005)], [(Probe::Ioctl, 0.005)]);
        for wait in [1, 2, 4, 8, 16, 16] {
            assert_eq!(steps(&mut budget, &much, OVER), (OVER, Step::Shed(vec![Probe::Locks])));
            assert_eq!(budget.shed(), [Probe::Locks]);
            // half of the budget and more is not quiet
            assert_eq!(steps(&mut budget, &[(Probe::Ioctl, 0.011)], 1000).1, Step::Keep);
            assert_eq!(steps(&mut budget, &little, 1000), (QUIET * wait, Step::Restore(Probe::Locks)));
            assert_eq!(budget.shed(), []);
        }
        assert_eq!(steps(&mut budget, &little, 1000).1, Step::Keep);
    }

    #[test]
    fn small_machines_have_a_fiftieth_of_a_cpu_and_large_ones_a_thousandth_of_all() {
        for (cpus, want) in [(1, 0.02), (2, 0.02), (20, 0.02), (64, 0.064), (256, 0.256)] {
            assert!((default_budget(cpus) - want).abs() < 1e-9, "{cpus}");
        }
    }
}
