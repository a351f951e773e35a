//! Durations as people write them: `250ms`, `1s`, `5m`, `1h`.
//!
//! In: a text of a flag or a file. Out: a [`Duration`]. What can go wrong: no unit, or no number; the error says how.

use std::time::Duration;

/// Reads a whole number with its unit.
///
/// # Errors
/// A text for people, when there is no unit or no number.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let wrong = || format!("{text}: must be a whole number with ms, s, m or h, such as 250ms");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(ms).map(Duration::from_millis).ok_or_else(wrong)
}

/// Like [`parse`], within bounds that are part of the error.
///
/// # Errors
/// A text for people, when the text is no duration or lies outside.
pub fn parse_within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let parsed = parse(text)?;
    if (least..=most).contains(&parsed) {
        return Ok(parsed);
    }
    Err(format!("{text}: must be {} ms to {} ms", least.as_millis(), most.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_a_unit() {
        for (text, want) in [
            ("250ms", Some(250)),
            ("1s", Some(1_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("0s", Some(0)),
            ("5", None),
            ("s", None),
            ("1.5s", None),
            ("-1s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
            ("1 s", None),
            ("", None),
        ] {
            assert_eq!(parse(text).ok().map(|d| d.as_millis()), want, "{text}");
        }
    }

    #[test]
    fn bounds_are_part_of_the_error() {
        let (least, most) = (Duration::from_millis(50), Duration::from_secs(10));
        assert_eq!(parse_within("1s", least, most), Ok(Duration::from_secs(1)));
        assert_eq!(parse_within("1ms", least, most), Err("1ms: must be 50 ms to 10000 ms".to_owned()));
    }
}
