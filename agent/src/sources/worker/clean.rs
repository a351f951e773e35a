//! Texts of the worker, made harmless: they come from foreign libraries and reach terminals, labels and logs.
//!
//! In: any text. Out: a bounded one without control and format characters, or `None` where nothing is left.
//! What can go wrong: nothing; what does not fit is cut off.

use crate::model::plain::is_plain;

/// Characters of a text for people.
const TEXT_MAX: usize = 512;
/// Characters of a name: an identity, a product, a function.
const NAME_MAX: usize = 96;
/// Characters of a short word.
const WORD_MAX: usize = 32;

/// A text for people.
pub fn text(raw: &str) -> Option<String> {
    cut(raw, TEXT_MAX)
}

/// A name.
pub fn name(raw: &str) -> Option<String> {
    cut(raw, NAME_MAX)
}

/// A short word of lower-case letters, digits and `_`; nothing else is passed on.
pub fn word(raw: &str) -> Option<String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (!raw.is_empty() && raw.len() <= WORD_MAX && raw.bytes().all(plain)).then(|| raw.to_owned())
}

/// An identity of a device: one printable word.
pub fn identity(raw: &str) -> Option<&str> {
    (!raw.is_empty() && raw.len() <= NAME_MAX && raw.bytes().all(|b| b.is_ascii_graphic())).then_some(raw)
}

fn cut(raw: &str, most: usize) -> Option<String> {
    let clean: String = raw.chars().filter(|c| is_plain(*c)).take(most).collect();
    let clean = clean.trim();
    (!clean.is_empty()).then(|| clean.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_harmful_and_nothing_endless_passes() {
        assert_eq!(text(" NVIDIA\u{1b}[31m H100\n"), Some("NVIDIA[31m H100".to_owned()));
        assert_eq!(text("\0\u{7}\u{202e}"), None);
        assert_eq!(text("H100\u{202e}gpj\u{2066}.x"), Some("H100gpj.x".to_owned()));
        assert_eq!(name(&"x".repeat(1_000)).map(|n| n.len()), Some(NAME_MAX));
        assert_eq!(word("no_library").as_deref(), Some("no_library"));
        for bad in ["", "No", "a b", "a\n", &"x".repeat(33)] {
            assert_eq!(word(bad), None, "{bad:?}");
        }
        assert_eq!(identity("GPU-0f-1"), Some("GPU-0f-1"));
        for bad in ["", "GPU 1", "GPU-\u{e9}", "GPU-\n", &"x".repeat(97)] {
            assert_eq!(identity(bad), None, "{bad:?}");
        }
    }
}
