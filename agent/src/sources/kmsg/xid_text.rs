//! The text of an XID: what follows code, pid and name, and differs by code and branch.
//!
//! In: the text. Out: the parts of [`XidLine`] that it has: channel, cluster, link, unit, recovery action, cause.
//! What can go wrong: a new wording; its parts are missing then, and the text itself is always kept.

use super::message::plain;
use super::scan::{Scan, after};
use crate::model::driver_log::XidLine;

/// What a text begins with, in the wordings seen from 340 to 610; tells the text from a comma in a task's name.
const BEGINNINGS: &[&str] = &[
    "Channel ",
    "channel ",
    "ChID ",
    "ChId ",
    "Graphics",
    "Class Error",
    "Timeout ",
    "Contained",
    "Uncontained",
    "Row Remapper",
    "Dynamic Page",
    "GPU ",
    "NVLink",
    "An uncorrectable",
    "Uncorrectable",
    "GSP ",
    "MMU",
    "SM ",
    "SPI ",
    "BAD_TSG",
    "SEC_FAULT",
    "High ",
    "errorString ",
    "engmask ",
    "GDDR",
    "HBM",
    "DRAM",
    "SRAM",
];

/// Whether a text that follows a task's name may begin like this.
pub(super) fn begins_like_one(text: &str) -> bool {
    BEGINNINGS.iter().any(|known| text.starts_with(known)) || channel(text).is_some() || unit(text).is_some()
}

/// Fills in what the text says, and the text.
pub(super) fn details(text: &str, line: &mut XidLine) {
    line.channel = channel(text).map(str::to_owned);
    line.gpc = after(text, "GPC ", Scan::number);
    line.tpc = after(text, "TPC ", Scan::number);
    line.sm = after(text, "SM ", Scan::number);
    line.link = after(text, "Link ", signed).or_else(|| after(text, "on link ", signed));
    if let Some((sub, fatal)) = unit(text) {
        line.sub = Some(plain(sub));
        line.fatal = Some(fatal);
    }
    recovery(text, line);
    line.cause_code = after(text, "caused by previous Xid ", Scan::number);
    line.text = plain(text);
}

/// `Ch 00000008` on older branches, `channel 0x0000000a` on newer ones, `Channel ID 0000000d` for some codes.
fn channel(text: &str) -> Option<&str> {
    let mut scan = Scan(text);
    let named = scan.eat("Ch ") || scan.eat("channel ") || scan.eat("Channel ID ") || scan.eat("Channel ");
    scan.eat("0x");
    let digits = scan.run(|c| c.is_ascii_hexdigit());
    (named && !digits.is_empty() && scan.at_word_end()).then_some(digits)
}

/// The unit of an NVLink 5 error and its severity: `RLW_RXPIPE Nonfatal XC0 …`, `MSE Degraded Fatal XC0 …`.
fn unit(text: &str) -> Option<(&str, bool)> {
    const LONGEST: usize = 48;
    [(" Fatal ", true), (" Nonfatal ", false)].into_iter().find_map(|(word, fatal)| {
        let at = text.find(word).filter(|at| (1..=LONGEST).contains(at))?;
        let follows = text[at + word.len()..].trim_start_matches(' ').starts_with("XC");
        follows.then(|| (text[..at].trim_end(), fatal))
    })
}

/// `GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)`
fn recovery(text: &str, line: &mut XidLine) {
    let Some((_, change)) = text.split_once("recovery action changed from ") else { return };
    let mut scan = Scan(change);
    let Some((_, from)) = action(&mut scan) else { return };
    line.recovery_from = Some(plain(from));
    if scan.eat(" to ")
        && let Some((value, to)) = action(&mut scan)
    {
        line.recovery_to = Some(plain(to));
        line.recovery_value = Some(value);
    }
}

/// `0x1 (GPU Reset Required)`
fn action<'a>(scan: &mut Scan<'a>) -> Option<(u32, &'a str)> {
    scan.eat("0x").then_some(())?;
    let value = u32::from_str_radix(scan.run(|c| c.is_ascii_hexdigit()), 16).ok()?;
    scan.eat(" (").then_some(())?;
    let words = scan.run(|c| c != ')');
    scan.eat(")").then_some((value, words))
}

fn signed(scan: &mut Scan<'_>) -> Option<i32> {
    let negative = scan.eat("-");
    let number = i32::try_from(scan.number()?).ok()?;
    Some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: XidLine) {
        let mut line = XidLine::default();
        details(text, &mut line);
        assert_eq!(line, XidLine { text: text.to_owned(), ..want });
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn channels_are_hexadecimal_with_their_zeros() {
        for (text, want) in [
            ("Ch 00000008, intr 00000000.", some("00000008")),
            ("channel 0x0000000a, errorString CTX SWITCH TIMEOUT", some("0000000a")),
            ("Channel ID 0000000d intr0 00040000", some("0000000d")),
            ("Channel 00000020 Instance 00000000", some("00000020")),
            ("Ch ", None),
            ("Ch xyz", None),
            ("Ch 0x", None),
            ("Checksum 1", None),
        ] {
            check(text, XidLine { channel: want, ..XidLine::default() });
        }
    }

    #[test]
    fn clusters_links_and_causes_are_found_inside() {
        check(
            "Graphics SM Warp Exception on (GPC 7, TPC 6, SM 0): Illegal Instruction Parameter",
            XidLine { gpc: Some(7), tpc: Some(6), sm: Some(0), ..XidLine::default() },
        );
        check("MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_2 faulted", XidLine::default());
        check(
            "NVLink: fatal error detected on link 14(0x0, 0x0)",
            XidLine { link: Some(14), ..XidLine::default() },
        );
        check(
            "Ch 00000001 caused by previous Xid 149",
            XidLine { channel: some("00000001"), cause_code: Some(149), ..XidLine::default() },
        );
    }

    #[test]
    fn units_of_nvlink_5_come_with_their_severity() {
        let want =
            |sub, fatal, link| XidLine { sub: some(sub), fatal: Some(fatal), link, ..XidLine::default() };
        check("NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x0 0x0)", want("NETIR_LINK_EVT", true, Some(1)));
        check("MSE Degraded Fatal XC0 i0 Link -1 (0x0)", want("MSE Degraded", true, Some(-1)));
        check("RLW_REMAP/X Nonfatal XC1 i0", want("RLW_REMAP/X", false, None));
        check("Row Remapper: Fatal error, unable to remap row", XidLine::default());
        check(" Fatal XC0", XidLine::default());
    }

    #[test]
    fn recovery_actions_come_in_pairs_or_in_part() {
        let change = |from, to, value| XidLine {
            recovery_from: from,
            recovery_to: to,
            recovery_value: value,
            ..XidLine::default()
        };
        check(
            "GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)",
            change(some("Drain and Reset"), some("GPU Reset Required"), Some(1)),
        );
        check("GPU recovery action changed from 0x0 (None) to 0x2 (OS Re", change(some("None"), None, None));
        check("GPU recovery action changed from 0x0 (No", XidLine::default());
        check("(", XidLine::default());
    }
}
