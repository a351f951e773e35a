//! Which characters of a foreign text may reach a terminal, a label or a log.
//!
//! In: a character. Out: whether it only stands for itself. Nothing can go wrong.

/// Format characters (general category Cf of Unicode 16: marks that reorder, join or hide text, and tags) and the
/// separators of lines and paragraphs (Zl, Zp), in order.
const FORMAT: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'), // with 2065, which is not assigned
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e007f}'), // tags, with the unassigned ones between
];

/// Neither a control character nor one that changes how others are shown.
pub fn is_plain(c: char) -> bool {
    let first_after = FORMAT.partition_point(|(first, _)| *first <= c);
    let format =
        first_after.checked_sub(1).is_some_and(|at| FORMAT.get(at).is_some_and(|(_, last)| c <= *last));
    !c.is_control() && !format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_text_around_it_is_not_plain() {
        for c in
            ['\0', '\u{1b}', '\u{85}', '\u{ad}', '\u{200b}', '\u{202e}', '\u{2029}', '\u{2066}', '\u{e0041}']
        {
            assert!(!is_plain(c), "{c:?}");
        }
        for c in [
            ' ',
            'a',
            '\u{a0}',
            '\u{e9}',
            '\u{2027}',
            '\u{202f}',
            '\u{2070}',
            '\u{4e2d}',
            '\u{1f600}',
            '\u{fffd}',
        ] {
            assert!(is_plain(c), "{c:?}");
        }
        assert!(FORMAT.is_sorted());
    }
}
