//! The section `worker:` of the configuration file, as written → as checked.
//!
//! In: YAML. Out: changes to [`WorkerConfig`], and every problem with its line.
//! Groups replace the default ones as a whole: a list that is half ours would surprise.

use std::time::Duration;

use super::document::{Problems, Section};
use super::file::{path, set, time};
use super::worker::{FIELDS_MAX, GROUPS_MAX, MEMORY, check_engine, check_field};
use super::{WatchGroup, WorkerConfig, bytes, limits};

/// Takes what the section says.
pub(super) fn check(mut section: Section, config: &mut WorkerConfig, problems: &mut Problems) {
    set(&mut config.enabled, section.switch("enabled", problems));
    let engine = |text: &str| check_engine(text).map(|()| text.to_owned());
    set(&mut config.engine, section.parsed("engine", problems, engine));
    set(&mut config.dcgm, section.switch("dcgm", problems));
    config.dcgm_library = path(&mut section, "dcgm_library", problems).or(config.dcgm_library.take());
    set(&mut config.nvml, section.switch("nvml", problems));
    config.nvml_library = path(&mut section, "nvml_library", problems).or(config.nvml_library.take());
    set(&mut config.nvml_interval, time(&mut section, "nvml_interval", limits::NVML, problems));
    set(&mut config.health_interval, time(&mut section, "health_interval", limits::HEALTH, problems));
    let memory = |text: &str| bytes::parse_within(text, MEMORY.0, MEMORY.1);
    set(&mut config.memory_limit, section.parsed("memory_limit", problems, memory));
    if let Some((line, groups)) = section.sections("groups", problems) {
        config.groups = check_groups(line, groups, problems);
    }
    section.end(problems);
}

fn check_groups(line: u64, groups: Vec<(u64, Section)>, problems: &mut Problems) -> Vec<WatchGroup> {
    const KEY: &str = "worker.groups";
    if groups.len() > GROUPS_MAX {
        problems.add(line, KEY, format!("{} groups: must be at most {GROUPS_MAX}", groups.len()));
        return Vec::new();
    }
    let mut checked: Vec<WatchGroup> = Vec::new();
    for (line, mut group) in groups {
        let name = check_name(line, &mut group, &checked, problems);
        let interval = check_interval(line, &mut group, problems);
        let fields = check_fields(line, name.as_deref(), &mut group, problems);
        group.end(problems);
        if let (Some(name), Some(interval)) = (name, interval) {
            checked.push(WatchGroup { name, interval, fields });
        }
    }
    checked
}

fn check_name(
    line: u64,
    group: &mut Section,
    others: &[WatchGroup],
    problems: &mut Problems,
) -> Option<String> {
    let Some(name) = group.text("name", problems) else {
        let must = "it is not there: must be a name of 1 to 32 letters, digits, _ and -";
        problems.add(line, "worker.groups.name", must);
        return None;
    };
    let plain = (1..=32).contains(&name.value.len())
        && name.value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let must = if !plain {
        "must be a name of 1 to 32 letters, digits, _ and -"
    } else if others.iter().any(|other| other.name == name.value) {
        "must be there only once"
    } else {
        return Some(name.value);
    };
    problems.add(name.line, "worker.groups", format!("{}: {must}", name.value));
    Some(name.value)
}

fn check_interval(line: u64, group: &mut Section, problems: &mut Problems) -> Option<Duration> {
    let Some(text) = group.text("interval", problems) else {
        problems.add(line, "worker.groups.interval", "it is not there: must be a time, such as 1s");
        return None;
    };
    let checked = super::duration::parse_within(&text.value, limits::GROUP.0, limits::GROUP.1);
    checked.map_err(|problem| problems.add(text.line, &text.path, problem)).ok()
}

fn check_fields(line: u64, name: Option<&str>, group: &mut Section, problems: &mut Problems) -> Vec<String> {
    let Some((at, fields)) = group.texts("fields", problems) else {
        let must = format!("it is not there: must be a list of 1 to {FIELDS_MAX} fields");
        problems.add(line, "worker.groups.fields", must);
        return Vec::new();
    };
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        let problem = format!("{} fields: must be 1 to {FIELDS_MAX}", fields.len());
        let problem = name.map_or_else(|| problem.clone(), |name| format!("{name}: {problem}"));
        problems.add(at, "worker.groups", problem);
    }
    let mut check = |text: super::document::Text| {
        let checked = check_field(&text.value);
        checked.map_err(|problem| problems.add(text.line, &text.path, problem)).ok().map(|()| text.value)
    };
    fields.into_iter().filter_map(&mut check).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::super::file::apply_text;
    use super::*;

    fn read(text: &str) -> (WorkerConfig, Vec<String>) {
        let (mut config, mut problems) = (Config::default(), Vec::new());
        apply_text("w.yaml", text, &mut config, &mut problems);
        (config.worker, problems)
    }

    #[test]
    fn every_key_arrives_and_fields_may_be_numbers_or_names() {
        let (config, problems) = read(
            "worker:\n  enabled: false\n  engine: tcp://host:5555\n  dcgm: false\n  dcgm_library: /d.so\n  nvml: false\n  \
             nvml_library: /n.so\n  nvml_interval: 2s\n  health_interval: 0s\n  memory_limit: 1GiB\n  groups:\n  \
             - {name: mine, interval: 250ms, fields: [100, DCGM_FI_DEV_GPU_TEMP, \"140\"]}\n",
        );
        assert_eq!(problems, [] as [String; 0]);
        let want = WorkerConfig {
            enabled: false,
            engine: "tcp://host:5555".to_owned(),
            dcgm: false,
            dcgm_library: Some("/d.so".into()),
            nvml: false,
            nvml_library: Some("/n.so".into()),
            nvml_interval: Duration::from_secs(2),
            health_interval: Duration::ZERO,
            memory_limit: 1 << 30,
            groups: vec![WatchGroup {
                name: "mine".to_owned(),
                interval: Duration::from_millis(250),
                fields: ["100", "DCGM_FI_DEV_GPU_TEMP", "140"].map(str::to_owned).to_vec(),
            }],
        };
        assert_eq!(config, want);
    }

    #[test]
    fn every_problem_is_named_with_its_line() {
        let (_, problems) = read(
            "worker:\n  engine: http://host\n  nvml_interval: 1ms\n  memory_limit: 1MiB\n  groups:\n  \
             - name: a b\n    interval: 2h\n    fields: [0, x y]\n  - name: b\n    interval: 1s\n    fields: []\n  \
             - name: b\n    interval: 1s\n    fields: [1]\n",
        );
        let starts: Vec<&str> =
            problems.iter().filter_map(|p| p.rsplit_once(": must").map(|(start, _)| start)).collect();
        let want = [
            "w.yaml:2: worker.engine: http://host",
            "w.yaml:3: worker.nvml_interval: 1ms",
            "w.yaml:4: worker.memory_limit: 1MiB",
            "w.yaml:6: worker.groups: a b",
            "w.yaml:7: worker.groups.interval: 2h",
            "w.yaml:8: worker.groups.fields: 0",
            "w.yaml:8: worker.groups.fields: x y",
            "w.yaml:11: worker.groups: b: 0 fields",
            "w.yaml:12: worker.groups: b",
        ];
        assert_eq!(starts, want, "{problems:#?}");
    }
}
