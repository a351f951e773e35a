//! The sample lines of the fixture, and what is left of them after damage.
//!
//! In: `tests/fixtures/xid_samples.tsv`, one line of log text, a tab, what it must yield. Out: test results.
//! What can go wrong: a row of a kind that is not read yet only has to yield no XID.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{record, xid};
use crate::model::driver_log::XidLine;
use crate::model::{DriverLine, LineKind, LogOrigin};

const SAMPLES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/xid_samples.tsv"));

fn samples() -> impl Iterator<Item = (&'static str, Value)> {
    SAMPLES.lines().map(|row| {
        let (text, want) = row.split_once('\t').unwrap();
        (text, serde_json::from_str(want).unwrap())
    })
}

fn as_json(line: &XidLine) -> Value {
    json!({
        "kind": "xid",
        "code": line.code,
        "pci": line.pci.map(|pci| pci.to_string()),
        "pid": line.pid.map(|pid| pid.0),
        "name": line.name,
        "channel": line.channel,
        "gpu_instance": line.gpu_instance,
        "compute_instance": line.compute_instance,
        "gpc": line.gpc,
        "tpc": line.tpc,
        "sm": line.sm,
        "link": line.link,
        "sub": line.sub,
        "fatal": line.fatal,
        "recovery_from": line.recovery_from,
        "recovery_to": line.recovery_to,
        "cause_code": line.cause_code,
    })
}

#[test]
fn every_sample_yields_what_it_must() {
    let mut kinds = [0, 0];
    for (text, want) in samples() {
        let got = xid::parse(text).map(|LineKind::Xid(line)| as_json(&line));
        match want["kind"].as_str().unwrap() {
            "xid" => {
                let got = got.unwrap_or_else(|| panic!("nothing from {text}"));
                for (key, wanted) in want.as_object().unwrap() {
                    let named = got.get(key);
                    assert!(
                        named.is_none_or(|value| value == wanted),
                        "{key}: {named:?}, not {wanted}, from {text}"
                    );
                }
                kinds[0] += 1;
            }
            _ if want["needs_facility_check"] == true => assert_eq!(got.unwrap()["code"], 79),
            _ => {
                assert_eq!(got, None, "{text}");
                kinds[1] += 1;
            }
        }
    }
    assert_eq!(kinds, [81, 26]);
}

/// A small linear-congruential generator; the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

const MARKS: &[u8] = b"(),:=' \\x0a\x1b\xff9;";

/// A byte of a damaged line, with its place in the undamaged one; `None` for what came with the damage.
type Piece = (u8, Option<usize>);

fn pieces(line: &str) -> Vec<Piece> {
    line.bytes().enumerate().map(|(at, byte)| (byte, Some(at))).collect()
}

/// Cuts, losses, single bytes more or other.
fn damage(line: &mut Vec<Piece>, dice: &mut Dice) {
    let at = dice.below(line.len());
    match dice.below(5) {
        0 => line.truncate(at),
        1 => drop(line.drain(..at)),
        2 if !line.is_empty() => drop(line.remove(at)),
        3 if !line.is_empty() => line[at] = (dice.below(256) as u8, None),
        _ => line.insert(at, (MARKS[dice.below(MARKS.len())], None)),
    }
}

/// A piece of another line, at the end or in the middle.
fn mix(line: &mut Vec<Piece>, other: &str, dice: &mut Dice) {
    let (at, cut) = (dice.below(line.len()), dice.below(other.len()));
    let foreign = |part: &[u8]| part.iter().map(|byte| (*byte, None)).collect::<Vec<Piece>>();
    match dice.below(2) {
        0 => line.extend(foreign(&other.as_bytes()[cut..])),
        _ => drop(line.splice(at..at, foreign(&other.as_bytes()[..cut]))),
    }
}

