//! A version of the library or engine.
//!
//! In: `4.6.0`. Out: something that can be compared. What can go wrong: other text is `None`.

/// Three numbers, compared in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16, pub u16);

impl Version {
    /// `major.minor` or `major.minor.patch`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.').map(str::parse);
        let version = Self(parts.next()?.ok()?, parts.next()?.ok()?, parts.next().unwrap_or(Ok(0)).ok()?);
        parts.next().is_none().then_some(version)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        assert_eq!(Version::parse("4.6"), Some(Version(4, 6, 0)));
        assert!(Version::parse("3.10.0") > Version::parse("3.3.9"));
        for wrong in ["", "4", "4.x.1", "4.5.3.1", "99999.1"] {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
    }
}
