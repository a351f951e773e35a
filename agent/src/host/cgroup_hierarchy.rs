//! Which cgroup hierarchy carries the containers, and where it is mounted.
//!
//! In: a mount table, and what the configuration forces. Out: [`Hierarchy`], for the probes and the attribution alike:
//! a cgroup id means nothing without the hierarchy it is from.
//! What can go wrong: the hierarchy asked for is not mounted; the error names the remedy.

use std::fs;
use std::path::{Path, PathBuf};

use super::HostRoot;
use crate::config::CgroupChoice;

/// A hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Which of the two interfaces.
    pub version: Version,
    /// Its root directory, as the mount table names it.
    pub mount: PathBuf,
}

impl Hierarchy {
    /// The controller whose line of /proc/PID/cgroup belongs to the hierarchy; `None` is the v2 line.
    pub fn controller(&self) -> Option<&'static str> {
        match self.version {
            Version::V1 => Some("pids"),
            Version::V2 => None,
        }
    }
}

/// The interface a hierarchy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller; the pids controller's is taken, which every container manager uses.
    V1,
    /// The unified hierarchy.
    V2,
}

/// Why there is no hierarchy.
#[derive(Debug, thiserror::Error)]
pub enum HierarchyError {
    /// The mount table cannot be read.
    #[error("mount table {path}: {source} (give the agent the host's procfs by --host-proc)")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Nothing fitting is mounted.
    #[error("no {0} cgroup hierarchy is mounted (mount one, or set `probes.cgroup` to the other version)")]
    NotMounted(&'static str),
}

/// Decides from the text of a `mountinfo` file.
///
/// A v1 pids hierarchy wins over a unified one: on hybrid hosts containers live in the former.
///
/// # Errors
/// What was asked for is not mounted.
pub fn choose(mountinfo: &str, forced: CgroupChoice) -> Result<Hierarchy, HierarchyError> {
    let of = |version| find(mountinfo, version).map(|mount| Hierarchy { version, mount });
    match forced {
        CgroupChoice::V1 => of(Version::V1).ok_or(HierarchyError::NotMounted("v1 pids")),
        CgroupChoice::V2 => of(Version::V2).ok_or(HierarchyError::NotMounted("v2")),
        CgroupChoice::Auto => {
            of(Version::V1).or_else(|| of(Version::V2)).ok_or(HierarchyError::NotMounted("v2 or v1 pids"))
        }
    }
}

/// Decides for the host, and gives the mount point as the agent reaches it.
///
/// # Errors
/// The mount table cannot be read, or what was asked for is not mounted.
pub fn read(host: &HostRoot, forced: CgroupChoice) -> Result<Hierarchy, HierarchyError> {
    // process 1 sees the host's mounts; an agent that may not look at it asks for its own
    let table = host.proc("1/mountinfo");
    let text = fs::read_to_string(&table)
        .or_else(|_| fs::read_to_string(host.proc("self/mountinfo")))
        .map_err(|source| HierarchyError::Unreadable { path: table, source })?;
    let found = choose(&text, forced)?;
    let mount = match found.mount.strip_prefix("/sys") {
        Ok(below) => host.sys(below),
        Err(_) => found.mount,
    };
    Ok(Hierarchy { mount, ..found })
}

/// The mount point of a hierarchy; a mount of its root is better than one of a part of it.
fn find(mountinfo: &str, version: Version) -> Option<PathBuf> {
    let mounts = mountinfo.lines().filter_map(|line| mount(line, version));
    let mut part = None;
    for (root, point) in mounts {
        if root == "/" {
            return Some(unescaped(point));
        }
        part = part.or(Some(point));
    }
    part.map(unescaped)
}

/// Root and mount point, if the line is a mount of the hierarchy.
fn mount(line: &str, version: Version) -> Option<(&str, &str)> {
    // optional fields of any number end at a lone dash
    let (left, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    let (kind, options) = (right.next()?, right.nth(1).unwrap_or_default());
    let fits = match version {
        Version::V1 => kind == "cgroup" && options.split(',').any(|option| option == "pids"),
        Version::V2 => kind == "cgroup2",
    };
    let mut left = left.split(' ').skip(3);
    fits.then(|| Some((left.next()?, left.next()?))).flatten()
}

/// The kernel writes blanks, tabs, line feeds and backslashes as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                out.push(char::from(code));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Path::new(&out).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:7 - cgroup cgroup rw,cpu,cpuacct\n\
        39 31 0:36 / /sys/fs/cgroup/pids rw shared:9 master:2 - cgroup cgroup rw,pids\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    fn chosen(mounts: &str, forced: CgroupChoice) -> Option<(Version, String)> {
        let found = choose(mounts, forced).ok()?;
        Some((found.version, found.mount.to_string_lossy().into_owned()))
    }

    #[test]
    fn the_hierarchy_that_carries_containers_is_found() {
        let pids = Some((Version::V1, "/sys/fs/cgroup/pids".to_owned()));
        let unified = Some((Version::V2, "/sys/fs/cgroup/unified".to_owned()));
        let alone = Some((Version::V2, "/sys/fs/cgroup".to_owned()));
        assert_eq!(chosen(UNIFIED, CgroupChoice::Auto), alone);
        assert_eq!(chosen(UNIFIED, CgroupChoice::V2), alone);
        assert_eq!(chosen(UNIFIED, CgroupChoice::V1), None);
        assert_eq!(chosen(HYBRID, CgroupChoice::Auto), pids);
        assert_eq!(chosen(HYBRID, CgroupChoice::V1), pids);
        assert_eq!(chosen(HYBRID, CgroupChoice::V2), unified);
        assert_eq!(chosen("", CgroupChoice::Auto), None);
    }

    #[test]
    fn a_mount_of_the_root_is_preferred_and_names_are_unescaped() {
        let mounts =
            "1 2 0:1 /sub /a rw - cgroup2 none rw\n3 2 0:1 / /with\\040blank\\134 rw - cgroup2 none rw\n";
        let found = chosen(mounts, CgroupChoice::Auto);
        assert_eq!(found, Some((Version::V2, "/with blank\\".to_owned())));
        let part_only = chosen("1 2 0:1 /sub /a\\9é rw - cgroup2 none rw\n", CgroupChoice::Auto);
        assert_eq!(part_only, Some((Version::V2, "/a\\9é".to_owned())));
    }

    #[test]
    fn broken_lines_are_passed_over() {
        for line in
            ["", " - ", "x - cgroup2", "1 2 3 - cgroup2 a b", "- cgroup - pids", "1 2 0:1 / /p rw - cgroup c"]
        {
            assert_eq!(chosen(line, CgroupChoice::Auto), None, "{line}");
        }
    }

    #[test]
    fn the_refusal_names_the_way_out() {
        let text = choose(UNIFIED, CgroupChoice::V1).expect_err("no v1 there").to_string();
        assert_eq!(
            text,
            "no v1 pids cgroup hierarchy is mounted (mount one, or set `probes.cgroup` to the other version)"
        );
    }
}
