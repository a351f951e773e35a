//! What became of each probe, as the agent's own series and log lines.
//!
//! In: choices, costs. Out: `warpgauge.probe.*`; a line in the log for what has changed; for who asks, what is given up.
//! What can go wrong: nothing.

use std::collections::BTreeMap;

use super::cost::Cost;
use super::refusal::remedy;
use super::tactics::{Choice, Probe};
use crate::sources::worker::board::{Board, Standing};
use crate::telemetry::{Gauge, Telemetry};

/// What helps where the kernel does not count for the agent.
pub const UNMEASURED: &str = "give the agent CAP_SYS_ADMIN, or set kernel.bpf_stats_enabled to 1";

/// Says what is new.
pub struct Report {
    telemetry: Telemetry,
    board: Board,
    said: BTreeMap<Probe, Choice>,
    costs: BTreeMap<Option<Probe>, (Gauge, Gauge)>,
}

impl Report {
    /// Nothing was said yet.
    pub fn new(telemetry: &Telemetry, board: &Board) -> Self {
        let (said, costs) = (BTreeMap::new(), BTreeMap::new());
        Self { telemetry: telemetry.clone(), board: board.clone(), said, costs }
    }

    /// What is at work and what is not.
    pub fn publish<'a>(&mut self, choices: impl Iterator<Item = &'a Choice>) {
        for choice in choices {
            if self.said.get(&choice.probe) == Some(choice) {
                continue;
            }
            if let Some(former) = self.said.insert(choice.probe, choice.clone()) {
                self.set(&former, 0, 0);
            }
            self.set(choice, 1, 1);
            say(choice);
        }
    }

    /// What each costs.
    pub fn costs(&mut self, costs: &BTreeMap<Option<Probe>, Cost>) {
        for (probe, cost) in costs {
            let (cpus, runs) = self.costs.entry(*probe).or_insert_with(|| {
                let labels = [("probe", probe.map_or("exit", Probe::name))];
                let gauge = |name| self.telemetry.gauge(name, &labels);
                (gauge("warpgauge.probe.cpu.utilization"), gauge("warpgauge.probe.run.rate"))
            });
            // a gauge holds whole numbers: a utilization is in billionths
            cpus.set((cost.cpus * 1e9) as u64);
            runs.set(cost.runs.round() as u64);
        }
    }

    /// Whether the budget is held, and which probes are given up for it. `measured`: it can be.
    pub fn budget(&self, measured: bool, shed: &[Probe]) {
        for probe in self.said.keys() {
            let gauge = self.telemetry.gauge("warpgauge.probe.shed", &[("probe", probe.name())]);
            gauge.set(u64::from(shed.contains(probe)));
        }
        let names: Vec<_> = shed.iter().map(|probe| probe.name()).collect();
        let (reason, what) = match (measured, &names[..]) {
            (false, _) => ("not_permitted", "what the probes cost cannot be measured".to_owned()),
            (true, []) => ("", "the probes cost less than it".to_owned()),
            (true, names) => ("over_budget", format!("given up for their cost: {}", names.join(", "))),
        };
        self.board.put(Standing {
            source: "probes".to_owned(),
            up: reason.is_empty(),
            reason: reason.to_owned(),
            what,
            remedy: if measured { remedy(reason) } else { UNMEASURED }.to_owned(),
            library: String::new(),
        });
    }

    /// Nothing is at work any more; what was refused stays true.
    pub fn retract(&mut self) {
        self.said.values().for_each(|choice| self.set(choice, 0, 1));
        let gauges = self.costs.values();
        gauges.for_each(|(cpus, runs)| {
            cpus.set(0);
            runs.set(0);
        });
    }

    fn set(&self, choice: &Choice, works: u64, refused: u64) {
        let probe = ("probe", choice.probe.name());
        if let Some(tactic) = choice.tactic {
            self.telemetry.gauge("warpgauge.probe.info", &[probe, ("tactic", tactic.name())]).set(works);
        }
        for refusal in &choice.refused {
            let labels = [probe, ("tactic", refusal.tactic.name()), ("reason", refusal.reason)];
            self.telemetry.gauge("warpgauge.probe.refused", &labels).set(refused);
        }
    }
}

