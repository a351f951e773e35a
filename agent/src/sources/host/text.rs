//! What sysfs prints of a PCIe link, its errors and an InfiniBand port → numbers in one unit each.
//!
//! In: the bytes of one file. Out: a value, or why there is none. Sources: the kernel's `pci-sysfs.c` (link attributes),
//! `Documentation/ABI/testing/sysfs-bus-pci-devices-aer` and `Documentation/ABI/stable/sysfs-class-infiniband`.
//! What can go wrong: any bytes at all may stand there; what is not of the file's form is [`Absence::Invalid`].

use crate::model::{Absence, HostField, SampleValue};

/// What the kernel says where a link has no speed: the device is gone from the bus, or has no such register.
const UNKNOWN: &str = "Unknown";
/// What drivers print for a counter that their hardware does not have.
const NOT_COUNTED: &str = "N/A";

/// Reads the text of the file that `field` comes from.
pub fn parse(field: HostField, bytes: &[u8]) -> SampleValue {
    let Ok(text) = str::from_utf8(bytes) else { return SampleValue::Absent(Absence::Invalid) };
    let text = text.trim_ascii();
    let value = match field {
        HostField::PcieLinkSpeed | HostField::PcieLinkSpeedMax => speed(text),
        HostField::PcieLinkWidth | HostField::PcieLinkWidthMax => width(text),
        HostField::AerCorrectable | HostField::AerNonFatal | HostField::AerFatal => total(text),
        HostField::IbState => state(text, 5),
        HostField::IbPhysState => state(text, 7),
        HostField::IbRate => giga(text, "Gb/sec").ok_or(Absence::Invalid),
        HostField::IbLinkDowned | HostField::IbSymbolErrors => count(text),
    };
    value.map_or_else(SampleValue::Absent, SampleValue::Int)
}

/// `16.0 GT/s PCIe`; old kernels leave out the last word.
fn speed(text: &str) -> Result<i64, Absence> {
    if text.starts_with(UNKNOWN) {
        return Err(Absence::Blank);
    }
    giga(text, "GT/s").ok_or(Absence::Invalid)
}

/// Lanes. A device that does not answer reads as all ones, and a link that is down has no width.
fn width(text: &str) -> Result<i64, Absence> {
    const ALL_ONES: i64 = 63;
    const NO_REGISTER: i64 = 255;
    match number(text) {
        Some(lanes @ (1 | 2 | 4 | 8 | 12 | 16 | 32)) => Ok(lanes),
        Some(0 | ALL_ONES | NO_REGISTER) => Err(Absence::Blank),
        _ => Err(Absence::Invalid),
    }
}

/// A line per kind of error, and the last one with their sum: `TOTAL_ERR_COR 3`.
fn total(text: &str) -> Result<i64, Absence> {
    let line = text.lines().rev().find(|line| line.starts_with("TOTAL_ERR_"));
    line.and_then(|line| number(line.split_once(' ')?.1)).ok_or(Absence::Invalid)
}

/// `4: ACTIVE`, of which the number counts; 0 is none of the states.
fn state(text: &str, most: i64) -> Result<i64, Absence> {
    match text.split_once(':').and_then(|(state, _)| number(state)) {
        Some(0) => Err(Absence::Blank),
        Some(state) if state <= most => Ok(state),
        _ => Err(Absence::Invalid),
    }
}

fn count(text: &str) -> Result<i64, Absence> {
    if text.starts_with(NOT_COUNTED) {
        return Err(Absence::NotSupported);
    }
    number(text).ok_or(Absence::Invalid)
}

