//! `cargo xtask ci`: exactly what CI runs, with seconds and budget of each phase.
//!
//! In: the checkout. Out: a table phase / seconds / budget, and one closing line of the tests.
//! What can go wrong: a phase fails, which ends the run; or one is over its budget, which is shown.

use std::time::{Duration, Instant};

use crate::{shell, test, tidy};

/// The budget of the whole run on two cores.
const BUDGET: Duration = Duration::from_secs(38 * 60);

/// Phases that were run so far.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    rows: Vec<(&'static str, Duration, Duration)>,
}

impl Phases {
    /// Runs a phase and keeps how long it took.
    pub(crate) fn time<T>(
        &mut self,
        name: &'static str,
        budget_s: u64,
        run: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        println!("==> {name}");
        let began = Instant::now();
        let result = run();
        self.rows.push((name, began.elapsed(), Duration::from_secs(budget_s)));
        result
    }

    fn print(&self) {
        println!("{:<12} {:>8} {:>8}", "phase", "seconds", "budget");
        for (name, took, budget) in &self.rows {
            let over = if took > budget { "  over" } else { "" };
            println!("{name:<12} {:>8.1} {:>8}{over}", took.as_secs_f64(), budget.as_secs());
        }
        let took: Duration = self.rows.iter().map(|row| row.1).sum();
        let budget: Duration = self.rows.iter().map(|row| row.2).sum();
        println!("{:<12} {:>8.1} {:>8}", "all", took.as_secs_f64(), budget.as_secs());
        if BUDGET < budget {
            println!("The budgets add up to more than {} s.", BUDGET.as_secs());
        }
    }
}

/// Runs every phase.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut phases = Phases::default();
    let counts = all(&mut phases);
    phases.print();
    let counts = counts?;
    println!("{counts}");
    counts.verdict()
}

fn all(phases: &mut Phases) -> anyhow::Result<test::Counts> {
    phases.time("fmt", 10, || shell::run(&mut shell::command("cargo", &["fmt", "--all", "--check"])))?;
    phases.time("tidy", 10, tidy::run)?;
    phases.time("clippy", 290, || {
        let lints = ["--", "-D", "warnings"];
        shell::run(&mut shell::command(
            "cargo",
            &[&["clippy", "--workspace", "--all-targets", "--all-features", "--quiet"], &lints[..]].concat(),
        ))
    })?;
    test::phases_of(phases, true)
}
