//! Looking after the attached programs: a driver that is loaded again, what the programs cost, hits that were missed.
//!
//! In: a beat every second, what is loaded. Out: probes attached anew, taken off or put back; the agent's own numbers.
//! What can go wrong: the kernel refuses what it took before; then the next row is taken, and said. Attaching and
//! detaching take up to some tenths of a second for each probe: one at a time, between two looks at calls in flight.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::time::Duration;

use super::attached::{Attached, Driver};
use super::cost::{Budget, Step, by_probe};
use super::groups::Group;
use super::kernel::Kernel;
use super::reload::{Builds, Loads};
use super::report::{Report, UNMEASURED};
use super::run_stats::{Sampler, recursion_misses};
use super::symbols::Symbols;
use super::tactics::Probe;
use crate::host::{HostRoot, mono_now};
use crate::telemetry::{Counter, Telemetry};

/// Between two beats, and the length of a sample.
pub const BEAT: Duration = Duration::from_secs(1);
/// A sample is taken every so many beats.
const SAMPLE_EVERY: u32 = 30;
/// Missed hits are asked for every so many beats.
const MISSED_EVERY: u32 = 10;

/// What is remembered from beat to beat.
pub struct Upkeep {
    host: HostRoot,
    kernel: Kernel,
    group: Group,
    loads: Loads,
    driver: Driver,
    beats: u32,
    plan: Plan,
    sampler: Option<Sampler>,
    budget: Budget,
    missed: BTreeMap<String, Missed>,
    /// What the programs did not see because the CPU was in another one.
    recursion: Counter,
    /// Of programs that were loaded before these.
    recursion_before: u64,
    telemetry: Telemetry,
    report: Report,
    /// It was said that nobody counts.
    said_uncounted: bool,
}

/// Hits of an event that its program did not see.
struct Missed {
    counter: Counter,
    last: u64,
}

/// What is to be done with a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Attach it by the best row, or change into that.
    Settle(Probe),
    /// Take it off, for its cost.
    TakeOff(Probe),
}

/// Changes that are still to be made, first to last.
#[derive(Debug, Default)]
struct Plan(VecDeque<Change>);

impl Plan {
    /// All probes but those that are given up are settled anew. What was planned to be taken off still is.
    fn settle_all(&mut self, probes: impl Iterator<Item = Probe>, shed: &[Probe]) {
        self.0.retain(|change| matches!(change, Change::TakeOff(_)));
        self.0.extend(probes.filter(|probe| !shed.contains(probe)).map(Change::Settle));
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Keep => {}
            Step::Shed(probes) => self.0.extend(probes.iter().copied().map(Change::TakeOff)),
            Step::Restore(probe) => self.0.push_back(Change::Settle(*probe)),
        }
    }
}

/// What is loaded, and which functions it has. Takes some tenths of a second where a driver is loaded.
pub fn look_at_driver(host: &HostRoot) -> Driver {
    let loads = Loads::look(host);
    Driver {
        symbols: Symbols::look(&host.proc("kallsyms"), loads.modules()),
        loads,
        builds: Builds::look(host),
    }
}

impl Upkeep {
    /// Begins after everything was attached for this `driver`.
    pub fn new(
        host: HostRoot,
        kernel: Kernel,
        group: Group,
        driver: Driver,
        budget: Budget,
        report: Report,
        telemetry: &Telemetry,
    ) -> Self {
        let recursion = telemetry.counter("warpgauge.probe.recursion_misses", &[]);
        Self {
            recursion_before: recursion.get(),
            recursion,
            host,
            kernel,
            group,
            loads: driver.loads,
            driver,
            beats: 0,
            plan: Plan::default(),
            sampler: None,
            budget,
            missed: BTreeMap::new(),
            telemetry: telemetry.clone(),
            report,
            said_uncounted: false,
        }
    }

    /// Every [`BEAT`]. Gives whether the driver was loaded again.
    pub async fn beat(&mut self, attached: &mut Attached) -> bool {
        self.beats = self.beats.wrapping_add(1);
        let changed = self.look_at_loads(attached).await;
        match self.sampler.take() {
            Some(sampler) => self.end_sample(sampler, attached),
            None if self.beats.is_multiple_of(SAMPLE_EVERY) => {
                self.sampler = Some(Sampler::begin(mono_now(), &self.host.proc("self"), attached.loaded()));
            }
            None => {}
        }
        if self.beats.is_multiple_of(MISSED_EVERY) {
            let misses = recursion_misses(&self.host.proc("self"), attached.loaded().map(|(_, fd)| fd));
            self.recursion.raise_to(self.recursion_before.saturating_add(misses));
            self.count_missed(attached);
        }
        changed
    }

    /// Whether probes are still to be attached or taken off.
    pub fn has_plans(&self) -> bool {
        !self.plan.0.is_empty()
    }

