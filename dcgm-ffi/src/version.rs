//! Versions of a library or an engine.
//!
//! In: the text that `dcgmVersionInfo` fills: `key:value;` pairs, any of which may be missing. Out:
//! [`Version`]. What can go wrong: no `version`, or none that we can read; then there is no version, and
//! callers ask for symbols.

use std::fmt;

/// A version. Compared by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// First number; it is also the one in the library's file name.
    pub major: u16,
    /// Second number.
    pub minor: u16,
    /// Third number.
    pub patch: u16,
}

impl Version {
    /// A version by its numbers.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// Reads `4.6.0`, `4.6` or `4.6.0-rc1`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split('.');
        let mut next = || {
            let digits: &str = numbers.next()?;
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits.get(..end)?.parse().ok()
        };
        Some(Self { major: next()?, minor: next()?, patch: next().unwrap_or(0) })
    }

    /// Reads the `version` of a build's text.
    pub fn of_build(text: &str) -> Option<Self> {
        text.split(';').find_map(|pair| Self::parse(pair.trim().strip_prefix("version:")?))
    }

    /// At least this one.
    pub fn at_least(self, major: u16, minor: u16) -> bool {
        (major, minor) <= (self.major, self.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_among_the_pairs() {
        let cases = [
            ("version:4.6.0;arch:x86_64;buildtype:Release;;crc:0", Some(Version::new(4, 6, 0))),
            ("arch:x86_64;version:3.3.9", Some(Version::new(3, 3, 9))),
            ("version:4.6.0-rc1;", Some(Version::new(4, 6, 0))),
            ("version:4.6;", Some(Version::new(4, 6, 0))),
            ("hostversion:1.2.3;", None),
            ("version:;", None),
            ("version:four.six;", None),
            ("version:99999.1.1;", None),
            ("", None),
        ];
        for (text, version) in cases {
            assert_eq!(Version::of_build(text), version, "{text}");
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(Version::new(4, 10, 0).at_least(4, 9));
        assert!(Version::new(4, 3, 0).at_least(4, 3));
        assert!(!Version::new(3, 9, 9).at_least(4, 0));
    }
}
