//! One package from Debian, without touching the system's own package state.
//!
//! In: the mirror the machine already uses, and what is wanted. Out: the package, unpacked into a folder.
//! What can go wrong: no Debian mirror is configured, or none of its suites has the package; both are said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell::output;

/// A package, and where it is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Its name.
    pub package: &'a str,
    /// Its exact upstream version; the newest of the first suite that has any, where it does not matter.
    pub version: Option<&'a str>,
    /// Suites, in the order they are asked.
    pub suites: &'a [&'a str],
    /// The archive's component: `main`, `non-free`, ….
    pub component: &'a str,
}

/// An archive, and the key ring that its entry names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mirror {
    uri: String,
    signed_by: Option<String>,
}

/// Downloads what is wanted and unpacks it into `into`.
pub fn unpack(wanted: &Wanted<'_>, into: &Path) -> Result<()> {
    let mirror =
        configured_mirror(Path::new("/etc/apt")).context("no Debian mirror in the machine's apt sources")?;
    if into.exists() {
        fs::remove_dir_all(into).with_context(|| format!("removing {}", into.display()))?;
    }
    let Wanted { package, version, suites, component } = wanted;
    let work = into.join("apt");
    for suite in *suites {
        let view = View::new(&work, &mirror, suite, component)?;
        // a suite the mirror does not carry is no reason to stop
        let Ok(Some(exact)) = view.find(package, *version) else { continue };
        eprintln!("xtask: {package} {exact} from Debian's {suite}");
        let archive = view.download(package, &exact)?;
        output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(into))?;
        return fs::remove_dir_all(&work).with_context(|| format!("removing {}", work.display()));
    }
    bail!("{package} {} is in none of {}", version.unwrap_or_default(), suites.join(", "))
}

/// apt's view of one suite, with lists and cache of its own.
struct View {
    folder: PathBuf,
}

impl View {
    fn new(work: &Path, mirror: &Mirror, suite: &str, component: &str) -> Result<Self> {
        let folder = work.join(suite);
        for part in ["lists/partial", "cache/archives/partial", "download"] {
            fs::create_dir_all(folder.join(part)).with_context(|| format!("making {}", folder.display()))?;
        }
        let key = mirror.signed_by.as_ref().map(|path| format!("[signed-by={path}] ")).unwrap_or_default();
        let line = format!("deb {key}{} {suite} {component}\n", mirror.uri);
        fs::write(folder.join("sources.list"), line)
            .with_context(|| format!("writing in {}", folder.display()))?;
        Ok(Self { folder })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let at = |name: &str| self.folder.join(name).display().to_string();
        for option in [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".to_owned(),
            "APT::Update::Error-Mode=any".to_owned(),
            // a build folder may not be readable to the user that apt would change to
            "APT::Sandbox::User=root".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command
    }

    /// The full version, such as `1.95.0+dfsg1-2~bpo13+1`, if the suite has the upstream version.
    fn find(&self, package: &str, version: Option<&str>) -> Result<Option<String>> {
        output(self.command("apt-get").args(["-q", "update"]))?;
        let table = output(self.command("apt-cache").args(["madison", package]))?;
        Ok(matching(&table, package, version))
    }

    fn download(&self, package: &str, exact: &str) -> Result<PathBuf> {
        let folder = self.folder.join("download");
        let wanted = format!("{package}={exact}");
        output(self.command("apt-get").args(["-q", "download", &wanted]).current_dir(&folder))?;
        let mut files = fs::read_dir(&folder)?;
        let file = files.next().context("apt-get download left no file")??;
        ensure!(files.next().is_none(), "apt-get download left several files in {}", folder.display());
        Ok(file.path())
    }
}

/// A line of `apt-cache madison`: package, version and origin between bars.
fn matching(table: &str, package: &str, version: Option<&str>) -> Option<String> {
    table.lines().find_map(|line| {
        let mut columns = line.split('|').map(str::trim);
        let (name, exact) = (columns.next()?, columns.next()?);
        let right = version.is_none_or(|version| {
            exact.strip_prefix(version).is_some_and(|rest| rest.starts_with(['+', '-', '~']))
        });
        (name == package && right).then(|| exact.to_owned())
    })
}

fn configured_mirror(etc_apt: &Path) -> Option<Mirror> {
    let parts = fs::read_dir(etc_apt.join("sources.list.d")).ok();
    let mut files: Vec<PathBuf> = parts.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.insert(0, etc_apt.join("sources.list"));
    files.iter().find_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        match path.extension()?.to_str()? {
            "sources" => in_stanzas(&text),
            "list" => in_lines(&text),
            _ => None,
        }
    })
}

/// The main archive's path ends so on every mirror; security and third-party archives have other paths.
fn is_debian(uri: &str) -> bool {
    uri.trim_end_matches('/').ends_with("/debian")
}

/// The older format: `deb [options] uri suite components`.
fn in_lines(text: &str) -> Option<Mirror> {
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let uri = rest.split_whitespace().next().filter(|uri| is_debian(uri))?;
        let key = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
        Some(Mirror { uri: uri.to_owned(), signed_by: key.map(str::to_owned) })
    })
}

/// The newer format: stanzas of `Name: value`. A key written into the stanza itself cannot be named in ours.
fn in_stanzas(text: &str) -> Option<Mirror> {
    text.split("\n\n").find_map(|stanza| {
        let field = |name: &str| {
            let of_line = |line: &str| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            };
            stanza.lines().find_map(of_line)
        };
        let uri = field("URIs")?.split_whitespace().find(|uri| is_debian(uri))?.to_owned();
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
        assert_eq!(in_stanzas(stanzas), mirror("http://m.example/debian", Some("/k.gpg")));
        let off = stanzas.replace("Signed-By", "Enabled: no\nSigned-By");
        assert_eq!(in_stanzas(&off), None);
        let lines = "# deb http://old.example/debian x main\ndeb https://p.example/node nodistro main\n\
            deb [arch=amd64 signed-by=/k.gpg] http://m.example/debian/ stable main\n";
        assert_eq!(in_lines(lines), mirror("http://m.example/debian/", Some("/k.gpg")));
        assert_eq!(
            in_lines("deb http://m.example/debian stable main"),
            mirror("http://m.example/debian", None)
        );
        assert_eq!(in_lines("deb [broken http://m.example/debian stable main"), None);
    }

    #[test]
    fn only_the_exact_version_will_do() {
        let table = " rust-src | 1.95.10+dfsg1-1 | http://m sid/main amd64 Packages\n \
            rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://m trixie-backports/main amd64 Packages\n";
        assert_eq!(matching(table, "rust-src", Some("1.95.0")).as_deref(), Some("1.95.0+dfsg1-2~bpo13+1"));
        assert_eq!(matching(table, "rust-src", Some("1.95.1")), None);
        assert_eq!(matching(table, "rust-doc", Some("1.95.0")), None);
        assert_eq!(matching("N: Unable to locate package", "rust-src", Some("1.95.0")), None);
        assert_eq!(
            matching(table, "rust-src", None).as_deref(),
            Some("1.95.10+dfsg1-1"),
            "the first, which is the newest"
        );
    }
}