    /// Attaches the next probe, or takes it off. Blocks for as long as the kernel takes.
    pub fn change_next(&mut self, attached: &mut Attached) {
        match self.plan.0.pop_front() {
            Some(Change::Settle(probe)) => {
                attached.settle(probe, &self.kernel, &self.driver);
            }
            Some(Change::TakeOff(probe)) => attached.take_off(probe, "over_budget"),
            None => return,
        }
        self.report.publish(attached.choices());
    }

    /// Nothing is at work any more; what was refused stays true.
    pub fn retract(&mut self) {
        self.report.retract();
    }

    /// A kprobe event of tracefs comes back with its module by itself, one of perf does not; and another branch may have
    /// other names.
    async fn look_at_loads(&mut self, attached: &mut Attached) -> bool {
        let loads = Loads::look(&self.host);
        if loads == self.loads {
            return false;
        }
        // what is gone is waited for under the names it had
        if loads.modules().is_empty() {
            self.loads = loads;
            tracing::info!("The driver was unloaded; its calls are watched again once it is loaded.");
            return true;
        }
        let host = self.host.clone();
        let look = move || (look_at_driver(&host), Loads::look(&host));
        let Ok((mut driver, after)) = tokio::task::spawn_blocking(look).await else { return false };
        // a module came or went meanwhile: its functions were there for a part of the look, and the next one tells
        if driver.loads != after {
            return false;
        }
        driver.symbols.remember(&self.driver.symbols);
        tracing::info!(modules = ?driver.loads.modules(), "The driver was loaded; its functions are looked up again.");
        (self.loads, self.driver) = (driver.loads, driver);
        self.plan.settle_all(attached.choices().map(|choice| choice.probe), self.budget.shed());
        true
    }

    fn end_sample(&mut self, sampler: Sampler, attached: &Attached) {
        let Some(programs) = sampler.end(mono_now(), &self.host.proc("self"), attached.loaded()) else {
            self.report.budget(false, self.budget.shed());
            if !std::mem::replace(&mut self.said_uncounted, true) {
                tracing::warn!(
                    remedy = UNMEASURED,
                    "What the probes cost cannot be measured: their budget is not held."
                );
            }
            return;
        };
        let costs = by_probe(&programs, &attached.uses());
        self.report.costs(&costs);
        let step = self.budget.judge(&costs);
        self.plan.take(&step);
        match step {
            Step::Keep => {}
            Step::Shed(probes) => {
                let total: f64 = costs.values().map(|cost| cost.cpus).sum();
                let names: Vec<_> = probes.iter().map(|probe| probe.name()).collect();
                tracing::warn!(
                    probes = ?names,
                    cpus = total,
                    budget = self.budget.limit(),
                    remedy = "raise `probes.budget`, or look for what calls the driver so often",
                    "The probes cost more than their budget: some are given up."
                );
            }
            Step::Restore(probe) => {
                tracing::info!(probe = probe.name(), "The probes cost little again: one is put back.");
            }
        }
        self.report.publish(attached.choices());
        self.report.budget(true, self.budget.shed());
    }

    fn count_missed(&mut self, attached: &Attached) {
        let Some(tracefs) = &self.kernel.tracefs else { return };
        let probes: BTreeMap<String, Probe> =
            attached.kprobe_events().map(|(probe, name)| (name, probe)).collect();
        if probes.is_empty() {
            return;
        }
        let profile = fs::read_to_string(tracefs.join("kprobe_profile")).unwrap_or_default();
        for (event, total) in self.group.missed(&profile) {
            let Some(probe) = probes.get(event) else { continue };
            let missed = self.missed.entry(event.to_owned()).or_insert_with(|| Missed {
                counter: self.telemetry.counter("warpgauge.probe.missed", &[("probe", probe.name())]),
                last: 0,
            });
            // an event that was made again counts from 0
            missed.counter.add(total.checked_sub(missed.last).unwrap_or(total));
            missed.last = total;
        }
        self.missed.retain(|event, _| probes.contains_key(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Change::{Settle, TakeOff};

    #[test]
    fn changes_are_made_in_their_order_and_a_reload_settles_what_is_not_given_up() {
        let mut plan = Plan::default();
        plan.take(&Step::Shed(vec![Probe::Locks, Probe::Poll]));
        plan.take(&Step::Keep);
        plan.take(&Step::Restore(Probe::Poll));
        assert_eq!(plan.0, [TakeOff(Probe::Locks), TakeOff(Probe::Poll), Settle(Probe::Poll)]);
        // loaded again before any of it was done: what is put back is settled with the others
        plan.settle_all([Probe::Ioctl, Probe::Locks, Probe::Poll].into_iter(), &[Probe::Locks]);
        let want = [TakeOff(Probe::Locks), TakeOff(Probe::Poll), Settle(Probe::Ioctl), Settle(Probe::Poll)];
        assert_eq!(plan.0, want);
        // and again
        plan.settle_all([Probe::Ioctl].into_iter(), &[]);
        assert_eq!(plan.0, [TakeOff(Probe::Locks), TakeOff(Probe::Poll), Settle(Probe::Ioctl)]);
    }
}
