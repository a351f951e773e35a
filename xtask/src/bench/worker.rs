//! `cargo xtask bench worker`: what measured values cost, in processor time, memory and instructions.
//!
//! In: the checkout. Out: a report for people; with `--check` only the instructions, and an error where a stage needs
//! more than a tenth above `tests/fixtures/bench/instructions.csv`; `--record` writes that file anew.
//! Times are of this machine and moment, instructions are of the code and the compiler: only these can be a gate.
//! What can go wrong: no valgrind, and the instructions cannot be counted. Not part of `ci`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};

use super::{PACKAGES, program};
use crate::{build_ebpf, shell, workspace};

/// Name and devices; each has 60 values a second.
const SIZES: [(&str, u64); 2] = [("gpu8", 8), ("mig56", 56)];
const FIELDS: u64 = 60;
/// In the order of the way; a run goes up to one of them.
const STAGES: [&str; 7] = ["frame", "decode", "intake", "correlate", "book", "collect", "encode"];
/// Rounds of the shorter run, a multiple of those between two collections; the longer one has twice as many.
const ROUNDS: u64 = 20;
/// By how much a stage may be above what was recorded. Small stages are allowed a few instructions.
const TOLERANCE: f64 = 1.10;
const SLACK: f64 = 5.0;
const RECORDED: &str = "tests/fixtures/bench/instructions.csv";

/// What is asked.
#[derive(clap::Args)]
pub(crate) struct Asked {
    /// Seconds of each live measurement
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(30..))]
    seconds: u64,
    /// Only the instructions, compared with the recorded ones
    #[arg(long)]
    check: bool,
    /// Only the instructions, which become the recorded ones
    #[arg(long, conflicts_with = "check")]
    record: bool,
}

/// Builds, measures, tells.
pub(crate) fn run(asked: &Asked) -> anyhow::Result<()> {
    let instructions_only = asked.check || asked.record;
    build(instructions_only)?;
    if !instructions_only {
        shell::mount_tracefs();
        for case in ["idle", "gpu8", "mig56"] {
            let program = program("bench-worker");
            shell::run(&mut shell::command(&program, &[case, &asked.seconds.to_string()]))?;
        }
    }
    let counted = count()?;
    println!("{}", table(&counted));
    if asked.record {
        std::fs::write(workspace::path(RECORDED), written(&counted))?;
        return Ok(());
    }
    let recorded = std::fs::read_to_string(workspace::path(RECORDED)).context(RECORDED)?;
    let worse = worse(&counted, &read(&recorded)?);
    worse.iter().for_each(|line| println!("{line}"));
    if asked.check && !worse.is_empty() {
        bail!("{} stages need more than 10 % above {RECORDED}; if that is meant, --record", worse.len());
    }
    Ok(())
}

fn build(instructions_only: bool) -> anyhow::Result<()> {
    let mut words = vec!["build", "--release", "--quiet", "--bin", "bench-samples"];
    words.extend(PACKAGES);
    if !instructions_only {
        if let Err(e) = build_ebpf::run() {
            println!("The kernel programs cannot be built here, so it is measured without probes: {e:#}");
        }
        words.extend(["--lib", "--bin", "warpgauge", "--bin", "otlp-receiver", "--bin", "bench-worker"]);
    }
    println!("Building with the release profile, which takes some minutes the first time.");
    shell::run(&mut shell::command("cargo", &words))
}

/// Instructions per sample by size and stage.
type Counted = BTreeMap<(String, String), f64>;

fn count() -> anyhow::Result<Counted> {
    if shell::which("valgrind").is_none() {
        bail!("no valgrind on PATH, which counts the instructions: install the package `valgrind`");
    }
    let mut counted = Counted::new();
    for (size, devices) in SIZES {
        let mut before = 0.0;
        for stage in STAGES {
            let (short, long) = (callgrind(devices, ROUNDS, stage)?, callgrind(devices, 2 * ROUNDS, stage)?);
            let steady = long.checked_sub(short).context("more rounds needed fewer instructions")?;
            let up_to = steady as f64 / (devices * FIELDS * ROUNDS) as f64;
            counted.insert((size.to_owned(), stage.to_owned()), up_to - before);
            before = up_to;
        }
    }
    Ok(counted)
}

