//! The configuration file, as written → as checked.
//!
//! In: YAML. Out: changes to [`Config`], and every problem as `FILE:LINE: message`.
//! Unknown keys are problems: a misspelt one must not be passed over in silence.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::operation;

use super::document::{self, Problems, Section};
use super::{CgroupChoice, Config, duration, facility, kubelet, limits, worker_file};

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

/// Puts what the text of the file `name` says over `config`; every problem begins with `NAME:LINE: `. Nothing of a
/// file with problems is used.
pub fn apply_text(name: &str, text: &str, config: &mut Config, problems: &mut Vec<String>) {
    if text.trim().is_empty() {
        return;
    }
    let (mut found, mut checked) = (Problems::default(), config.clone());
    match document::read(text, &mut found) {
        Ok(root) => check(root, &mut checked, &mut found),
        Err((line, what)) => return problems.push(format!("{name}:{line}: {what}")),
    }
    let found = found.into_texts(name);
    if found.is_empty() {
        *config = checked;
    }
    problems.extend(found);
}

/// A time within bounds.
pub(super) fn time(
    section: &mut Section,
    key: &'static str,
    (least, most): (Duration, Duration),
    problems: &mut Problems,
) -> Option<Duration> {
    section.parsed(key, problems, |text| duration::parse_within(text, least, most))
}

/// A path; any text may be one.
pub(super) fn path(section: &mut Section, key: &'static str, problems: &mut Problems) -> Option<PathBuf> {
    section.text(key, problems).map(|text| text.value.into())
}

fn check(mut root: Section, config: &mut Config, problems: &mut Problems) {
    let mut host = root.section("host", problems);
    set(&mut config.host.proc, path(&mut host, "proc", problems));
    set(&mut config.host.sys, path(&mut host, "sys", problems));
    set(&mut config.host.dev, path(&mut host, "dev", problems));
    set(&mut config.host.var_log, path(&mut host, "var_log", problems));
    host.end(problems);
    let directory = |dir: PathBuf| (dir.as_os_str() != "none").then_some(dir);
    set(&mut config.state_dir, path(&mut root, "state_dir", problems).map(directory));
    set(&mut config.run_dir, path(&mut root, "run_dir", problems).map(directory));
    kernel_log(root.section("kernel_log", problems), config, problems);
    probes(root.section("probes", problems), config, problems);
    worker_file::check(root.section("worker", problems), &mut config.worker, problems);
    stalls(root.section("stalls", problems), config, problems);
    export(root.section("export", problems), config, problems);
    let mut values = root.section("host_values", problems);
    set(&mut config.host_values.enabled, values.switch("enabled", problems));
    set(&mut config.host_values.interval, time(&mut values, "interval", limits::HOST_VALUES, problems));
    values.end(problems);
    kubelet::check(root.section("kubelet", problems), &mut config.kubelet, problems);
    let mut jobs = root.section("hpc_jobs", problems);
    set(&mut config.hpc_jobs.directory, path(&mut jobs, "directory", problems).map(directory));
    set(&mut config.hpc_jobs.interval, time(&mut jobs, "interval", limits::HPC_JOBS, problems));
    jobs.end(problems);
    root.end(problems);
}

fn kernel_log(mut section: Section, config: &mut Config, problems: &mut Problems) {
    set(&mut config.kernel_log.enabled, section.switch("enabled", problems));
    if let Some((_, names)) = section.texts("facilities", problems) {
        let mut parse = |name: document::Text| {
            let parsed = facility::parse(&name.value);
            parsed.map_err(|problem| problems.add(name.line, &name.path, problem)).ok()
        };
        config.kernel_log.facilities = names.into_iter().filter_map(&mut parse).collect();
    }
    section.end(problems);
}

fn probes(mut section: Section, config: &mut Config, problems: &mut Problems) {
    let probes = &mut config.probes;
    set(&mut probes.enabled, section.switch("enabled", problems));
    if let Some((line, texts)) = section.texts("majors", problems) {
        if let Err(problem) = super::check_number_of_majors(texts.len()) {
            problems.add(line, "probes.majors", problem);
        }
        let mut parse = |text: document::Text| {
            let major = super::parse_major(&text.value);
            major.map_err(|problem| problems.add(text.line, &text.path, problem)).ok()
        };
        probes.majors = Some(texts.into_iter().filter_map(&mut parse).collect());
    }
    let prefix = section
        .parsed("open_prefix", problems, |text| super::check_open_prefix(text).map(|()| text.to_owned()));
    set(&mut probes.open_prefix, prefix);
    let cgroup = section.parsed("cgroup", problems, |text| match text {
        "auto" => Ok(CgroupChoice::Auto),
        "v1" => Ok(CgroupChoice::V1),
        "v2" => Ok(CgroupChoice::V2),
        other => Err(format!("{other}: must be auto, v1 or v2")),
    });
    set(&mut probes.cgroup, cgroup);
    set(&mut probes.scan_interval, time(&mut section, "scan_interval", limits::SCAN, problems));
    set(&mut probes.read_interval, time(&mut section, "read_interval", limits::READ, problems));
    let budget = section.parsed("budget", problems, |text| match text.parse() {
        Ok(cpus) => super::check_budget(cpus).map(Some),
        Err(_) => Err(format!("{text}: must be a number of CPUs, such as 0.05")),
    });
    set(&mut probes.budget, budget);
    section.end(problems);
}

