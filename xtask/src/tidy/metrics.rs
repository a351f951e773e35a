//! Every metric name in the code is in the catalogue, and every name of the catalogue is in the code.
//!
//! In: all Rust files. Out: complaints. What can go wrong: a name that is put together at run time is not seen; so
//! names are never put together.

use std::collections::BTreeSet;

use super::Source;

const CATALOG: &str = "agent/src/export/catalog.rs";
const PREFIXES: [&str; 4] = ["warpgauge.", "gpu.driver.call.", "gpu.stall.", "gpu.xid."];

pub(super) fn check(files: &[Source]) -> Vec<String> {
    let declared: BTreeSet<&str> = files
        .iter()
        .filter(|f| f.name() == CATALOG)
        .flat_map(|f| f.text.lines())
        .filter_map(|line| line.trim().strip_prefix("name: \"")?.split('"').next())
        .collect();
    let used = |name: &str| {
        let quoted = format!("\"{name}\"");
        let agent = files.iter().filter(|f| f.name().starts_with("agent/src/") && f.name() != CATALOG);
        agent.flat_map(Source::shipped_lines).any(|(_, line)| line.contains(&quoted))
    };
    let mut complaints: Vec<String> = declared
        .iter()
        .filter(|name| !used(name))
        .map(|name| format!("{CATALOG}: {name} is declared but nothing gives it"))
        .collect();
    for file in files.iter().filter(|f| f.name().starts_with("agent/src/") && f.name() != CATALOG) {
        for (number, line) in file.shipped_lines() {
            for name in asked_of_telemetry(line).filter(|name| !declared.contains(name)) {
                complaints.push(format!("{}:{number}: {name} is not in the catalogue", file.name()));
            }
        }
    }
    complaints
}

/// Names in calls such as `telemetry.counter("…", …)`.
fn asked_of_telemetry(line: &str) -> impl Iterator<Item = &str> {
    let calls = [".counter(\"", ".gauge(\""].into_iter().flat_map(move |call| line.split(call).skip(1));
    let names = calls.filter_map(|rest| rest.split('"').next());
    names.filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_checked() {
        let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let catalog = file(CATALOG, "    name: \"warpgauge.a\",\n    name: \"warpgauge.b\",\n");
        let code =
            file("agent/src/x.rs", "t.counter(\"warpgauge.a\", &[]);\nt.gauge(\"warpgauge.c\", &[]);\n");
        let complaints = check(&[catalog, code]);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(
            complaints[0].contains("warpgauge.b") && complaints[1].contains("warpgauge.c"),
            "{complaints:?}"
        );
    }
}
