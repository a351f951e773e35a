//! Syslog facilities by name or number.
//!
//! In: `kernel`, `user`, or 0 to 23. Out: the number that /dev/kmsg carries in its priority. Source: syslog(3).

/// The names, in the order of their numbers.
const NAMES: [&str; 24] = [
    "kernel", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "ntp", "security", "console", "clock", "local0", "local1", "local2", "local3", "local4", "local5",
    "local6", "local7",
];

/// Reads a name or a number.
///
/// # Errors
/// A text for people.
pub fn parse(text: &str) -> Result<u8, String> {
    let by_name = NAMES.iter().position(|name| *name == text);
    let number = by_name.or_else(|| text.parse().ok()).filter(|n| *n < NAMES.len());
    number
        .and_then(|n| u8::try_from(n).ok())
        .ok_or_else(|| format!("{text}: must be kernel, user, … or 0 to 23"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, want) in [
            ("kernel", Some(0)),
            ("user", Some(1)),
            ("local7", Some(23)),
            ("3", Some(3)),
            ("24", None),
            ("kern", None),
        ] {
            assert_eq!(parse(text).ok(), want, "{text}");
        }
    }
}
