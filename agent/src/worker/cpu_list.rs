//! CPUs in the kernel's list format: `0-31,64-95`.
//!
//! In: CPU numbers. Out: text. What can go wrong: no CPU; then there is no text.

use std::fmt::Write as _;

/// The list of rising numbers.
pub fn of(cpus: &[u32]) -> Option<String> {
    let mut text = String::new();
    for run in cpus.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        let (first, last) = (run.first()?, run.last()?);
        let comma = if text.is_empty() { "" } else { "," };
        // A String takes all that is written to it.
        let _ = if first == last {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn runs_are_joined() {
        let check = |cpus: &[u32], want: Option<&str>| assert_eq!(of(cpus).as_deref(), want);
        check(&[], None);
        check(&[3], Some("3"));
        check(&[0, 1, 2, 64, 65, 70], Some("0-2,64-65,70"));
        check(&[0, u32::MAX], Some("0,4294967295"));
    }
}
