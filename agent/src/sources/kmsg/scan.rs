//! A place in a text that moves forward over what it recognises: what the line parsers are written with.
//!
//! In: a line. Out: its pieces, borrowed. Linear in the text; allocates nothing.
//! Nothing can go wrong: what is not there is `false` or `None`, and the place stays where it was.

/// The text that is still to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan<'a>(pub(super) &'a str);

impl<'a> Scan<'a> {
    /// Steps over exactly `what`.
    pub(super) fn eat(&mut self, what: &str) -> bool {
        let rest = self.0.strip_prefix(what);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Steps over blanks; whether there were any.
    pub(super) fn blanks(&mut self) -> bool {
        let before = self.0.len();
        self.0 = self.0.trim_start_matches([' ', '\t']);
        self.0.len() < before
    }

    /// Steps over what `belongs` accepts, which may be nothing.
    pub(super) fn run(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|c| !belongs(c)).unwrap_or(self.0.len());
        let (run, rest) = self.0.split_at(end);
        self.0 = rest;
        run
    }

    /// A decimal number: the whole run of digits, or `None` where there is none or it does not fit.
    pub(super) fn number(&mut self) -> Option<u32> {
        let mut ahead = *self;
        let number = ahead.run(|c| c.is_ascii_digit()).parse().ok()?;
        *self = ahead;
        Some(number)
    }

    /// Whether a word ends here: nothing follows, or something that cannot be part of one.
    pub(super) fn at_word_end(&self) -> bool {
        !self.0.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.')
    }
}

/// What follows the first `key` after which `read` finds something; `key` must begin a word.
pub(super) fn after<'a, T>(text: &'a str, key: &str, read: impl Fn(&mut Scan<'a>) -> Option<T>) -> Option<T> {
    if !text.contains(key) {
        return None; // much cheaper than preparing to find each
    }
    text.match_indices(key).find_map(|(at, key)| {
        let begins_word = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        begins_word.then(|| read(&mut Scan(&text[at + key.len()..]))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_moves_nothing() {
        let mut scan = Scan("Link 99999999999 a");
        assert!(!scan.eat("link"));
        assert!(scan.eat("Link") && scan.blanks());
        assert_eq!(scan.number(), None, "does not fit");
        assert_eq!(scan.run(|c| c == '9'), "99999999999");
        assert!(scan.at_word_end() && scan.blanks() && !scan.at_word_end());
    }

    #[test]
    fn a_key_is_found_at_the_beginning_of_a_word_only() {
        let number = |text| after(text, "SM ", Scan::number);
        assert_eq!(number("Graphics SM Warp Exception on (GPC 1, TPC 2, SM 3)"), Some(3));
        assert_eq!(number("XSM 3"), None);
        assert_eq!(number(""), None);
    }
}