fn say(choice: &Choice) {
    let probe = choice.probe.name();
    for refusal in choice.refused.iter().filter(|refusal| !refusal.text.is_empty()) {
        let (tactic, reason) = (refusal.tactic.name(), refusal.reason);
        if reason == "notrace" {
            // as the driver's vendor builds it: nothing is wrong on this node
            tracing::info!(probe, tactic, reason, error = refusal.text, "a way to attach was refused");
            continue;
        }
        tracing::warn!(
            probe,
            tactic,
            reason,
            error = refusal.text,
            remedy = refusal.remedy(),
            "a way to attach was refused"
        );
    }
    match choice.tactic {
        Some(tactic) => {
            let tactic = tactic.name();
            match choice.probe {
                Probe::Scheduler => tracing::info!(probe, tactic, "probe can be attached on demand"),
                _ => tracing::info!(probe, tactic, "probe is at work"),
            }
            if !choice.without.is_empty() {
                tracing::debug!(probe, without = ?choice.without, "this driver lacks some of the probe's functions");
            }
        }
        None => {
            let refused: Vec<_> = choice.refused.iter().map(|r| (r.tactic.name(), r.reason)).collect();
            tracing::info!(probe, ?refused, instead = choice.probe.instead(), "probe is off");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::probes::refusal::Refusal;
    use crate::sources::probes::tactics::Tactic;

    fn series(telemetry: &Telemetry) -> Vec<String> {
        let line = |(name, attributes, value): (&str, Vec<(&str, String)>, u64)| {
            let values: Vec<_> = attributes.iter().map(|(_, value)| value.as_str()).collect();
            format!("{name} {} {value}", values.join("/"))
        };
        telemetry.read().into_iter().map(line).collect()
    }

    #[test]
    fn a_probe_that_is_attached_another_way_is_counted_once() {
        let telemetry = Telemetry::default();
        let mut report = Report::new(&telemetry, &Board::default());
        let mut choice = Choice {
            probe: Probe::Ioctl,
            tactic: Some(Tactic::TracefsKprobe),
            refused: Vec::new(),
            without: Vec::new(),
        };
        report.publish([&choice].into_iter());
        assert_eq!(series(&telemetry), ["warpgauge.probe.info ioctl/tracefs_kprobe 1"]);
        choice.refused.push(Refusal::by_facts(Tactic::TracefsKprobe, "no_symbol"));
        choice.tactic = Some(Tactic::SyscallTracepoint);
        report.publish([&choice].into_iter());
        let info =
            ["warpgauge.probe.info ioctl/syscall_tracepoint", "warpgauge.probe.info ioctl/tracefs_kprobe"];
        let refused = "warpgauge.probe.refused ioctl/tracefs_kprobe/no_symbol 1".to_owned();
        assert_eq!(series(&telemetry), [format!("{} 1", info[0]), format!("{} 0", info[1]), refused.clone()]);
        report.retract();
        assert_eq!(series(&telemetry), [format!("{} 0", info[0]), format!("{} 0", info[1]), refused]);
    }

    #[test]
    fn costs_and_what_is_given_up_are_told() {
        let telemetry = Telemetry::default();
        let board = Board::default();
        let mut report = Report::new(&telemetry, &board);
        let choice = Choice { probe: Probe::Locks, tactic: None, refused: Vec::new(), without: Vec::new() };
        report.publish([&choice].into_iter());
        let cost = Cost { cpus: 0.0125, runs: 4999.6 };
        report.costs(&[(Some(Probe::Locks), cost), (None, Cost::default())].into());
        report.budget(true, &[Probe::Locks]);
        let want = [
            "warpgauge.probe.cpu.utilization exit 0",
            "warpgauge.probe.cpu.utilization locks 12500000",
            "warpgauge.probe.run.rate exit 0",
            "warpgauge.probe.run.rate locks 5000",
            "warpgauge.probe.shed locks 1",
        ];
        assert_eq!(series(&telemetry), want);
        let said = || board.read().pop().map(|standing| (standing.up, standing.reason, standing.what));
        let what = "given up for their cost: locks".to_owned();
        assert_eq!(said(), Some((false, "over_budget".to_owned(), what)));
        report.budget(true, &[]);
        assert_eq!(series(&telemetry)[4], "warpgauge.probe.shed locks 0");
        assert_eq!(said().map(|(up, ..)| up), Some(true));
        report.budget(false, &[]);
        assert_eq!(said().map(|(up, reason, _)| (up, reason)), Some((false, "not_permitted".to_owned())));
    }
}
