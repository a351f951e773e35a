//! One record of /dev/kmsg, as the kernel prints it: `prio,seq,usec,flags[,more];text`.
//!
//! In: the bytes of one read. Out: [`Record`], borrowing them. Dictionary lines (` KEY=value`) are no part of its message.
//! What can go wrong: bytes that are no record; they yield `None`. Source of the format: the kernel's
//! Documentation/ABI/testing/dev-kmsg.

use std::borrow::Cow;

use crate::model::KmsgUs;

/// The parts of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Who wrote it: 0 is the kernel; user space gets 1 or what it asked for, never 0.
    pub facility: u8,
    /// 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Counts every record since boot, from 0.
    pub seq: u64,
    /// When it was written, on the kernel log's own clock.
    pub stamp: KmsgUs,
    /// The text, still escaped, with the dictionary lines behind it: cut only where somebody wants to read it.
    pub text: &'a [u8],
}

/// Reads one record.
pub fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let semicolon = bytes.iter().position(|&b| b == b';')?;
    let (header, text) = (&bytes[..semicolon], &bytes[semicolon + 1..]);
    let mut fields = std::str::from_utf8(header).ok()?.split(',');
    let priority = number(fields.next()?)?;
    let (seq, stamp) = (number(fields.next()?)?, number(fields.next()?)?);
    fields.next()?; // the continuation flag: a line is recognised by its text, wherever its beginning went
    Some(Record {
        facility: u8::try_from(priority >> 3).ok()?,
        level: u8::try_from(priority & 7).ok()?,
        seq,
        stamp: KmsgUs(stamp),
        text,
    })
}

impl<'a> Record<'a> {
    /// The text's first line with the kernel's `\xHH` escapes (control characters, non-ASCII bytes, the backslash)
    /// undone. Bytes that are not UTF-8 become U+FFFD. Allocates only where something has to change.
    pub fn message(&self) -> Cow<'a, str> {
        let end = self.text.iter().position(|&b| b == b'\n').unwrap_or(self.text.len());
        let mut rest = &self.text[..end];
        if !rest.contains(&b'\\') {
            return String::from_utf8_lossy(rest);
        }
        let mut bytes = Vec::with_capacity(rest.len());
        while let Some((&first, tail)) = rest.split_first() {
            let (byte, after) = escape(rest).unwrap_or((first, tail));
            bytes.push(byte);
            rest = after;
        }
        Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The byte an escape stands for, and what follows it.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.strip_prefix(b"\\x")?.split_at_checked(2)?;
    let hex = |digit: u8| char::from(digit).to_digit(16);
    let value = hex(digits[0])? * 16 + hex(digits[1])?;
    Some((u8::try_from(value).ok()?, rest))
}

/// Digits only: `parse` alone would take a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_its_parts_and_its_first_line() {
        #[track_caller]
        fn check(bytes: &[u8], want: Option<(u8, u8, u64, u64, &str)>) {
            let got = parse(bytes);
            let message = got.map(|r| r.message());
            let got =
                got.zip(message.as_deref()).map(|(r, text)| (r.facility, r.level, r.seq, r.stamp.0, text));
            assert_eq!(got, want, "{}", bytes.escape_ascii());
        }
        check(b"3,1201,86400000000,-;NVRM: x\n", Some((0, 3, 1201, 86_400_000_000, "NVRM: x")));
        check(
            b"4,1202,86400000100,c;  more\n SUBSYSTEM=pci\n DEVICE=+pci:0\n",
            Some((0, 4, 1202, 86_400_000_100, "  more")),
        );
        check(b"14,7,8,-,caller=T97;user; text", Some((1, 6, 7, 8, "user; text")));
        check(b"0,0,0,-;", Some((0, 0, 0, 0, "")));
        check(b"6,1,1,-;a\\x0ab\\x5cx41\\xc3\\xa9", Some((0, 6, 1, 1, "a\nb\\x41\u{e9}")));
        check(b"6,1,1,-;cut \\x0 \\xzz \\xff \\", Some((0, 6, 1, 1, "cut \\x0 \\xzz \u{fffd} \\")));
        check(b"2047,18446744073709551615,18446744073709551615,+;x", Some((255, 7, u64::MAX, u64::MAX, "x")));
        for broken in [
            &b""[..],
            b";",
            b"x",
            b"4,1,2;three fields",
            b"4,1,-2,-;sign",
            b"+4,1,2,-;sign",
            b",1,2,-;empty",
            b"4,18446744073709551616,2,-;too large",
            b"2048,1,2,-;facility of nine bits",
            b"4,\xff,2,-;not text",
            b"4,1,2,-",
            b" SUBSYSTEM=pci",
        ] {
            check(broken, None);
        }
    }

    #[test]
    fn plain_text_is_borrowed() {
        let record = parse(b"4,1,2,-;NVRM: Xid").unwrap();
        assert!(matches!(record.message(), Cow::Borrowed("NVRM: Xid")));
    }
}
