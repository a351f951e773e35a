//! The sample lines of the fixture, and what is left of them after damage.
//!
//! In: `tests/fixtures/xid_samples.tsv`, one line of log text, a tab, what it must yield. Out: test results.
//! What can go wrong: a row of a kind that is not read yet only has to yield no XID.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{record, xid};
use crate::model::LineKind;
use crate::model::driver_log::XidLine;

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

fn damage(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let at = dice.below(bytes.len());
    match dice.below(7) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(..at)),
        2 if !bytes.is_empty() => drop(bytes.remove(at)),
        3 => bytes.insert(at, MARKS[dice.below(MARKS.len())]),
        4 => bytes.extend_from_slice(&other[dice.below(other.len())..]),
        5 if !bytes.is_empty() => bytes[at] = dice.below(256) as u8,
        _ => drop(bytes.splice(at..at, other[..dice.below(other.len())].iter().copied())),
    }
    bytes.truncate(4096);
}

#[test]
fn damage_never_panics_and_never_makes_up_a_code() {
    let lines: Vec<&str> = samples().map(|(text, _)| text).collect();
    let (mut dice, mut codes) = (Dice(42), BTreeSet::new());
    for round in 0..60_000 {
        let mut bytes = lines[round % lines.len()].as_bytes().to_vec();
        for _ in 0..=dice.below(3) {
            let other = lines[dice.below(lines.len())].as_bytes();
            damage(&mut bytes, other, &mut dice);
        }
        let text =
            record::parse(&bytes).map_or(String::from_utf8_lossy(&bytes), |r| r.message()).into_owned();
        if let Some(line) = xid::driver_line(&text, crate::model::LogOrigin::default()) {
            let LineKind::Xid(parts) = line.kind;
            let printed =
                |code: u32| text.split(|c: char| !c.is_ascii_digit()).any(|word| word.parse() == Ok(code));
            assert!(printed(parts.code), "{} is not in {text:?}", parts.code);
            assert!(!line.raw.chars().chain(parts.text.chars()).any(char::is_control), "{text:?}");
            codes.insert(parts.code);
        }
    }
    assert!(codes.len() > 30, "the damage is too heavy to say anything: {codes:?}");
}
