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
