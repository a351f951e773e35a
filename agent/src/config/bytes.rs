//! Amounts of memory as people write them: `512KiB`, `160MiB`, `1GiB`.
//!
//! In: a text of a flag or a file. Out: bytes. What can go wrong: no unit, or no number; the error says how.

/// Reads a whole number with its unit, within bounds in bytes.
///
/// # Errors
/// A text for people, when the text is no amount or lies outside.
pub fn parse_within(text: &str, least: u64, most: u64) -> Result<u64, String> {
    const MIB: u64 = 1024 * 1024;
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim_start() {
        "KiB" => Some(1024),
        "MiB" => Some(MIB),
        "GiB" => Some(1024 * MIB),
        _ => None,
    };
    let bytes = unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
    let bytes = bytes
        .ok_or_else(|| format!("{text}: must be a whole number with KiB, MiB or GiB, such as 160MiB"))?;
    if (least..=most).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("{text}: must be {} MiB to {} MiB", least / MIB, most / MIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_need_a_unit_and_lie_within_their_bounds() {
        for (text, want) in [
            ("160MiB", Some(160 << 20)),
            ("160 MiB", Some(160 << 20)),
            ("2048KiB", Some(2 << 20)),
            ("1GiB", Some(1 << 30)),
            ("2GiB", None),
            ("1KiB", None),
            ("160", None),
            ("160MB", None),
            ("-1MiB", None),
            ("", None),
            ("18446744073709551615GiB", None),
        ] {
            assert_eq!(parse_within(text, 1 << 20, 1 << 30).ok(), want, "{text}");
        }
    }
}
