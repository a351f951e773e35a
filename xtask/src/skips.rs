//! Which tests may skip, and for which need.
//!
//! In: `tests/skips.allow`, and the file that tests append their skips to. Out: the skips, or those not allowed.
//! A line of both files is `test need`; `#` begins a comment. What can go wrong: a skip that nobody allowed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;

use crate::workspace;

/// The skips of a run, and which of them were not allowed.
pub(crate) fn check(skipped: &Path) -> anyhow::Result<(BTreeSet<String>, Vec<String>)> {
    let allowed = workspace::path("tests/skips.allow");
    let allowed =
        std::fs::read_to_string(&allowed).with_context(|| format!("cannot read {}", allowed.display()))?;
    let skipped = match std::fs::read_to_string(skipped) {
        Ok(text) => lines(&text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeSet::new(),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", skipped.display())),
    };
    let allowed = lines(&allowed);
    let surplus = skipped.difference(&allowed).cloned().collect();
    Ok((skipped, surplus))
}

fn lines(text: &str) -> BTreeSet<String> {
    let entry = |line: &str| {
        let words: Vec<&str> = line.split('#').next()?.split_ascii_whitespace().collect();
        (!words.is_empty()).then(|| words.join(" "))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blanks_do_not_count() {
        let want = BTreeSet::from(["a::b root".to_owned()]);
        assert_eq!(lines("# why\n\n a::b   root # on a laptop\n"), want);
    }
}
