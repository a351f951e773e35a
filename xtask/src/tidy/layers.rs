//! A signal travels down the stages, never up: who may use whom.
//!
//! In: one file of the agent. Out: complaints about `crate::…` paths that point the wrong way.
//! A new edge is a change of the table below, which is reviewed.

use super::Source;

/// Each part of the agent, and the parts it may use besides itself.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("wire", &[]),
    ("worker", &["wire", "model", "host"]), // another process: what it says is a source's to read
    ("telemetry", &[]),
    ("host", &["model", "config"]),
    ("config", &["host", "model"]),
    ("sources", &["model", "host", "config", "telemetry", "wire"]),
    ("correlate", &["model", "config", "telemetry"]), // no `host`: it does no input or output
    ("enrich", &["model", "host", "config", "telemetry"]),
    ("export", &["model", "host", "config", "telemetry"]), // no `sources`: it cannot reach back
    ("runtime", &[]),
    ("logging", &["config", "host", "export", "telemetry"]),
    ("control", &["sources", "host", "config", "telemetry", "model"]),
    ("supervise", &["sources", "model", "host", "telemetry"]),
    // `doctor map` says what the stages decide, so it has them decide
    (
        "doctor",
        &[
            "sources",
            "correlate",
            "enrich",
            "export",
            "model",
            "host",
            "config",
            "wire",
            "control",
            "telemetry",
        ],
    ),
    ("fields", &["sources", "model", "host", "config", "control"]),
];

pub(super) fn check(file: &Source) -> Vec<String> {
    let name = file.name();
    let Some(below) = name.strip_prefix("agent/src/") else { return Vec::new() };
    let part = below.split(['/', '.']).next().unwrap_or_default();
    let Some((_, allowed)) = MAY_USE.iter().find(|(of, _)| *of == part) else { return Vec::new() };
    let mut complaints = Vec::new();
    for (number, line) in file.shipped_lines() {
        let code = line.split("//").next().unwrap_or_default();
        for used in code.split("crate::").skip(1) {
            let used: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let known = MAY_USE.iter().any(|(of, _)| *of == used) || used == "pipeline";
            if known && used != part && !allowed.contains(&used.as_str()) {
                complaints.push(format!(
                    "{name}:{number}: {part} may not use {used}: signals travel down, never up"
                ));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_way_down_is_open() {
        let bad = |path: &str, text: &str| check(&Source { path: path.into(), text: text.into() }).len();
        assert_eq!(bad("agent/src/export/otlp/mod.rs", "use crate::model::Fact;"), 0);
        assert_eq!(bad("agent/src/export/otlp/mod.rs", "use crate::sources::Outlet;"), 1);
        assert_eq!(bad("agent/src/correlate/xid.rs", "use crate::host::mono_now;"), 1);
        assert_eq!(bad("agent/src/model/ids.rs", "use crate::telemetry::Counter;"), 1);
        assert_eq!(bad("agent/src/model/ids.rs", "#[cfg(test)]\nuse crate::telemetry::Counter;"), 0);
        assert_eq!(bad("agent/src/pipeline.rs", "use crate::sources::Outlet;"), 0);
    }
}
