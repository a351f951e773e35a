//! The Debian mirror that the machine already uses.
//!
//! In: apt's sources, in both of its formats. Out: an archive's address, and the key ring that its entry names.
//! What can go wrong: none is configured; it is said.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Which of Debian's archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archive {
    /// Releases and backports.
    Main,
    /// Security updates.
    Security,
}

impl Archive {
    /// How its path ends on every mirror; third-party archives have other paths.
    fn ending(self) -> &'static str {
        match self {
            Self::Main => "/debian",
            Self::Security => "/debian-security",
        }
    }

    fn is_at(self, uri: &str) -> bool {
        uri.trim_end_matches('/').ends_with(self.ending())
    }
}

/// An archive, and the key ring that its entry names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mirror {
    pub(super) uri: String,
    pub(super) signed_by: Option<String>,
}

/// The machine's mirror of an archive.
pub(super) fn configured(archive: Archive) -> Result<Mirror> {
    let etc_apt = Path::new("/etc/apt");
    let beside_main = || {
        let main = in_folder(etc_apt, Archive::Main)?;
        Some(Mirror { uri: beside(&main.uri, archive), ..main })
    };
    let found = in_folder(etc_apt, archive).or_else(beside_main);
    found.context("no Debian mirror in the machine's apt sources")
}

/// Mirrors have the archives side by side.
fn beside(main: &str, archive: Archive) -> String {
    let root = main.trim_end_matches('/').trim_end_matches(Archive::Main.ending());
    format!("{root}{}", archive.ending())
}

fn in_folder(etc_apt: &Path, archive: Archive) -> Option<Mirror> {
    let parts = fs::read_dir(etc_apt.join("sources.list.d")).ok();
    let mut files: Vec<PathBuf> = parts.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.insert(0, etc_apt.join("sources.list"));
    files.iter().find_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        match path.extension()?.to_str()? {
            "sources" => in_stanzas(&text, archive),
            "list" => in_lines(&text, archive),
            _ => None,
        }
    })
}

/// The older format: `deb [options] uri suite components`.
fn in_lines(text: &str, archive: Archive) -> Option<Mirror> {
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let uri = rest.split_whitespace().next().filter(|uri| archive.is_at(uri))?;
        let key = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
        Some(Mirror { uri: uri.to_owned(), signed_by: key.map(str::to_owned) })
    })
}

/// The newer format: stanzas of `Name: value`. A key written into the stanza itself cannot be named in ours.
fn in_stanzas(text: &str, archive: Archive) -> Option<Mirror> {
    text.split("\n\n").find_map(|stanza| {
        let field = |name: &str| {
            let of_line = |line: &str| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            };
            stanza.lines().find_map(of_line)
        };
        let uri = field("URIs")?.split_whitespace().find(|uri| archive.is_at(uri))?.to_owned();
        let off = field("Enabled").is_some_and(|value| value.eq_ignore_ascii_case("no"));
        let key = field("Signed-By").filter(|path| path.starts_with('/'));
        (!off).then_some(Mirror { uri, signed_by: key })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(uri: &str, key: Option<&str>) -> Option<Mirror> {
        Some(Mirror { uri: uri.to_owned(), signed_by: key.map(str::to_owned) })
    }

    #[test]
    fn the_main_archive_is_found_in_both_formats() {
        let stanzas = "Types: deb\nURIs: http://m.example/debian-security\nSuites: stable-security\n\n\
            Types: deb\n# a comment: here\nURIs: http://m.example/debian\nSuites: stable\nSigned-By: /k.gpg\n";
        assert_eq!(in_stanzas(stanzas, Archive::Main), mirror("http://m.example/debian", Some("/k.gpg")));
        let off = stanzas.replace("Signed-By", "Enabled: no\nSigned-By");
        assert_eq!(in_stanzas(&off, Archive::Main), None);
        let lines = "# deb http://old.example/debian x main\ndeb https://p.example/node nodistro main\n\
            deb [arch=amd64 signed-by=/k.gpg] http://m.example/debian/ stable main\n";
        assert_eq!(in_lines(lines, Archive::Main), mirror("http://m.example/debian/", Some("/k.gpg")));
        assert_eq!(
            in_lines("deb http://m.example/debian stable main", Archive::Main),
            mirror("http://m.example/debian", None)
        );
        assert_eq!(in_lines("deb [broken http://m.example/debian stable main", Archive::Main), None);
    }

    #[test]
    fn the_archive_of_security_updates_is_told_from_the_main_one() {
        let stanzas =
            "URIs: http://m.example/debian\n\nURIs: http://m.example/debian-security/\nSigned-By: /k.gpg\n";
        let security = in_stanzas(stanzas, Archive::Security);
        assert_eq!(security, mirror("http://m.example/debian-security/", Some("/k.gpg")));
        assert_eq!(in_stanzas(stanzas, Archive::Main), mirror("http://m.example/debian", None));
        for main in ["http://m.example/debian", "http://m.example/debian/"] {
            assert_eq!(beside(main, Archive::Security), "http://m.example/debian-security");
        }
    }
}
