//! A log line without what a logger put in front of it, and text that is safe on a terminal.
//!
//! In: a line from /dev/kmsg, dmesg, syslog or the journal. Out: the kernel's own message.
//! What can go wrong: an unknown prefix stays; the parsers search, so that only the record's text is longer.

use super::scan::Scan;
use crate::model::plain::is_plain;

/// The message without the prefixes of dmesg (`[12.5]`, `[Mon Jan  1 …]`, `[T97]`, `<4>`, `kern  :warn  :`, ISO time),
/// syslog (`Nov 22 18:29:55 host kernel:`) and raw kmsg (`4,1,2,-;`).
pub fn message(line: &str) -> &str {
    let mut scan = Scan(line);
    scan.blanks();
    while raw_kmsg(&mut scan)
        || priority(&mut scan)
        || bracket(&mut scan)
        || decoded(&mut scan)
        || logger(&mut scan)
    {
        scan.blanks();
    }
    scan.0
}

/// The text without control and format characters, such as the marks that reorder text; line breaks and tabs become blanks.
pub fn plain(text: &str) -> String {
    if text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return text.to_owned(); // nearly always
    }
    let keep = |c: char| match c {
        '\n' | '\r' | '\t' => Some(' '),
        c => is_plain(c).then_some(c),
    };
    text.chars().filter_map(keep).collect()
}

/// Takes the step where `step` succeeds in full, else none of it.
fn step<'a>(scan: &mut Scan<'a>, step: impl FnOnce(&mut Scan<'a>) -> Option<()>) -> bool {
    let mut ahead = *scan;
    let done = step(&mut ahead).is_some();
    if done {
        *scan = ahead;
    }
    done
}

/// `prio,seq,usec,flags;`
fn raw_kmsg(scan: &mut Scan<'_>) -> bool {
    step(scan, |s| {
        for _ in 0..3 {
            digits(s)?;
            s.eat(",").then_some(())?;
        }
        s.run(|c| c.is_ascii_alphanumeric() || "-+,=".contains(c));
        s.eat(";").then_some(())
    })
}

/// `<4>`
fn priority(scan: &mut Scan<'_>) -> bool {
    step(scan, |s| {
        s.eat("<").then_some(())?;
        digits(s)?;
        s.eat(">").then_some(())
    })
}

/// `[  966.503025]`, `[Fri Aug 30 11:43:09 2024]`, `[T97]`
fn bracket(scan: &mut Scan<'_>) -> bool {
    step(scan, |s| {
        s.eat("[").then_some(())?;
        let inside = s.run(|c| c.is_ascii_alphanumeric() || " .:+-".contains(c));
        let is_stamp = inside.bytes().filter(u8::is_ascii_digit).count() > 0 && inside.len() <= 40;
        (is_stamp && s.eat("]")).then_some(())
    })
}

/// `kern  :warn  : `, with what dmesg puts after it
fn decoded(scan: &mut Scan<'_>) -> bool {
    step(scan, |s| {
        for _ in 0..2 {
            let word = s.run(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            s.blanks();
            (is_syslog_word(word) && s.eat(":")).then_some(())?;
        }
        Some(())
    }) || iso_time(scan)
}

/// Facility and level names, as `dmesg -x` prints them.
fn is_syslog_word(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
        "emerg", "alert", "crit", "err", "warn", "notice", "info", "debug",
    ];
    WORDS.contains(&word) || word.starts_with("local")
}

/// `2025-05-27T04:18:56,089671+00:00`
fn iso_time(scan: &mut Scan<'_>) -> bool {
    step(scan, |s| {
        let date = s.run(|c| c.is_ascii_digit() || c == '-');
        let time = s.run(|c| c.is_ascii_digit() || "T:.,+-Z".contains(c));
        (date.len() == 10 && time.starts_with('T') && time.len() >= 9 && s.blanks()).then_some(())
    })
}

/// `Nov 22 18:29:55 host kernel: `, `host kernel: `, `kernel: `: up to the word `kernel:`, near the beginning.
fn logger(scan: &mut Scan<'_>) -> bool {
    const FURTHEST: usize = 96;
    step(scan, |s| {
        let at = s.0.find("kernel: ").filter(|at| *at <= FURTHEST)?;
        let words = &s.0[..at];
        let alone = words.is_empty() || words.ends_with(' ');
        let few =
            words.split_whitespace().count() <= 4 && !words.split_whitespace().any(|w| w.ends_with(':'));
        (alone && few).then_some(())?;
        s.0 = &s.0[at + "kernel: ".len()..];
        Some(())
    })
}

fn digits(scan: &mut Scan<'_>) -> Option<()> {
    (!scan.run(|c| c.is_ascii_digit()).is_empty()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_go_and_messages_stay() {
        for prefix in [
            "",
            "[155044.078590] ",
            "[    0.000000] [T1234] ",
            "[Fri Mar  3 04:44:24 2023] ",
            "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ",
            "kern  :err   : [  12.5] ",
            "syslog:err   : 2025-05-27T04:18:56,089671+00:00 ",
            "Nov 22 18:29:55 node-1 kernel: [  966.503025] ",
            "2026-10-05T08:08:16-05:00 node-1 kernel: ",
            "kernel: ",
            "<3>[6085126.134786] ",
            "4,1234,5678901,-;",
            "4,1234,5678901,-,caller=T97;",
        ] {
            for text in ["NVRM: Xid (PCI:0000:01:00): 79, x", "[drm] Link 1", "a,b;c", "<b> 1", ""] {
                assert_eq!(message(&format!("{prefix}{text}")), text, "{prefix}");
            }
        }
        for text in ["a b c d e kernel: x", "err: x", "[not a stamp] x", "NVRM: Xid kernel: "] {
            assert_eq!(message(text), text);
        }
    }

    #[test]
    fn nothing_that_moves_a_terminal_stays() {
        assert_eq!(plain("a\u{1b}[31mb\r\nc\u{7}\u{9b}\u{202e}d\té"), "a[31mb  cd é");
    }
}
