//! The scenario files of the repository parse, and no text makes the parser panic.
//!
//! In: `tests/fixtures/scenarios`, and texts made at random. Out: a failed test.

use gpu_scenario::catalog;
use gpu_scenario::load::scenario_from;
use gpu_scenario::world::World;
use proptest::prelude::{ProptestConfig, Strategy, prop_assert, proptest};
use proptest::sample::select;

#[test]
fn every_file_of_the_repository_parses() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "yaml") {
            let scenario = gpu_scenario::load::scenario(&path).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(scenario.version, 1, "{}", path.display());
            count += 1;
        }
    }
    assert!(30 <= count, "{count} files");
}

/// Pieces of YAML and of scenarios, in any order and indentation.
fn texts() -> impl Strategy<Value = String> {
    let words = [
        "version: 1\n",
        "gpus:\n",
        "- count: 3\n",
        "  mig: []\n",
        "  fields: {150: {curve: {constant: 1}}}\n",
        "\t",
        "- ",
        "faults:\n",
        "- hang: {call: x}\n",
        "xids: [{gpu: 4294967295, code: 1, t: -1e308}]\n",
        "{",
        "}",
        "[",
        "]",
        "&a ",
        "*a",
        "!!binary x",
        "---\n",
        "defaults:\n",
        "  count: 99999999999\n",
        "'",
        "\"",
        ": ",
        "\u{0}",
        "é",
        "? ",
        "| \n",
    ];
    proptest::collection::vec(select(words.to_vec()), 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics_and_errors_name_a_line(text in texts()) {
        match scenario_from("s.yaml", &text) {
            Err(e) => prop_assert!(e.to_string().starts_with("s.yaml:") && 1 <= e.line, "{}", e),
            Ok(scenario) => {
                let world = World::new(scenario, 0);
                prop_assert!(world.gpus().len() <= 32);
                for row in catalog::rows() {
                    world.read((1, 0), row, i64::MAX);
                    world.read((4, u32::MAX), row, i64::MIN);
                }
            }
        }
    }

    #[test]
    fn any_characters_are_taken_or_refused(text in "\\PC{0,400}") {
        if let Err(e) = scenario_from("s.yaml", &text) {
            prop_assert!(e.to_string().starts_with("s.yaml:"));
        }
    }

    #[test]
    fn curves_give_a_number_at_any_time(t in proptest::num::i64::ANY) {
        let text = "gpus:\n- fields:\n    150: {curve: {sine: {mean: 1, amplitude: 1e300, period: 1e-300}}}\n    \
                    155: {curve: {ramp: {from: 1, per_s: 1e300}}}\n";
        let world = World::new(scenario_from("s.yaml", text).unwrap(), 0);
        for row in catalog::rows().iter().filter(|row| matches!(row.id, 150 | 155)) {
            prop_assert!(world.read((1, 0), row, t).is_some());
        }
    }
}
