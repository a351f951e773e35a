//! The driver's XID lines: `NVRM: Xid (PCI:dddd:bb:dd[ GPU-I:nn[ GPU-CI:nn]]): N[, pid=P][, name=C][, text]`.
//!
//! In: a line of the kernel log, decoded. Out: a [`LineKind`]; nothing for all other lines, without allocating.
//! What can go wrong: a damaged line gives fewer parts or nothing; a wrong code only where other digits came into the
//! code's place or its own were cut (a line may end behind a code, so a cut one looks whole). Old branches lack `PCI:`,
//! pid and name; the line may be glued to another driver's unfinished one, so it is searched for, not expected.

use super::message::{message, plain};
use super::scan::{Scan, after};
use super::xid_text;
use crate::model::driver_log::XidLine;
use crate::model::{DriverLine, LineKind, LogOrigin, PciAddress, Pid};

/// What every XID line contains; a cheap sieve before anything is decoded.
pub(super) const MARK: &str = "Xid (";

/// Longest text between the parentheses that is looked at: twice the longest the driver prints.
const LONGEST_PLACE: usize = 64;

/// Bytes of the shortest address without a domain that is taken: with `NVRM: Xid (` before it, it is longer than the
/// 15 bytes of a task's name, which the kernel prints as it is.
const SHORTEST_ADDRESS: usize = 5;

/// Bytes of the shortest address where the driver's own prefix is missing: `0000:3b:00`, as it always prints it.
const SHORTEST_UNPREFIXED: usize = 10;

/// What a line of the kernel log says about the driver; `None` for lines that do not concern it.
pub fn parse(text: &str) -> Option<LineKind> {
    find_xid(text).map(|(_, line)| LineKind::Xid(line))
}

/// The same with the line itself, without its prefix and control characters.
pub fn driver_line(text: &str, origin: LogOrigin) -> Option<DriverLine> {
    driver_line_at(text, origin).map(|(line, _)| line)
}

/// The same with the place of its mark in `text`.
pub(super) fn driver_line_at(text: &str, origin: LogOrigin) -> Option<(DriverLine, usize)> {
    let (place, line) = find_xid(text)?;
    Some((DriverLine { kind: LineKind::Xid(line), raw: plain(message(text).trim_end()), origin }, place))
}

fn find_xid(text: &str) -> Option<(usize, XidLine)> {
    text.match_indices(MARK).find_map(|(at, mark)| {
        let (before, rest) = (&text[..at], &text[at + mark.len()..]);
        let place_end = rest.bytes().take(LONGEST_PLACE).position(|b| b == b')')?;
        let mut line = place(before, &rest[..place_end])?;
        let mut scan = Scan(&rest[place_end + 1..]);
        line.code = code(&mut scan)?;
        process(&mut scan, &mut line);
        xid_text::details(scan.0.trim(), &mut line);
        Some((at, line))
    })
}

/// What stands between the parentheses. `before` tells an XID from a switch's SXid, and from a task that is named like
/// one: a name of 15 bytes has no room for the driver's own prefix and an address, nor for `PCI:` with a domain.
fn place(before: &str, place: &str) -> Option<XidLine> {
    let mut scan = Scan(place);
    let marked = scan.eat("PCI:");
    let address = scan.run(|c| c != ' ');
    let by_driver = before.ends_with("NVRM: ") || before.ends_with("nvidia_dev_xid: ");
    let full = marked && address.matches(':').count() == 2 && address.len() >= SHORTEST_UNPREFIXED;
    if before.ends_with('S') || !(by_driver || full) || address.len() < SHORTEST_ADDRESS {
        return None;
    }
    let instance = |key| after(place, key, Scan::number);
    Some(XidLine {
        pci: Some(PciAddress::parse(address)?),
        gpu_instance: instance("GPU-I:"),
        compute_instance: instance("GPU-CI:"),
        ..XidLine::default()
    })
}

