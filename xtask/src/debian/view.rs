//! apt's view of some suites, with lists and cache of its own; `/etc` and the installed packages stay as they are.
//!
//! In: suites, and package names. Out: what apt knows of them, and downloaded archives.
//! What can go wrong: a mirror does not carry a suite (any more), or cannot be reached; the error has apt's words.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::mirror::{Archive, configured};
use crate::shell::output;

/// A suite of an archive.
#[derive(Clone, Copy, Debug)]
pub struct Suite<'a> {
    /// Where it lies.
    pub archive: Archive,
    /// Its name, such as `bookworm-backports`.
    pub name: &'a str,
}

/// apt, as it sees these suites only.
#[derive(Debug)]
pub struct View {
    folder: PathBuf,
}

impl View {
    /// A view whose files lie in `folder`; [`update`](Self::update) fills it.
    pub fn new(folder: &Path, suites: &[Suite<'_>], component: &str) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial", "download"] {
            fs::create_dir_all(folder.join(part)).with_context(|| format!("making {}", folder.display()))?;
        }
        let mut lines = String::new();
        for suite in suites {
            let mirror = configured(suite.archive)?;
            let key = mirror.signed_by.map(|path| format!("[signed-by={path}] ")).unwrap_or_default();
            lines.push_str(&format!("deb {key}{} {} {component}\n", mirror.uri, suite.name));
        }
        fs::write(folder.join("sources.list"), lines)
            .with_context(|| format!("writing in {}", folder.display()))?;
        Ok(Self { folder: folder.to_path_buf() })
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
        // its words are read below
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Brings the lists of the suites.
    pub fn update(&self) -> Result<()> {
        output(self.command("apt-get").args(["-q", "update"])).map(drop)
    }

    /// The full version, such as `1.95.0+dfsg1-2~bpo13+1`, if the suites have the upstream version.
    pub fn find(&self, package: &str, version: Option<&str>) -> Result<Option<String>> {
        let table = output(self.command("apt-cache").args(["madison", package]))?;
        Ok(matching(&table, package, version))
    }

    /// What a package depends on, alternatives included.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let text = output(self.command("apt-cache").args(["depends", package]))?;
        Ok(dependencies(&text).into_iter().map(ToOwned::to_owned).collect())
    }

    /// The files' names of exactly these packages.
    pub fn names(&self, packages: &[String]) -> Result<Vec<String>> {
        let text = output(self.command("apt-get").args(["-q", "download", "--print-uris"]).args(packages))?;
        Ok(file_names(&text))
    }

    /// Downloads exactly these packages (`name` or `name=version`).
    pub fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>> {
        let folder = self.folder.join("download");
        output(self.command("apt-get").args(["-q", "download"]).args(packages).current_dir(&folder))?;
        archives(&folder)
    }

    /// The files' names of what installing these packages would bring, with all they need that this machine lacks.
    pub fn names_with_needs(&self, packages: &[&str], preferred: &str) -> Result<Vec<String>> {
        Ok(file_names(&output(self.install(packages, preferred).arg("--print-uris"))?))
    }

    /// Downloads the same; nothing is installed.
    pub fn download_with_needs(&self, packages: &[&str], preferred: &str) -> Result<Vec<PathBuf>> {
        output(self.install(packages, preferred).arg("--download-only"))?;
        archives(&self.folder.join("cache/archives"))
    }

    fn install(&self, packages: &[&str], preferred: &str) -> Command {
        let mut command = self.command("apt-get");
        command.args(["-q", "install", "--yes", "--no-install-recommends", "--target-release", preferred]);
        // nothing of the system's is changed, so its lock is left to others
        command.args(["-o", "Debug::NoLocking=true"]).args(packages);
        command
    }
}

/// Unpacks an archive into a folder.
pub fn extract(archive: &Path, into: &Path) -> Result<()> {
    output(Command::new("dpkg-deb").arg("-x").arg(archive).arg(into)).map(drop)
}

fn archives(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "deb")).collect())
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

/// Lines of `apt-cache depends`.
fn dependencies(text: &str) -> Vec<&str> {
    let names =
        text.lines().filter_map(|line| line.trim_start().trim_start_matches('|').strip_prefix("Depends: "));
    names.map(str::trim).collect()
}

/// Lines of `--print-uris`: `'address' file size hash`.
fn file_names(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let mut words = line.split(' ');
        let address = words.next()?;
        (address.starts_with('\'') && address.ends_with('\''))
            .then(|| words.next())
            .flatten()
            .map(str::to_owned)
    };
    text.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn only_what_is_needed_counts_as_a_dependency() {
        let text = "linux-headers-6.1.0-57-cloud-amd64\n  Depends: linux-headers-6.1.0-57-common\n \
                    |Depends: <gcc>\n  Conflicts: linux-x\n  Depends: linux-kbuild-6.1\n";
        assert_eq!(dependencies(text), ["linux-headers-6.1.0-57-common", "<gcc>", "linux-kbuild-6.1"]);
        assert!(dependencies("N: Unable to locate package x\n").is_empty());
    }

    #[test]
    fn files_to_come_are_known_before_they_do() {
        let text = "Reading package lists...\n'http://m/debian/pool/main/a/a_1%3a2-3_amd64.deb' a_1%3a2-3_amd64.deb 9 \
                    SHA256:0\n'http://m/debian/pool/b_1_all.deb' b_1_all.deb 1 MD5Sum:0\n";
        assert_eq!(file_names(text), ["a_1%3a2-3_amd64.deb", "b_1_all.deb"]);
        assert!(file_names("E: no such package\n").is_empty());
    }
}
