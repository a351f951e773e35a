//! The configuration file, as written → as checked.
//!
//! In: YAML. Out: changes to [`Config`], and every problem as `FILE:LINE: message`.
//! Unknown keys are problems: a misspelt one must not be passed over in silence.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::model::operation;

use super::worker_file::RawWorker;
use super::{CgroupChoice, Config, duration, facility, limits};

/// Largest file read; a real one has a few hundred bytes.
const BYTES_MAX: u64 = 1024 * 1024;

/// Reads `path` and puts what it says over `config`.
pub fn apply(path: &Path, config: &mut Config, problems: &mut Vec<String>) {
    let name = path.display();
    match read_regular(path) {
        Err(e) => problems.push(format!("{name}: cannot be read: {e}")),
        Ok(text) => apply_text(&name.to_string(), &text, config, problems),
    }
}

/// A plain file of bounded size: a device or a pipe would never end, or never begin.
fn read_regular(path: &Path) -> io::Result<String> {
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return wrong("it is not a regular file".to_owned());
    }
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if BYTES_MAX < text.len() as u64 {
        return wrong(format!("it has more than {BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// Puts what the text of the file `name` says over `config`; every problem begins with `NAME:LINE: `.
pub fn apply_text(name: &str, text: &str, config: &mut Config, problems: &mut Vec<String>) {
    if text.trim().is_empty() {
        return;
    }
    match serde_saphyr::from_str::<RawConfig>(text) {
        Ok(raw) => raw.check(config, &mut Problems { name, list: problems }),
        Err(e) => {
            let line = e.location().map_or(1, |location| location.line());
            let message = e.without_snippet().to_string();
            problems.push(format!("{name}:{line}: {}", message.lines().next().unwrap_or("not valid YAML")));
        }
    }
}

pub(super) struct Problems<'a> {
    name: &'a str,
    list: &'a mut Vec<String>,
}

impl Problems<'_> {
    pub(super) fn at<T>(&mut self, line: u64, key: &str, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|e| self.list.push(format!("{}:{line}: {key}: {e}", self.name))).ok()
    }

    pub(super) fn time(
        &mut self,
        key: &str,
        text: &Spanned<String>,
        (least, most): (Duration, Duration),
    ) -> Option<Duration> {
        self.at(text.referenced.line(), key, duration::parse_within(&text.value, least, most))
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawConfig {
    host: RawHost,
    state_dir: Option<PathBuf>,
    run_dir: Option<PathBuf>,
    kernel_log: RawKernelLog,
    probes: RawProbes,
    worker: RawWorker,
    stalls: RawStalls,
    export: RawExport,
    host_values: RawHostValues,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawHost {
    proc: Option<PathBuf>,
    sys: Option<PathBuf>,
    dev: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawKernelLog {
    enabled: Option<bool>,
    facilities: Option<Vec<Spanned<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawProbes {
    enabled: Option<bool>,
    majors: Option<Spanned<Vec<u32>>>,
    open_prefix: Option<Spanned<String>>,
    cgroup: Option<Spanned<String>>,
    scan_interval: Option<Spanned<String>>,
    read_interval: Option<Spanned<String>>,
    budget: Option<Spanned<f64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawStalls {
    call_threshold: Option<Spanned<String>>,
    call_thresholds: BTreeMap<String, Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawExport {
    endpoint: Option<Spanned<String>>,
    console: Option<bool>,
    metric_interval: Option<Spanned<String>>,
    own_logs: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawHostValues {
    enabled: Option<bool>,
    interval: Option<Spanned<String>>,
}

impl RawConfig {
    fn check(self, config: &mut Config, problems: &mut Problems<'_>) {
        set(&mut config.host.proc, self.host.proc);
        set(&mut config.host.sys, self.host.sys);
        set(&mut config.host.dev, self.host.dev);
        if let Some(dir) = self.state_dir {
            config.state_dir = (dir.as_os_str() != "none").then_some(dir);
        }
        if let Some(dir) = self.run_dir {
            config.run_dir = (dir.as_os_str() != "none").then_some(dir);
        }
        set(&mut config.kernel_log.enabled, self.kernel_log.enabled);
        if let Some(names) = self.kernel_log.facilities {
            let parse = |name: Spanned<String>| {
                problems.at(name.referenced.line(), "kernel_log.facilities", facility::parse(&name.value))
            };
            config.kernel_log.facilities = names.into_iter().filter_map(parse).collect();
        }
        self.probes.check(config, problems);
        self.worker.check(&mut config.worker, problems);
        if let Some(text) = &self.stalls.call_threshold {
            set(
                &mut config.correlate.call_threshold,
                problems.time("stalls.call_threshold", text, limits::THRESHOLD),
            );
        }
        for (operation, text) in self.stalls.call_thresholds {
            let threshold = problems.time("stalls.call_thresholds", &text, limits::THRESHOLD);
            if !operation::is_name(&operation) {
                let known = "must be an operation such as NV_ESC_RM_CONTROL, or a command such as 0x5607";
                problems.at::<()>(
                    text.referenced.line(),
                    "stalls.call_thresholds",
                    Err(format!("{operation}: {known}")),
                );
            }
            config.correlate.call_thresholds.extend(threshold.map(|t| (operation, t)));
        }
        self.export.check(config, problems);
        set(&mut config.host_values.enabled, self.host_values.enabled);
        if let Some(text) = &self.host_values.interval {
            let interval = problems.time("host_values.interval", text, limits::HOST_VALUES);
            set(&mut config.host_values.interval, interval);
        }
    }
}

impl RawProbes {
    fn check(self, config: &mut Config, problems: &mut Problems<'_>) {
        set(&mut config.probes.enabled, self.enabled);
        if let Some(majors) = self.majors {
            let checked = super::check_majors(&majors.value).map(|()| majors.value);
            config.probes.majors = problems.at(majors.referenced.line(), "probes.majors", checked);
        }
        if let Some(prefix) = self.open_prefix {
            let checked = super::check_open_prefix(&prefix.value).map(|()| prefix.value);
            set(
                &mut config.probes.open_prefix,
                problems.at(prefix.referenced.line(), "probes.open_prefix", checked),
            );
        }
        if let Some(cgroup) = self.cgroup {
            let checked = match cgroup.value.as_str() {
                "auto" => Ok(CgroupChoice::Auto),
                "v1" => Ok(CgroupChoice::V1),
                "v2" => Ok(CgroupChoice::V2),
                other => Err(format!("{other}: must be auto, v1 or v2")),
            };
            set(&mut config.probes.cgroup, problems.at(cgroup.referenced.line(), "probes.cgroup", checked));
        }
        if let Some(text) = &self.scan_interval {
            set(&mut config.probes.scan_interval, problems.time("probes.scan_interval", text, limits::SCAN));
        }
        if let Some(text) = &self.read_interval {
            set(&mut config.probes.read_interval, problems.time("probes.read_interval", text, limits::READ));
        }
        if let Some(cpus) = self.budget {
            let checked = super::check_budget(cpus.value).map(Some);
            set(&mut config.probes.budget, problems.at(cpus.referenced.line(), "probes.budget", checked));
        }
    }
}

impl RawExport {
    fn check(self, config: &mut Config, problems: &mut Problems<'_>) {
        if let Some(endpoint) = self.endpoint {
            let checked = super::otel_env::endpoint(&endpoint.value);
            if let Some(url) = problems.at(endpoint.referenced.line(), "export.endpoint", checked) {
                config.export.otlp = Some(super::OtlpConfig::to(url));
            }
        }
        set(&mut config.export.console, self.console);
        if let Some(text) = &self.metric_interval {
            set(
                &mut config.export.metric_interval,
                problems.time("export.metric_interval", text, limits::METRIC_INTERVAL),
            );
        }
        set(&mut config.export.own_logs, self.own_logs);
    }
}

pub(super) fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Config, Vec<String>) {
        let (mut config, mut problems) = (Config::default(), Vec::new());
        apply_text("warpgauge.yaml", text, &mut config, &mut problems);
        (config, problems)
    }

    #[test]
    fn every_key_arrives() {
        let (config, problems) = read(
            "host: {proc: /host/proc}\nstate_dir: none\nkernel_log: {facilities: [kernel, user]}\n\
             probes: {majors: [4], cgroup: v1, scan_interval: 100ms, budget: 0.05}\n\
             stalls:\n  call_threshold: 2s\n  call_thresholds: {NV_ESC_RM_CONTROL: 5s}\n\
             export: {endpoint: 'http://127.0.0.1:4317', metric_interval: 1s}\n\
             host_values: {enabled: false, interval: 30s}\n",
        );
        assert_eq!(problems, [] as [String; 0]);
        assert_eq!((config.host.proc, config.state_dir), (PathBuf::from("/host/proc"), None));
        assert_eq!(config.kernel_log.facilities, [0, 1]);
        assert_eq!((config.probes.majors, config.probes.cgroup), (Some(vec![4]), CgroupChoice::V1));
        assert_eq!(config.probes.budget, Some(0.05));
        assert_eq!(config.correlate.call_thresholds["NV_ESC_RM_CONTROL"], Duration::from_secs(5));
        assert_eq!(config.export.otlp.map(|o| o.endpoint).as_deref(), Some("http://127.0.0.1:4317"));
        assert_eq!((config.host_values.enabled, config.host_values.interval.as_secs()), (false, 30));
    }

    /// The shipped example names every default; the commented lines are the ones without.
    #[test]
    fn the_shipped_file_is_the_default() {
        let (config, problems) = read(include_str!("../../../deploy/warpgauge.yaml"));
        assert_eq!((config, problems), (Config::default(), vec![]));
    }

    #[test]
    fn every_problem_is_named_with_its_line() {
        let (_, problems) = read(
            "kernel_log:\n  facilities: [kern]\nprobes:\n  cgroup: v3\n  scan_interval: 1h\n  budget: 0\nexport:\n  endpoint: nowhere\n\
             host_values: {interval: 1ms}\n",
        );
        let starts: Vec<&str> =
            problems.iter().filter_map(|p| p.rsplit_once(": must").map(|(s, _)| s)).collect();
        assert_eq!(
            starts,
            [
                "warpgauge.yaml:2: kernel_log.facilities: kern",
                "warpgauge.yaml:4: probes.cgroup: v3",
                "warpgauge.yaml:5: probes.scan_interval: 1h",
                "warpgauge.yaml:6: probes.budget: 0",
                "warpgauge.yaml:8: export.endpoint: nowhere",
                "warpgauge.yaml:9: host_values.interval: 1ms",
            ],
            "{problems:?}"
        );
    }

    #[test]
    fn a_misspelt_key_and_broken_yaml_are_one_problem_each() {
        for path in ["/dev/zero", "/dev", "/proc/self/mem"] {
            let (mut config, mut problems) = (Config::default(), Vec::new());
            apply(Path::new(path), &mut config, &mut problems);
            assert_eq!(problems.len(), 1, "{path}: {problems:?}");
        }
        for (text, line) in
            [("\nprobe:\n  enabled: true\n", 2), ("probes: [", 1), ("probes:\n  enabled: perhaps\n", 2)]
        {
            let (config, problems) = read(text);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].starts_with(&format!("warpgauge.yaml:{line}: ")), "{problems:?}");
            assert_eq!(config, Config::default(), "nothing of a refused file is used");
        }
    }
}