/// `: N`, where N ends as the driver ends it: with a comma, the line, or a blank and a parenthesis. Anything else is
/// not the code's end but damage, or somebody's text.
fn code(scan: &mut Scan<'_>) -> Option<u32> {
    scan.eat(":").then_some(())?;
    scan.blanks();
    let code = scan.number()?;
    let rest = scan.0.trim_start_matches([' ', '\t']);
    (scan.0.starts_with(',') || rest.is_empty() || rest.starts_with(['(', '\n', '\r'])).then_some(code)
}

/// `, pid=1234, name=python3, `, of which each may be missing or unknown.
fn process(scan: &mut Scan<'_>, line: &mut XidLine) {
    separator(scan);
    if scan.eat("pid=") {
        line.pid = scan.number().filter(|_| scan.at_word_end()).map(Pid);
        if line.pid.is_none() {
            scan.run(|c| c != ','); // '<unknown>'
        }
        separator(scan);
    }
    if scan.eat("name=") {
        let (name, rest) = scan.0.split_at(name_length(scan.0));
        line.name = (name != "<unknown>" && !name.is_empty()).then(|| plain(name));
        scan.0 = rest;
        separator(scan);
    }
}

fn separator(scan: &mut Scan<'_>) {
    scan.eat(",");
    scan.blanks();
}

