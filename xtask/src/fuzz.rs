//! `cargo xtask fuzz`: the fuzz targets under libFuzzer, one after the other.
//!
//! In: a target (all of them without one) and how long each runs. Out: success, or the input that broke it.
//! Works with the stable compiler: the counters that libFuzzer needs are a code-generation option, and the sanitizers,
//! which are not, add little where `unsafe` is forbidden. The corpus stays in target/fuzz and grows from run to run.

use anyhow::Context as _;

use crate::{build_ebpf, shell, workspace};

const TARGETS: &[&str] = &[
    "configuration",
    "device_ids",
    "frames",
    "kernel_log",
    "pod_resources",
    "replay",
    "scenario",
    "worker_reports",
];

/// Installs cargo-fuzz into target/, then runs.
pub(crate) fn run(target: Option<&str>, seconds: u64) -> anyhow::Result<()> {
    if let Some(unknown) = target.filter(|target| !TARGETS.contains(target)) {
        anyhow::bail!("no target {unknown}; there are {}", TARGETS.join(", "));
    }
    // the targets are built as a release, which has the kernel programs in it
    build_ebpf::run()?;
    let tools = workspace::path("target/tools");
    let tools = tools.to_str().context("the checkout's path is not UTF-8")?;
    if !workspace::path("target/tools/bin/cargo-fuzz").is_file() {
        let version =
            ["install", "cargo-fuzz", "--version", "0.13.2", "--locked", "--quiet", "--root", tools];
        shell::run(&mut shell::command("cargo", &version))?;
    }
    let cargo_fuzz = format!("{tools}/bin/cargo-fuzz");
    for name in TARGETS.iter().filter(|name| target.is_none_or(|target| target == **name)) {
        let (corpus, found) =
            (workspace::path(&format!("target/fuzz/{name}")), workspace::path("target/fuzz/found/"));
        std::fs::create_dir_all(&corpus)?;
        std::fs::create_dir_all(&found)?;
        let limits = [format!("-max_total_time={seconds}"), format!("-artifact_prefix={}", found.display())];
        let words = ["fuzz", "run", "--fuzz-dir", "tests/fuzz", "--sanitizer", "none", name];
        let mut command = shell::command(&cargo_fuzz, &words);
        // Linking across crates takes minutes for each target and finds nothing more.
        command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        command.arg(&corpus).args(["--", "-rss_limit_mb=1024", "-timeout=5"]).args(limits);
        shell::run(&mut command).with_context(|| {
            format!("{name}: an input that breaks it, if one was found, is in target/fuzz/found")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_of_the_package_is_run() -> anyhow::Result<()> {
        let manifest = std::fs::read_to_string(workspace::path("tests/fuzz/Cargo.toml"))?;
        let bins = manifest.split("[[bin]]").skip(1);
        let mut names: Vec<&str> = bins.filter_map(|bin| bin.split('"').nth(1)).collect();
        names.sort_unstable();
        assert_eq!(names, TARGETS);
        Ok(())
    }
}