fn stalls(mut section: Section, config: &mut Config, problems: &mut Problems) {
    let (least, most) = limits::THRESHOLD;
    set(
        &mut config.correlate.call_threshold,
        time(&mut section, "call_threshold", limits::THRESHOLD, problems),
    );
    for (operation, text) in section.section("call_thresholds", problems).into_texts(problems) {
        let path = format!("{}.{operation}", text.path);
        match duration::parse_within(&text.value, least, most) {
            Ok(threshold) => drop(config.correlate.call_thresholds.insert(operation.clone(), threshold)),
            Err(problem) => problems.add(text.line, &path, problem),
        }
        if !operation::is_name(&operation) {
            let known = "must be an operation such as NV_ESC_RM_CONTROL, or a command such as 0x5607";
            problems.add(text.line, &text.path, format!("{operation}: {known}"));
        }
    }
    section.end(problems);
}

fn export(mut section: Section, config: &mut Config, problems: &mut Problems) {
    let export = &mut config.export;
    if let Some(url) = section.parsed("endpoint", problems, super::otel_env::endpoint) {
        export.otlp = Some(super::OtlpConfig::to(url));
    }
    set(&mut export.console, section.switch("console", problems));
    set(
        &mut export.metric_interval,
        time(&mut section, "metric_interval", limits::METRIC_INTERVAL, problems),
    );
    set(&mut export.own_logs, section.switch("own_logs", problems));
    section.end(problems);
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
             host_values: {enabled: false, interval: 30s}\n\
             hpc_jobs: {directory: /run/jobs, interval: 7s}\n",
        );
        assert_eq!(problems, [] as [String; 0]);
        assert_eq!((config.host.proc, config.state_dir), (PathBuf::from("/host/proc"), None));
        assert_eq!(config.kernel_log.facilities, [0, 1]);
        assert_eq!((config.probes.majors, config.probes.cgroup), (Some(vec![4]), CgroupChoice::V1));
        assert_eq!(config.probes.budget, Some(0.05));
        assert_eq!(config.correlate.call_thresholds["NV_ESC_RM_CONTROL"], Duration::from_secs(5));
        assert_eq!(config.export.otlp.map(|o| o.endpoint).as_deref(), Some("http://127.0.0.1:4317"));
        assert_eq!((config.host_values.enabled, config.host_values.interval.as_secs()), (false, 30));
        assert_eq!(config.hpc_jobs.directory, Some(PathBuf::from("/run/jobs")));
        assert_eq!(config.hpc_jobs.interval.as_secs(), 7);
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
    fn one_mistake_hides_no_other_and_each_says_what_is_allowed() {
        let (config, problems) = read(
            "host_values: {enabled: 1}\nprobes: {enabled: maybe, majors: [x], cgroup: v3}\nworker:\n  dcgm: [yes]\n  \
             groups:\n  - {name: a, interval: 1s, fields: [99999, -1]}\n  - {interval: 1s}\nprobe: {}\n\
             kernel_log: {enabled: perhaps}\nexport: 7\nstalls: {call_thresholds: {NV_ESC_RM_CONTROL: 5}}\n",
        );
        let want = [
            "1: host_values.enabled: 1: must be true or false",
            "2: probes.enabled: maybe: must be true or false",
            "2: probes.majors: x: must be from 1 to 4095",
            "2: probes.cgroup: v3: must be auto, v1 or v2",
            "4: worker.dcgm: must be one value, not a list or a section",
            "6: worker.groups.fields: 99999: must be 1 to 65535, or a name such as DCGM_FI_DEV_SM_CLOCK",
            "6: worker.groups.fields: -1: must be 1 to 65535, or a name such as DCGM_FI_DEV_SM_CLOCK",
            "7: worker.groups.name: it is not there: must be a name of 1 to 32 letters, digits, _ and -",
            "7: worker.groups.fields: it is not there: must be a list of 1 to 1024 fields",
            "8: probe: there is no such key; did you mean probes?",
            "9: kernel_log.enabled: perhaps: must be true or false",
            "10: export: must have keys below it, such as `key: value`",
            "11: stalls.call_thresholds.NV_ESC_RM_CONTROL: 5: must be a whole number with ms, s, m or h, such as 250ms",
        ];
        let got: Vec<_> = problems.iter().filter_map(|p| p.strip_prefix("warpgauge.yaml:")).collect();
        assert_eq!(got, want);
        assert_eq!(config, Config::default(), "nothing of a refused file is used");
    }

    #[test]
    fn an_empty_section_means_as_default() {
        let (config, problems) = read("worker:\nprobes:\nhost:\nexport: {endpoint: }\n");
        assert_eq!((config, problems), (Config::default(), vec![]));
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
