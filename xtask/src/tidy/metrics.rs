//! Every metric of the catalogue is given by somebody. (That every metric given is in it, a unit test checks.)
//!
//! In: `docs/metrics.md`, made from the catalogue, and all Rust files. Out: complaints.
//! What can go wrong: a name that is put together at run time is not seen; so names are never put together.

use super::Source;

const CATALOG: &str = "agent/src/export/catalog.rs";

pub(super) fn check(page: &str, files: &[Source]) -> Vec<String> {
    let declared = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let given = |name: &str| {
        let quoted = format!("\"{name}\"");
        let agent = files.iter().filter(|f| f.name().starts_with("agent/src/") && f.name() != CATALOG);
        agent.flat_map(Source::shipped_lines).any(|(_, line)| line.contains(&quoted))
    };
    declared
        .filter(|name| !given(name))
        .map(|name| format!("{CATALOG}: {name} is declared, but nothing gives it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_nothing_gives_is_found() {
        let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let page = "| name | kind |\n|---|---|\n| `warpgauge.a` | counter |\n| `warpgauge.b` | gauge |\n";
        let catalog = file(CATALOG, "counter(\"warpgauge.b\")");
        let code = file("agent/src/x.rs", "t.counter(\"warpgauge.a\", &[]);\n");
        let complaints = check(page, &[catalog, code]);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains("warpgauge.b"), "{complaints:?}");
    }
}