/// Digits only: `parse` alone would take a sign.
fn number(text: &str) -> Option<i64> {
    let text = text.trim_ascii();
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A decimal number of thousand millions, and its unit, as a whole number: `2.5 GT/s` is 2,500,000,000.
fn giga(text: &str, unit: &str) -> Option<i64> {
    const DECIMALS: usize = 9;
    let mut words = text.split_ascii_whitespace();
    let (amount, of) = (words.next()?, words.next()?);
    let (whole, decimals) = amount.split_once('.').unwrap_or((amount, "0"));
    if of != unit || whole.is_empty() || decimals.is_empty() || DECIMALS < decimals.len() {
        return None;
    }
    let scale = (decimals.len()..DECIMALS).fold(1, |scale: i64, _| scale * 10);
    let decimals = number(decimals)?.checked_mul(scale)?;
    number(whole)?.checked_mul(1_000_000_000)?.checked_add(decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLANK: Result<i64, Absence> = Err(Absence::Blank);
    const INVALID: Result<i64, Absence> = Err(Absence::Invalid);
    const MOST: &str = "9223372036854775807";
    const TOO_MANY: &str = "9223372036854775808";

    #[track_caller]
    fn check(field: HostField, rows: &[(&str, Result<i64, Absence>)]) {
        for (text, want) in rows {
            let want = want.map_or_else(SampleValue::Absent, SampleValue::Int);
            assert_eq!(parse(field, text.as_bytes()), want, "{field:?}: {text:?}");
        }
    }

    #[test]
    fn link_speeds_are_exact_in_transfers_per_second() {
        check(
            HostField::PcieLinkSpeed,
            &[
                ("16.0 GT/s PCIe\n", Ok(16_000_000_000)),
                ("2.5 GT/s PCIe\n", Ok(2_500_000_000)),
                ("32.0 GT/s\n", Ok(32_000_000_000)),
                ("8 GT/s\n", Ok(8_000_000_000)),
                ("Unknown\n", BLANK),
                ("Unknown speed\n", BLANK),
                ("16.0\n", INVALID),
                ("16.0 MT/s\n", INVALID),
                ("-16.0 GT/s\n", INVALID),
                ("+16.0 GT/s\n", INVALID),
                ("1e3 GT/s", INVALID),
                (". GT/s", INVALID),
                ("1. GT/s", INVALID),
                ("1.2.3 GT/s", INVALID),
                ("1.0000000001 GT/s", INVALID),
                ("9223372037 GT/s", INVALID),
                ("9223372036.9 GT/s", INVALID),
                ("99999999999999999999999999 GT/s", INVALID),
                ("", INVALID),
            ],
        );
    }

    #[test]
    fn widths_that_no_link_has_are_no_widths() {
        check(
            HostField::PcieLinkWidthMax,
            &[
                ("16\n", Ok(16)),
                ("1\n", Ok(1)),
                ("0\n", BLANK),
                ("63\n", BLANK),
                ("255\n", BLANK),
                ("3\n", INVALID),
                ("-1\n", INVALID),
                ("x16\n", INVALID),
                ("\u{1b}[31m16", INVALID),
            ],
        );
    }

    #[test]
    fn the_total_of_the_errors_counts() {
        let correctable = "RxErr 1\nBadTLP 0\nBadDLLP 2\nRollover 0\nTimeout 0\nNonFatalErr 0\nCorrIntErr 0\n\
                           HeaderOF 0\nTOTAL_ERR_COR 3\n";
        check(
            HostField::AerCorrectable,
            &[
                (correctable, Ok(3)),
                ("TOTAL_ERR_COR 0\n", Ok(0)),
                (&format!("TOTAL_ERR_COR {MOST}"), Ok(i64::MAX)),
                (&format!("TOTAL_ERR_COR {TOO_MANY}"), INVALID),
                ("TOTAL_ERR_COR\n", INVALID),
                ("TOTAL_ERR_COR many\n", INVALID),
                ("RxErr 1\n", INVALID),
                ("", INVALID),
            ],
        );
        check(HostField::AerFatal, &[("Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 7\n", Ok(7))]);
        check(HostField::AerNonFatal, &[("Undefined 0\nDLP 0\nTOTAL_ERR_NONFATAL 9\n", Ok(9))]);
    }

    #[test]
    fn ports_have_states_rates_and_counts() {
        check(HostField::IbState, &[("4: ACTIVE\n", Ok(4)), ("1: DOWN\n", Ok(1)), ("0: NOP\n", BLANK)]);
        check(HostField::IbState, &[("6: ODD\n", INVALID), ("4\n", INVALID), ("ACTIVE: 4\n", INVALID)]);
        check(HostField::IbPhysState, &[("5: LinkUp\n", Ok(5)), ("7: Phy Test\n", Ok(7)), ("8: x", INVALID)]);
        let rates = [
            ("100 Gb/sec (4X EDR)\n", Ok(100_000_000_000)),
            ("2.5 Gb/sec (1X SDR)\n", Ok(2_500_000_000)),
            ("100 Mb/sec\n", INVALID),
        ];
        check(HostField::IbRate, &rates);
        let counts = [
            ("0\n", Ok(0)),
            ("65535\n", Ok(65_535)),
            (MOST, Ok(i64::MAX)),
            (TOO_MANY, INVALID),
            ("N/A (no PMA)\n", Err(Absence::NotSupported)),
            ("-1\n", INVALID),
            ("\n", INVALID),
        ];
        check(HostField::IbLinkDowned, &counts);
        check(HostField::IbSymbolErrors, &counts);
    }

    #[test]
    fn bytes_that_are_no_text_are_invalid_everywhere() {
        for field in HostField::ALL {
            assert_eq!(parse(*field, b"1\xff\xfe: \0"), SampleValue::Absent(Absence::Invalid), "{field:?}");
        }
    }
}
