//! Processes that have a node of NVIDIA's GPUs open: who uses what, where no library tells.
//!
//! In: /proc/PID/fd below the host's root; only the targets of links are read. Out: minors by pid.
//! What can go wrong: the descriptors of others cannot be read without rights; how many is told. Bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::host::HostRoot;

/// Processes looked at: Linux' own limit of pids on a large machine is higher, and no node has as many.
const PROCESSES_MAX: usize = 65_536;
/// Descriptors looked at of one process.
const FDS_MAX: usize = 65_536;
/// Character devices of NVIDIA's driver; 255 is its control node. Source: its `nv-linux.h`.
const MAJOR: u32 = 195;
const CONTROL: u32 = 254;

/// Who has nodes open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenNodes {
    /// Minors of /dev/nvidiaN by pid.
    pub minors: BTreeMap<u32, BTreeSet<u32>>,
    /// Processes whose descriptors may not be read.
    pub unreadable: usize,
}

/// Looks through all processes but `own`.
pub fn read(host: &HostRoot, own: u32) -> OpenNodes {
    let mut found = OpenNodes::default();
    let Ok(processes) = fs::read_dir(host.proc("")) else { return found };
    let pid = |name: &std::ffi::OsStr| name.to_str()?.parse::<u32>().ok();
    let pids = processes.flatten().filter_map(|entry| pid(&entry.file_name())).take(PROCESSES_MAX);
    for pid in pids.filter(|pid| *pid != own) {
        match minors(&host.proc(format!("{pid}/fd"))) {
            Ok(minors) if minors.is_empty() => {}
            Ok(minors) => drop(found.minors.insert(pid, minors)),
            Err(ErrorKind::PermissionDenied) => found.unreadable += 1,
            Err(_) => {} // it has ended
        }
    }
    found
}

fn minors(folder: &Path) -> Result<BTreeSet<u32>, ErrorKind> {
    let fds = fs::read_dir(folder).map_err(|error| error.kind())?;
    let mut minors = BTreeSet::new();
    for fd in fds.take(FDS_MAX) {
        let Ok(fd) = fd else { continue };
        // What is no device is not looked at closer: its file system may not answer.
        let Ok(target) = fs::read_link(fd.path()) else { continue };
        let Some(name) = target.to_str() else { continue };
        if let Some(minor) = of_name(name) {
            minors.insert(minor);
        } else if name.starts_with("/dev/") {
            minors.extend(of_node(&fd.path()));
        }
    }
    Ok(minors)
}

/// `/dev/nvidia3`, wherever it is mounted.
fn of_name(name: &str) -> Option<u32> {
    let minor = name.rsplit('/').next()?.strip_prefix("nvidia")?;
    let digits = !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| minor.parse().ok()).flatten().filter(|minor| *minor < CONTROL)
}

/// By the number of a node with another name.
fn of_node(fd: &Path) -> Option<u32> {
    let data = fs::metadata(fd).ok().filter(|data| data.file_type().is_char_device())?;
    let (major, minor) = (rustix::fs::major(data.rdev()), rustix::fs::minor(data.rdev()));
    (major == MAJOR && minor < CONTROL).then_some(minor)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn nodes_are_known_by_name_wherever_they_are_mounted() {
        let dir = TestDir::new();
        let host = HostRoot { proc: dir.path().to_owned(), ..HostRoot::default() };
        for (pid, targets) in [
            ("7", &["/dev/nvidia3", "/dev/nvidia0", "/dev/nvidiactl", "/dev/null", "socket:[1]"][..]),
            ("8", &["/run/nvidia/driver/dev/nvidia1", "/dev/nvidia255", "/dev/nvidia-uvm", "/tmp/nvidia2x"]),
            ("9", &["/dev/nvidiactl"]),
            ("11", &["/dev/nvidia4"]),
            ("self", &["/dev/nvidia5"]),
        ] {
            let fds = dir.path().join(pid).join("fd");
            fs::create_dir_all(&fds).unwrap();
            for (n, target) in targets.iter().enumerate() {
                symlink(target, fds.join(n.to_string())).unwrap();
            }
        }
        let found = read(&host, 11);
        let want = BTreeMap::from([(7, BTreeSet::from([0, 3])), (8, BTreeSet::from([1]))]);
        assert_eq!((found.minors, found.unreadable), (want, 0));
    }
}
