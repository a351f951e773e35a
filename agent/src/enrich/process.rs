//! /proc/PID → name, start time and cgroup path of a process.
//!
//! In: a pid of the host's namespace. Out: [`ProcessFacts`], or why there are none.
//! Only files that never wait for the driver are read: no command line, no environment, no memory maps.
//! What can go wrong: the process ends at any moment (`Gone`), or /proc is mounted with `hidepid` (`Denied`).

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use crate::host::HostRoot;
use crate::host::hidden::is_hidden;
use crate::model::plain::is_plain;
use crate::model::{Known, Pid, StartTicks};

/// What /proc says of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// When it began.
    pub start: StartTicks,
    /// Its name, control characters stripped.
    pub comm: String,
    /// The text of its `cgroup` file.
    pub cgroups: String,
}

/// Reads the facts of `pid`.
pub fn read(root: &HostRoot, pid: Pid) -> Known<ProcessFacts> {
    let dir = root.proc(pid.0.to_string());
    let read_both = || Ok((read_bounded(&dir.join("stat"))?, read_bounded(&dir.join("cgroup"))?));
    match read_both() {
        Ok((stat, cgroups)) => match parse_stat(&stat) {
            Some((comm, start)) => Known::Is(ProcessFacts { start, comm, cgroups }),
            None => Known::Gone,
        },
        Err(_) if is_hidden(root, pid) => Known::Denied,
        Err(e) => not_known(&e),
    }
}

fn not_known<T>(error: &io::Error) -> Known<T> {
    match error.kind() {
        ErrorKind::PermissionDenied => Known::Denied,
        _ => Known::Gone,
    }
}

/// A /proc file as text; a cgroup path may be long, but not endless.
fn read_bounded(path: &Path) -> io::Result<String> {
    const BYTES_MAX: u64 = 64 * 1024;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Name and start time from the text of `stat`. The name stands in parentheses and may itself hold any character, so
/// it ends at the *last* closing one; the start time is field 22. Format: proc_pid_stat(5).
fn parse_stat(text: &str) -> Option<(String, StartTicks)> {
    let (head, tail) = text.rsplit_once(')')?;
    let (_, comm) = head.split_once('(')?;
    let start = tail.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some((comm.chars().filter(|c| is_plain(*c)).collect(), StartTicks(start)))
}

/// The path of one hierarchy: the line `0::<path>` of v2, or the line of v1 that lists `controller`.
/// Format: cgroups(7).
pub fn cgroup_path<'a>(cgroups: &'a str, controller: Option<&str>) -> Option<&'a str> {
    cgroups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let wanted = match controller {
            None => id == "0" && controllers.is_empty(),
            Some(name) => controllers.split(',').any(|c| c == name),
        };
        wanted.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_blanks_and_parentheses() {
        let tail = "S 1 7 7 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 987654 0 0";
        for (name, want) in
            [("python3", "python3"), ("a) R 1 (b", "a) R 1 (b"), ("tab\there\u{1b}[31m", "tabhere[31m")]
        {
            let stat = format!("77 ({name}) {tail}");
            assert_eq!(parse_stat(&stat), Some((want.to_owned(), StartTicks(987_654))));
        }
        for broken in
            ["", "77 (x", "77 x S 1", "77 (x) S 1 2", "77 (x) S 1 7 7 0 -1 0 1 0 0 0 3 4 0 0 20 0 1 0 later"]
        {
            assert_eq!(parse_stat(broken), None, "{broken}");
        }
    }

    #[test]
    fn each_hierarchy_has_its_line() {
        let hybrid = "9:name=systemd:/init\n8:pids:/kubepods/a:b\n2:cpu,cpuacct:/c\n0::/u\n";
        assert_eq!(cgroup_path(hybrid, None), Some("/u"));
        assert_eq!(cgroup_path(hybrid, Some("pids")), Some("/kubepods/a:b"));
        assert_eq!(cgroup_path(hybrid, Some("cpuacct")), Some("/c"));
        assert_eq!(cgroup_path(hybrid, Some("memory")), None);
        assert_eq!(cgroup_path("garbage", None), None);
    }

    #[test]
    fn this_process_is_known_and_a_pid_beyond_the_limit_is_gone() {
        let me = read(&HostRoot::default(), Pid(std::process::id()));
        assert!(me.is().is_some_and(|p| p.start.0 > 0 && !p.cgroups.is_empty()), "{me:?}");
        assert_eq!(read(&HostRoot::default(), Pid(u32::MAX)), Known::Gone);
    }
}
