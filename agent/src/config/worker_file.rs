//! The section `worker:` of the configuration file, as written → as checked.
//!
//! In: YAML. Out: changes to [`WorkerConfig`], and every problem with its line.
//! Groups replace the default ones as a whole: a list that is half ours would surprise.

use std::path::PathBuf;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::file::{Problems, set};
use super::worker::{FIELDS_MAX, GROUPS_MAX, MEMORY, check_engine, check_field};
use super::{WatchGroup, WorkerConfig, bytes, limits};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWorker {
    enabled: Option<bool>,
    engine: Option<Spanned<String>>,
    dcgm: Option<bool>,
    dcgm_library: Option<PathBuf>,
    nvml: Option<bool>,
    nvml_library: Option<PathBuf>,
    nvml_interval: Option<Spanned<String>>,
    health_interval: Option<Spanned<String>>,
    memory_limit: Option<Spanned<String>>,
    groups: Option<Spanned<Vec<RawGroup>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGroup {
    name: Spanned<String>,
    interval: Spanned<String>,
    fields: Vec<Spanned<RawField>>,
}

/// By number or by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawField {
    Number(u64),
    Name(String),
}

impl RawWorker {
    pub(super) fn check(self, config: &mut WorkerConfig, problems: &mut Problems<'_>) {
        set(&mut config.enabled, self.enabled);
        set(&mut config.dcgm, self.dcgm);
        set(&mut config.nvml, self.nvml);
        config.dcgm_library = self.dcgm_library.or(config.dcgm_library.take());
        config.nvml_library = self.nvml_library.or(config.nvml_library.take());
        if let Some(engine) = self.engine {
            let checked = check_engine(&engine.value).map(|()| engine.value);
            set(&mut config.engine, problems.at(engine.referenced.line(), "worker.engine", checked));
        }
        if let Some(text) = &self.nvml_interval {
            set(&mut config.nvml_interval, problems.time("worker.nvml_interval", text, limits::NVML));
        }
        if let Some(text) = &self.health_interval {
            set(&mut config.health_interval, problems.time("worker.health_interval", text, limits::HEALTH));
        }
        if let Some(text) = &self.memory_limit {
            let checked = bytes::parse_within(&text.value, MEMORY.0, MEMORY.1);
            set(
                &mut config.memory_limit,
                problems.at(text.referenced.line(), "worker.memory_limit", checked),
            );
        }
        if let Some(groups) = self.groups {
            check_groups(groups, config, problems);
        }
    }
}

fn check_groups(groups: Spanned<Vec<RawGroup>>, config: &mut WorkerConfig, problems: &mut Problems<'_>) {
    const KEY: &str = "worker.groups";
    let line = groups.referenced.line();
    if groups.value.len() > GROUPS_MAX {
        let most = format!("{} groups: must be at most {GROUPS_MAX}", groups.value.len());
        problems.at::<()>(line, KEY, Err(most));
        return;
    }
    let mut checked: Vec<WatchGroup> = Vec::new();
    for group in groups.value {
        let line = group.name.referenced.line();
        let name = group.name.value;
        let plain = (1..=32).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let problem = if !plain {
            Some(format!("{name}: must be a name of 1 to 32 letters, digits, _ and -"))
        } else if checked.iter().any(|other| other.name == name) {
            Some(format!("{name}: must be there only once"))
        } else if group.fields.is_empty() || group.fields.len() > FIELDS_MAX {
            Some(format!("{name}: {} fields: must be 1 to {FIELDS_MAX}", group.fields.len()))
        } else {
            None
        };
        if let Some(problem) = problem {
            problems.at::<()>(line, KEY, Err(problem));
        }
        let interval = problems.time("worker.groups.interval", &group.interval, limits::GROUP);
        let fields = group.fields.into_iter().filter_map(|field| {
            let text = match field.value {
                RawField::Number(id) => id.to_string(),
                RawField::Name(name) => name,
            };
            let checked = check_field(&text).map(|()| text);
            problems.at(field.referenced.line(), "worker.groups.fields", checked)
        });
        let fields = fields.collect();
        if let Some(interval) = interval {
            checked.push(WatchGroup { name, interval, fields });
        }
    }
    config.groups = checked;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            "w.yaml:9: worker.groups: b: 0 fields",
            "w.yaml:12: worker.groups: b",
        ];
        assert_eq!(starts, want, "{problems:#?}");
    }
}