/// Instructions of a whole run.
fn callgrind(devices: u64, rounds: u64, stage: &str) -> anyhow::Result<u64> {
    let mut command = shell::command("valgrind", &["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(program("bench-samples")).args([&devices.to_string(), &rounds.to_string(), stage]);
    let done = command.output().context("valgrind")?;
    let said = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() {
        bail!("bench-samples under valgrind: {}\n{said}", done.status);
    }
    let number = said.lines().find_map(|line| line.split_once("Collected :"));
    let number = number.with_context(|| format!("no count in what callgrind said:\n{said}"))?.1;
    number.trim().parse().with_context(|| format!("{number}: no number"))
}

fn table(counted: &Counted) -> String {
    let mut text = format!("instructions per sample {:>10} {:>10}\n", SIZES[0].0, SIZES[1].0);
    let of =
        |size: &str, stage: &str| counted.get(&(size.to_owned(), stage.to_owned())).copied().unwrap_or(0.0);
    let mut row = |name: &str, of: &dyn Fn(&str) -> f64| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<21} {:>10.1} {:>10.1}", of(SIZES[0].0), of(SIZES[1].0));
    };
    for stage in STAGES {
        row(stage, &|size| of(size, stage));
    }
    // The first stage is the worker's.
    row("agent, all stages", &|size| STAGES.iter().skip(1).map(|stage| of(size, stage)).sum());
    text
}

fn written(counted: &Counted) -> String {
    let mut text = "size,stage,instructions_per_sample\n".to_owned();
    for ((size, stage), n) in counted {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{size},{stage},{n:.1}");
    }
    text
}

fn read(text: &str) -> anyhow::Result<Counted> {
    let line = |line: &str| {
        let mut cells = line.split(',');
        let mut next =
            || cells.next().with_context(|| format!("{RECORDED}: {line}: three cells are expected"));
        let key = (next()?.to_owned(), next()?.to_owned());
        let number = next()?.parse().with_context(|| format!("{RECORDED}: {line}: no number"))?;
        Ok((key, number))
    };
    text.lines().skip(1).map(line).collect()
}

/// Stages that need too much more than they did, or were not recorded.
fn worse(counted: &Counted, recorded: &Counted) -> Vec<String> {
    let of = |((size, stage), now): (&(String, String), &f64)| {
        let Some(then) = recorded.get(&(size.clone(), stage.clone())) else {
            return Some(format!("{size} {stage}: not recorded"));
        };
        let most = (then * TOLERANCE).max(then + SLACK);
        (*now > most).then(|| format!("{size} {stage}: {now:.1} instructions per sample; {then:.1} recorded"))
    };
    counted.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(n: f64) -> Counted {
        let of = |(size, _): (&str, u64)| STAGES.map(|stage| ((size.to_owned(), stage.to_owned()), n));
        SIZES.into_iter().flat_map(of).collect()
    }

    #[test]
    fn a_tenth_more_is_let_through_and_no_more() {
        let recorded = read(&written(&counted(200.0))).expect("what was written can be read");
        assert_eq!(recorded, counted(200.0));
        assert_eq!(worse(&counted(219.0), &recorded), Vec::<String>::new());
        assert_eq!(worse(&counted(221.0), &recorded).len(), 14);
        let mut one = counted(200.0);
        one.insert(("gpu8".to_owned(), "intake".to_owned()), 230.0);
        let want = ["gpu8 intake: 230.0 instructions per sample; 200.0 recorded"];
        assert_eq!(worse(&one, &recorded), want);
        assert_eq!(worse(&counted(1.0), &Counted::new()).len(), 14, "what nobody recorded is no success");
        assert!(read("size,stage,n\ngpu8,intake,x").is_err());
    }

    #[test]
    fn what_is_checked_in_has_every_stage() {
        let recorded =
            read(&std::fs::read_to_string(workspace::path(RECORDED)).expect(RECORDED)).expect(RECORDED);
        assert!(recorded.keys().eq(counted(0.0).keys()), "{recorded:?}");
    }
}
