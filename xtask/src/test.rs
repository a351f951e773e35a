//! `cargo xtask test`: every test there is, with all they need built first.
//!
//! In: the checkout. Out: the tests' own output and one closing line.
//! What can go wrong: a test fails, or skips without being allowed to.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};

use crate::vm::{self, Kernel, Prepared};
use crate::{
    build_ebpf, ci::Phases, collector, image, kubelet_judge, manifest_check, prometheus, real_nvml, shell,
    skips, workspace,
};

/// Runs all tests.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut phases = Phases::default();
    let counts = phases_of(&mut phases, false)?;
    println!("{counts}");
    counts.verdict()
}

/// How many tests did what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
    surplus: Vec<String>,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl Counts {
    /// An error when a test failed, none ran, or one skipped that may not.
    pub(crate) fn verdict(&self) -> anyhow::Result<()> {
        if !self.surplus.is_empty() {
            bail!("skipped, which tests/skips.allow does not allow here: {}", self.surplus.join("; "));
        }
        if 0 < self.failed || self.passed == 0 {
            bail!("{self}");
        }
        Ok(())
    }

    /// Tells skips, which have passed as far as libtest knows, from what has passed.
    fn settle(&mut self, skipped: &Path, in_ci: bool) -> anyhow::Result<()> {
        let (skips, surplus) = skips::check(skipped, in_ci)?;
        for skip in &skips {
            println!("skipped: {skip}");
        }
        self.skipped = skips.len() as u64;
        let ran = skips.iter().filter(|skip| !skip.starts_with(NO_VM)).count() as u64;
        self.passed = self.passed.saturating_sub(ran);
        self.surplus = surplus;
        Ok(())
    }
}

/// The phases of testing, timed. In CI only those skips are allowed that may happen there.
pub(crate) fn phases_of(phases: &mut Phases, in_ci: bool) -> anyhow::Result<Counts> {
    phases.time("build-ebpf", 250, build_ebpf::run)?;
    let collector = phases.time("collector", 260, || Ok(collector::build()))?;
    phases.time("kubernetes", 120, || Ok((manifest_check::build(), kubelet_judge::build())))?;
    phases.time("image", 30, || Ok(image::build_if_possible()))?;
    phases.time("build", 360, || {
        shell::run(&mut shell::command("cargo", &["build", "--workspace", "--all-targets", "--quiet"]))
    })?;
    let nvml = phases.time("nvml", 20, || Ok(real_nvml::bring()))?;
    let prometheus = phases.time("prometheus", 50, || match in_ci {
        true => prometheus::bring().map(Some),
        false => Ok(prometheus::bring_if_possible()),
    })?;
    shell::mount_tracefs();
    let brought = [
        ("WARPGAUGE_COLLECTOR", collector),
        ("WARPGAUGE_REAL_NVML", nvml),
        ("WARPGAUGE_PROMETHEUS", prometheus),
    ];
    let skipped = workspace::path("target/skipped-tests");
    let _ = std::fs::remove_file(&skipped); // left by an earlier run, or not there
    let mut counts = phases.time("test", 400, || cargo_test(&brought, &skipped))?;
    let prepared = phases.time("vm", 60, Prepared::bring_if_possible)?;
    for kernel in Kernel::ALL {
        phases.time(kernel.phase(), 140, || in_vm(kernel, prepared.as_ref(), &skipped, &mut counts))?;
    }
    counts.settle(&skipped, in_ci)?;
    Ok(counts)
}

/// What the skip of all tests in a kernel's virtual machine begins with: no test has run there.
const NO_VM: &str = "vm@";

/// Adds the tests in a virtual machine.
fn in_vm(
    kernel: Kernel,
    prepared: Option<&Prepared>,
    skipped: &Path,
    counts: &mut Counts,
) -> anyhow::Result<()> {
    let outcome = prepared.map(|prepared| prepared.test(kernel)).transpose()?.flatten();
    let skips = match outcome {
        Some(outcome) => {
            counts.passed += outcome.passed;
            counts.failed += outcome.failed;
            outcome.skips
        }
        None => vec![format!("{NO_VM}{} vm", kernel.name())],
    };
    let mut record = std::fs::File::options().create(true).append(true).open(skipped)?;
    skips.iter().try_for_each(|skip| writeln!(record, "{skip}")).context("the record of skips")
}

/// `brought` are things that some tests need, by the variable that names them.
fn cargo_test(brought: &[(&str, Option<PathBuf>)], skipped: &Path) -> anyhow::Result<Counts> {
    let mut command = shell::command("cargo", &["test", "--workspace", "--no-fail-fast"]);
    // these have a turn of their own
    command.args(["--", "--skip", vm::MODULE]);
    command.env("WARPGAUGE_SKIPPED", skipped).env("WARPGAUGE_BUILT", "1").stdout(Stdio::piped());
    for (name, path) in brought {
        if let Some(path) = path {
            command.env(name, path);
        }
    }
    let mut child = command.spawn().context("cannot start cargo test")?;
    let mut counts = Counts::default();
    let mut ignored = 0;
    for line in BufReader::new(child.stdout.take().context("no output of cargo test")?).lines() {
        let line = line?;
        println!("{line}");
        if let Some(result) = line.strip_prefix("test result: ") {
            counts.passed += number_before(result, "passed");
            counts.failed += number_before(result, "failed");
            ignored += number_before(result, "ignored");
        }
    }
    let status = child.wait()?;
    if 0 < ignored {
        bail!("{ignored} tests are ignored; a test that may not run says what it needs instead");
    }
    if !status.success() && counts.failed == 0 {
        bail!("cargo test: {status}");
    }
    Ok(counts)
}

/// The number in front of a word, as in `ok. 12 passed; 0 failed`.
fn number_before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split([' ', ';']).filter(|w| !w.is_empty()).collect();
    let number = |pair: &[&str]| (pair.get(1) == Some(&word)).then(|| pair.first()?.parse().ok()).flatten();
    words.windows(2).find_map(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtests_closing_line_is_read() {
        let line = "FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        let read = ["passed", "failed", "ignored", "nothing"].map(|word| number_before(line, word));
        assert_eq!(read, [12, 3, 1, 0]);
    }
}