/// What the source makes of it: its text and, if it says something, its line.
fn read(line: &[Piece]) -> (String, Option<DriverLine>) {
    let bytes: Vec<u8> = line.iter().map(|(byte, _)| *byte).collect();
    let text = record::parse(&bytes).map_or(String::from_utf8_lossy(&bytes), |r| r.message()).into_owned();
    let line = xid::driver_line(&text, LogOrigin::default());
    (text, line)
}

fn code(line: &DriverLine) -> u32 {
    let LineKind::Xid(xid) = &line.kind;
    xid.code
}

/// What stands before the code's digits.
const BEFORE: &str = "): ";

/// What became of the code.
#[derive(Debug, PartialEq)]
enum Digits {
    /// All there, with what stood before and behind them.
    Whole,
    /// The line ends within them or right behind them: so many are left.
    Cut(usize),
    /// Some are missing, others came in, or their neighbours did: anything may stand there.
    Changed,
}

/// The digits stood from `start` to `end` in a line of `length` bytes.
fn digits(line: &[Piece], start: usize, end: usize, length: usize) -> Digits {
    let from = start - BEFORE.len();
    let Some(first) = line.iter().position(|(_, at)| *at == Some(from)) else { return Digits::Changed };
    let kept = line[first..].iter().zip(from..).take_while(|((_, at), want)| *at == Some(*want)).count();
    let at_end = first + kept == line.len();
    match (from + kept).checked_sub(start) {
        Some(left) if left > end - start || (at_end && from + kept == length) => Digits::Whole,
        Some(left) if at_end => Digits::Cut(left),
        _ => Digits::Changed,
    }
}

#[test]
fn damage_elsewhere_never_changes_the_code() {
    /// A sample, its code, and where the digits of the code are.
    type Sample = (&'static str, u32, usize, usize);
    let found = |text: &'static str| -> Option<Sample> {
        let code = code(&read(&pieces(text)).1?);
        let printed = format!("{BEFORE}{code}");
        let end = text.find(&printed)? + printed.len();
        Some((text, code, end - code.to_string().len(), end))
    };
    let lines: Vec<Sample> = samples().filter_map(|(text, _)| found(text)).collect();
    assert_eq!(lines.len(), 82, "every sample with a code");

    let mut dice = Dice(42);
    let (mut same, mut shorter, mut none) = (0, 0, 0);
    for round in 0..30_000 {
        let (text, undamaged, start, end) = lines[round % lines.len()];
        let mut line = pieces(text);
        for _ in 0..=dice.below(3) {
            damage(&mut line, &mut dice);
        }
        let (damaged, got) = read(&line);
        let got = got.as_ref().map(code);
        match (digits(&line, start, end, text.len()), got) {
            (Digits::Changed, _) => {}
            (_, None) => none += 1,
            (Digits::Whole, Some(got)) => {
                assert_eq!(got, undamaged, "{damaged:?}");
                same += 1;
            }
            (Digits::Cut(left), Some(got)) => {
                assert_eq!(got.to_string(), text[start..start + left], "{damaged:?}");
                shorter += 1;
            }
        }
    }
    assert!(same > 9_000 && shorter > 100 && none > 5_000, "says little: {same}, {shorter}, {none}");
}

#[test]
fn no_damage_panics_or_lets_control_characters_through() {
    let lines: Vec<&str> = samples().map(|(text, _)| text).collect();
    let (mut dice, mut codes) = (Dice(7), BTreeSet::new());
    for round in 0..30_000 {
        let mut line = pieces(lines[round % lines.len()]);
        for _ in 0..=dice.below(3) {
            damage(&mut line, &mut dice);
            mix(&mut line, lines[dice.below(lines.len())], &mut dice);
        }
        let (text, got) = read(&line);
        if let Some(line) = got {
            let LineKind::Xid(parts) = &line.kind;
            assert!(!line.raw.chars().chain(parts.text.chars()).any(char::is_control), "{text:?}");
            codes.insert(parts.code);
        }
    }
    assert!(codes.len() > 30, "the damage is too heavy to say anything: {codes:?}");
}