/// Length of the task name that `text` begins with. Names are free text, commas included: the last comma within reach
/// that is followed by a known text ends it, else the first comma.
fn name_length(text: &str) -> usize {
    const LONGEST_NAME: usize = 15; // the kernel's TASK_COMM_LEN without its end
    let commas = || text.match_indices(", ").map(|(at, _)| at);
    let in_reach = |at: &usize| text[..*at].chars().take(LONGEST_NAME + 1).count() <= LONGEST_NAME;
    let known = |at: &usize| xid_text::begins_like_one(&text[at + 2..]);
    let first = text.find(',').unwrap_or(text.len());
    commas().take_while(in_reach).filter(known).last().unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// code, address, pid, name, text
    type Parts<'a> = (u32, &'a str, Option<u32>, Option<&'a str>, &'a str);

    #[track_caller]
    fn check(text: &str, want: Option<Parts<'_>>) {
        let Some(LineKind::Xid(x)) = parse(text) else { return assert_eq!(None, want, "{text}") };
        let pci = x.pci.map(|p| p.to_string()).unwrap_or_default();
        assert_eq!(
            Some((x.code, pci.as_str(), x.pid.map(|p| p.0), x.name.as_deref(), x.text.as_str())),
            want,
            "{text}"
        );
    }

    #[test]
    fn the_forms_of_all_branches_are_read() {
        let lost = "GPU has fallen off the bus.";
        check(
            "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.",
            Some((79, "0000:05:00.0", None, None, lost)),
        );
        check(
            "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            Some((79, "0000:05:00.0", None, None, lost)),
        );
        check(
            "NVRM: Xid (0000:03:00): 14, Channel 00000001",
            Some((14, "0000:03:00.0", None, None, "Channel 00000001")),
        );
        check(
            "NVRM: Xid (PCI:0000:05:00): 99999, unknown error",
            Some((99_999, "0000:05:00.0", None, None, "unknown error")),
        );
        check("NVRM: Xid (PCI:0000:05:00):8", Some((8, "0000:05:00.0", None, None, "")));
        check("NVRM: Xid (PCI:0000:05:00): 38, pid=1659,", Some((38, "0000:05:00.0", Some(1659), None, "")));
        check(
            "NVRM: Xid (PCI:0000:05:00): 8, pid=\"x\", name=, y",
            Some((8, "0000:05:00.0", None, None, "y")),
        );
        check(
            "NVRM: Xid (PCI:0000:05:00): 8, name=x, Ch 1",
            Some((8, "0000:05:00.0", None, Some("x"), "Ch 1")),
        );
        check("Xid (PCI:0000:05:00): 8, a\u{1b}[2J\nb", Some((8, "0000:05:00.0", None, None, "a[2J b")));
    }

    #[test]
    fn names_are_free_text() {
        #[track_caller]
        fn check_name(rest: &str, name: &str, text: &str) {
            let line = format!("NVRM: Xid (PCI:0000:d1:00): 13, pid=77, name={rest}");
            check(&line, Some((13, "0000:d1:00.0", Some(77), Some(name), text)));
        }
        check_name("cache_mgr_main, Timeout after 45s", "cache_mgr_main", "Timeout after 45s");
        check_name("nvc:[driver], Timeout after 6s", "nvc:[driver]", "Timeout after 6s");
        check_name(
            "ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0",
            "ray::WorkerDict",
            "RLW_RXPIPE Nonfatal XC0 i0",
        );
        check_name("a, b c, Graphics SM Warp Exception", "a, b c", "Graphics SM Warp Exception");
        check_name("a, Ch 5, Ch 00000008", "a, Ch 5", "Ch 00000008");
        check_name("a, b, something new", "a", "b, something new");
        check_name("ends, here", "ends", "here");
        check_name("alone", "alone", "");
        check_name("x), 79, Ch 00000001", "x), 79", "Ch 00000001");
        check_name(
            "\u{e9}\u{e9}, \u{e9}\u{e9}\u{e9}\u{e9}\u{e9}, Ch 00000008",
            "\u{e9}\u{e9}, \u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
            "Ch 00000008",
        );
    }

    #[test]
    fn the_code_ends_as_the_driver_ends_it() {
        for (end, text) in
            [("", ""), (",", ""), (" \n", ""), ("\nNVRM: x", "NVRM: x"), (" (", "("), ("(x", "(x")]
        {
            let line = format!("NVRM: Xid (PCI:0000:05:00): 154{end}");
            check(&line, Some((154, "0000:05:00.0", None, None, text)));
        }
        check("NVRM: Xid (0001:00): 6, PE0002", Some((6, "0000:01:00.0", None, None, "PE0002")));
        // A cut within the digits cannot be told from a line that ends: the one wrong code that damage can make.
        check("NVRM: Xid (PCI:0000:05:00): 7", Some((7, "0000:05:00.0", None, None, "")));
    }

    #[test]
    fn rather_nothing_than_a_wrong_code() {
        for text in [
            "",
            "NVRM: Xid (invalid): some error",
            "NVRM: Xid (PCI:...): 154, GPU recovery action changed from 0x0 (None)",
            "NVRM: Xid : 32, pid=2280636",
            "NVRM: Xid (PCI:0000:05:00): ",
            "NVRM: Xid (PCI:0000:05:00): -79, x",
            "NVRM: Xid (PCI:0000:05:00): 0x4f, x",
            "NVRM: Xid (PCI:0000:05:00): 79abc",
            "NVRM: Xid (PCI:0000:05:00): 79 abc",
            "NVRM: Xid (PCI:0000:05:00): 7:9, x",
            "NVRM: Xid (PCI:0000:05:00): 7\u{fffd}, x",
            "NVRM: Xid (PCI:0000:05:00): 4294967296, x",
            "NVRM: Xid (PCI:0000:05:00) 79, x",
            "NVRM: Xid (PCI:0000:05:00: 79, x",
            "NVRM: Xid (PCI:0000:05:00",
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
            "NVRM: SXid (PCI:0000:06:00.0): 79, x",
            // a task may be called anything of up to 15 bytes
            "INFO: task Xid (1:2): 79,:123 blocked for more than 120 seconds.",
            "Xid (PCI:1:2):7[33]: segfault at 0",
            "INFO: task NVRM: Xid (1:2):79 blocked for more than 120 seconds.",
            "NVRM: Xid (1:2): 79, two names",
            "NVRM: Xid (1:23): 79, a parenthesis of the kernel's",
            "Xid (PCI:1:2:3): 79, the same",
        ] {
            check(text, None);
        }
        check(
            "x Xid (1:2): 3, y NVRM: Xid (PCI:0000:05:00): 79, z",
            Some((79, "0000:05:00.0", None, None, "z")),
        );
    }

    #[test]
    fn the_raw_line_loses_prefix_and_control_characters() {
        let line =
            driver_line("<3>[6085126.1] NVRM: Xid (PCI:0000:3b:00): 119, a\u{1b}b\n", LogOrigin::default());
        assert_eq!(line.unwrap().raw, "NVRM: Xid (PCI:0000:3b:00): 119, ab");
    }
}
