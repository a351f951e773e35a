//! What the documents say of the configuration and of reasons, against the program.
//!
//! In: README.md and docs/. Out: failures that name the page. What can go wrong: nothing.

use warpgauge::config::{Config, file};
use warpgauge::model::Absence;
use warpgauge_tests::harness::programs;

fn page(name: &str) -> String {
    std::fs::read_to_string(programs::workspace().join(name)).unwrap()
}

/// The YAML blocks of a page, each with its own indentation taken off.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "```yaml" {
            let indent = line.len() - line.trim_start().len();
            let body = lines.by_ref().take_while(|line| line.trim() != "```");
            blocks.push(body.map(|line| line.get(indent..).unwrap_or_default().to_owned() + "\n").collect());
        }
    }
    blocks
}

#[test]
fn every_piece_of_configuration_in_the_documents_is_one() {
    let mut count = 0;
    for name in ["README.md", "docs/deploy.md", "docs/gpu-values.md"] {
        for block in blocks(&page(name)) {
            let (mut config, mut problems) = (Config::default(), Vec::new());
            file::apply_text(name, &block, &mut config, &mut problems);
            assert_eq!(problems, [] as [&str; 0], "{name}:\n{block}");
            assert_ne!(config, Config::default(), "{name} changes nothing:\n{block}");
            count += 1;
        }
    }
    assert_eq!(count, 3, "two of the deployment, one of the watch groups");
}

#[test]
fn every_reason_for_a_missing_value_is_explained() {
    let text = page("docs/gpu-values.md");
    let rows: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for absence in Absence::ALL {
        assert!(rows.contains(&absence.name()), "{} has no row", absence.name());
    }
}
