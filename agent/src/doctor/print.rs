//! The checks as text for people, or as JSON, one object per line.
//!
//! In: checks. Out: lines. Text of the system is stripped of control characters.
//! What can go wrong: the output is gone; the caller ends then.

use std::io::{self, Write};

use serde::Serialize;

use super::{Check, Verdict};
use crate::model::plain::is_plain;

#[derive(Serialize)]
struct Line<'a> {
    check: &'a str,
    state: &'a str,
    what: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    remedy: &'a str,
}

/// One JSON object per check.
///
/// # Errors
/// When the output does not take it.
pub fn json(checks: &[Check], mut out: impl Write) -> io::Result<()> {
    for Check { name, verdict, what, remedy } in checks {
        let line = Line { check: name, state: verdict.name(), what, remedy };
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// What is said at the end on a node without a GPU.
const NO_GPU: &str =
    "This node seems to have no NVIDIA GPU; the lines about driver, DCGM and NVML follow from that.";

/// A line per check, and one more for its remedy; at the end a word on a node without any GPU.
///
/// # Errors
/// When the output does not take it.
pub fn text(checks: &[Check], no_gpu: bool, mut out: impl Write) -> io::Result<()> {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, verdict, what, remedy } in checks {
        writeln!(out, "{:<7} {name:<width$}  {}", verdict.name(), printable(what))?;
        if !remedy.is_empty() {
            writeln!(out, "{:<7} {:<width$}  → {}", "", "", printable(remedy))?;
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (no, unknown) = (count(Verdict::No), count(Verdict::Unknown));
    writeln!(out, "{} work, {no} do not, {unknown} unknown", count(Verdict::Yes))?;
    if no_gpu { writeln!(out, "{NO_GPU}") } else { Ok(()) }
}

/// Without control and format characters, which a terminal might obey.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<Check> {
        vec![
            Check::yes("driver", "580.142"),
            Check::no("kernel log", "no\u{1b}[31m log", "give it"),
            Check::unknown("nvml", "late", "wait"),
        ]
    }

    #[test]
    fn people_get_a_column_of_verdicts_and_the_remedy_below() {
        let mut out = Vec::new();
        text(&checks(), false, &mut out).unwrap();
        let want = "yes     driver      580.142\n\
                    no      kernel log  no [31m log\n                    → give it\n\
                    unknown nvml        late\n                    → wait\n\
                    1 work, 1 do not, 1 unknown\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
        let mut out = Vec::new();
        text(&checks(), true, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{want}{NO_GPU}\n"));
    }

    #[test]
    fn programs_get_one_object_per_line() {
        let mut out = Vec::new();
        json(&checks(), &mut out).unwrap();
        let lines: Vec<serde_json::Value> =
            String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], serde_json::json!({"check": "driver", "state": "yes", "what": "580.142"}));
        assert_eq!(lines[1]["remedy"], "give it");
        assert_eq!(lines[2]["state"], "unknown");
    }
}
