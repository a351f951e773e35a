//! What a guest says, line by line → which tests passed, failed, or were skipped.
//!
//! In: lines of `tests/vm-init`, whose first character says what they are; inside them, lines of libtest.
//! Out: [`Results`], and each line as it is to be shown. What can go wrong: the guest ends in the middle; then the tests
//! that are missing count as failed.

use std::collections::BTreeSet;

/// What is known of a guest so far.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// It has said its first line.
    pub(crate) is_up: bool,
    /// Tests that passed.
    pub(crate) passed: BTreeSet<String>,
    /// Tests that did not, those that were ignored among them.
    pub(crate) failed: BTreeSet<String>,
    /// `test need`.
    pub(crate) skips: Vec<String>,
    /// The test that runs.
    pub(crate) running: Option<String>,
}

impl Results {
    /// Takes a line; gives what is to be shown of it.
    pub(crate) fn take(&mut self, line: &str) -> Option<String> {
        let mut characters = line.chars();
        let (mark, text) = (characters.next()?, characters.as_str());
        match mark {
            '=' => {
                self.is_up = true;
                (!text.starts_with("end ")).then(|| text.to_owned())
            }
            '|' => {
                self.tests_line(text);
                Some(text.to_owned())
            }
            '!' => Some(text.to_owned()),
            '~' => {
                self.running = begun(text).map(str::to_owned);
                None
            }
            '?' => {
                self.skips.push(text.to_owned());
                None
            }
            // the port's noise before the first line
            _ => None,
        }
    }

    fn tests_line(&mut self, text: &str) {
        let Some((name, outcome)) = text.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        else {
            return;
        };
        self.running = None;
        let set = if outcome == "ok" { &mut self.passed } else { &mut self.failed };
        set.insert(name.to_owned());
    }

    /// Those of `expected` that have neither passed nor failed.
    pub(crate) fn missing<'a>(&self, expected: &'a [String]) -> Vec<&'a str> {
        let is_missing = |name: &&String| !self.passed.contains(*name) && !self.failed.contains(*name);
        expected.iter().filter(is_missing).map(String::as_str).collect()
    }
}

/// The name of a test in a line that waits for its outcome.
fn begun(text: &str) -> Option<&str> {
    text.strip_prefix("test ")?.split_once(" ... ").map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(lines: &[&str]) -> (Results, Vec<String>) {
        let mut results = Results::default();
        let shown = lines.iter().filter_map(|line| results.take(line)).collect();
        (results, shown)
    }

    #[test]
    fn lines_of_the_tests_are_counted_and_shown() {
        let (results, shown) = results(&[
            "=up 6.1.0",
            "|running 3 tests",
            "~test in_vm::a ... ",
            "|test in_vm::a ... ok",
            "|test in_vm::b ... FAILED",
            "|test in_vm::c ... ignored",
            "!a word on standard error",
            "?in_vm::a root",
            "|test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out",
            "=end failed",
        ]);
        assert!(results.is_up);
        assert_eq!(Vec::from_iter(&results.passed), ["in_vm::a"]);
        assert_eq!(
            Vec::from_iter(&results.failed),
            ["in_vm::b", "in_vm::c"],
            "an ignored test has not passed"
        );
        assert_eq!(results.skips, ["in_vm::a root"]);
        assert_eq!(results.running, None);
        assert_eq!(shown.len(), 7, "{shown:?}");
        assert_eq!(shown[0], "up 6.1.0");
        let expected = ["in_vm::a", "in_vm::b", "in_vm::d"].map(str::to_owned);
        assert_eq!(results.missing(&expected), ["in_vm::d"]);
    }

    #[test]
    fn the_test_that_hangs_is_known() {
        let (results, shown) = results(&["=up 5.10", "|running 1 test", "~test in_vm::a ... "]);
        assert_eq!(results.running.as_deref(), Some("in_vm::a"));
        assert_eq!(shown.len(), 2);
        let (results, _) = self::results(&["~test result: FAILED. 0 pas"]);
        assert_eq!(results.running, None, "the beginning of another line");
    }

    #[test]
    fn noise_is_no_result() {
        let (results, shown) = results(&["", "\u{1b}[c", "test in_vm::a ... ok"]);
        assert!(!results.is_up && results.passed.is_empty() && shown.is_empty());
    }
}
