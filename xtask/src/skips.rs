//! Which tests may skip, for which need, and where.
//!
//! In: `tests/skips.allow`, and the file that tests append their skips to. Out: the skips, or those not allowed.
//! A skip is `test need`; a line that allows one has the place behind it: `elsewhere` is any machine but CI's,
//! `anywhere` includes it. `#` begins a comment. What can go wrong: a skip that nobody allowed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;

use crate::workspace;

/// The skips of a run, and which of them were not allowed where it ran.
pub(crate) fn check(skipped: &Path, in_ci: bool) -> anyhow::Result<(BTreeSet<String>, Vec<String>)> {
    let allowed = workspace::path("tests/skips.allow");
    let allowed =
        std::fs::read_to_string(&allowed).with_context(|| format!("cannot read {}", allowed.display()))?;
    let skipped = match std::fs::read_to_string(skipped) {
        Ok(text) => lines(&text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeSet::new(),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", skipped.display())),
    };
    let allowed = allowed_in(&allowed, in_ci);
    let surplus = skipped.difference(&allowed).cloned().collect();
    Ok((skipped, surplus))
}

fn allowed_in(text: &str, in_ci: bool) -> BTreeSet<String> {
    let of_place = |line: String| {
        let (skip, place) = line.rsplit_once(' ')?;
        (place == "anywhere" || (place == "elsewhere" && !in_ci)).then(|| skip.to_owned())
    };
    lines(text).into_iter().filter_map(of_place).collect()
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

    #[test]
    fn a_skip_is_allowed_for_its_need_at_its_place() {
        let text = "a root elsewhere\nb tty0 anywhere\nc root\n";
        let allowed = |in_ci| allowed_in(text, in_ci).into_iter().collect::<Vec<_>>();
        assert_eq!(allowed(false), ["a root", "b tty0"]);
        assert_eq!(allowed(true), ["b tty0"]);
    }
}
