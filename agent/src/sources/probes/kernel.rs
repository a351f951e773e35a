//! What this kernel is and allows, found out once before anything is loaded.
//!
//! In: /proc, /sys and tracefs below the [`HostRoot`]. Out: [`Kernel`], plain facts for pure choices.
//! What can go wrong: a fact cannot be read; then it is [`Support::Unknown`] with the reason, never a guess.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::host::HostRoot;
use crate::host::pid_namespace::{self, PidNamespace};

/// Whether something works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It could not be found out.
    Unknown(&'static str),
}

/// Facts about the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Major and minor of its release.
    pub release: (u32, u32),
    /// Where tracefs is mounted and readable.
    pub tracefs: Option<PathBuf>,
    /// tracefs may not be read (and may or may not be there).
    pub tracefs_denied: bool,
    /// Kprobe events can be made through tracefs.
    pub tracefs_kprobes: Support,
    /// Kprobe events can be made through perf.
    pub perf_kprobes: Support,
    /// The events of [`super::tactics`] that this kernel has.
    pub events: Vec<&'static str>,
    /// procfs shows the host's processes, under the numbers that kernel programs see.
    pub host_pids: Support,
    /// CPUs the kernel is prepared for; hash maps hold one spare element for each.
    pub possible_cpus: u32,
}

impl Kernel {
    /// Looks at everything; `events` are those worth knowing about.
    pub fn look(host: &HostRoot, events: impl Iterator<Item = &'static str>) -> Self {
        let tracefs = tracefs(host);
        let has_event = |event: &&'static str| {
            tracefs.as_deref().is_some_and(|at| at.join("events").join(event).join("id").exists())
        };
        let mut events: Vec<_> = events.filter(has_event).collect();
        events.sort_unstable();
        events.dedup();
        Self {
            release: release(&rustix::system::uname().release().to_string_lossy()).unwrap_or_default(),
            tracefs_kprobes: tracefs
                .as_deref()
                .map_or(Support::Unknown("no_tracefs"), |at| exists(&at.join("kprobe_events"))),
            perf_kprobes: exists(&host.sys("bus/event_source/devices/kprobe/type")),
            host_pids: host_pids(host),
            possible_cpus: possible_cpus(host),
            events,
            tracefs_denied: tracefs.is_none() && is_denied(host),
            tracefs,
        }
    }
}

/// Whether the kernel is locked down so far that programs may not read its memory.
pub fn locked_down(host: &HostRoot) -> bool {
    let mode = fs::read_to_string(host.sys("kernel/security/lockdown")).unwrap_or_default();
    mode.contains("[confidentiality]")
}

fn exists(path: &Path) -> Support {
    match fs::metadata(path) {
        Ok(_) => Support::Yes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Support::No,
        Err(_) => Support::Unknown("unreadable"),
    }
}

fn tracefs_places(host: &HostRoot) -> [PathBuf; 2] {
    [host.sys("kernel/tracing"), host.sys("kernel/debug/tracing")]
}

fn tracefs(host: &HostRoot) -> Option<PathBuf> {
    // an unmounted tracefs leaves an empty directory behind, so something in it is looked for
    let mounted = |at: &PathBuf| fs::read_dir(at.join("events")).is_ok();
    tracefs_places(host).into_iter().find(mounted)
}

fn is_denied(host: &HostRoot) -> bool {
    let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    tracefs_places(host).iter().any(|at| fs::read_dir(at.join("events")).is_err_and(denied))
}

fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// procfs belongs to the pid namespace it was mounted in: what its process 1 says counts, not what the agent is in.
fn host_pids(host: &HostRoot) -> Support {
    match pid_namespace::of(host) {
        PidNamespace::Host => Support::Yes,
        PidNamespace::Foreign => Support::No,
        PidNamespace::Unknown(_) => Support::Unknown("unreadable"),
    }
}

fn possible_cpus(host: &HostRoot) -> u32 {
    let text = fs::read_to_string(host.sys("devices/system/cpu/possible")).unwrap_or_default();
    highest(&text).map_or(1, |last| last.saturating_add(1))
}

/// The last number of a CPU list such as `0-3,8-11`.
fn highest(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_read() {
        for (text, want) in [
            ("5.10.0-46-cloud-amd64", Some((5, 10))),
            ("6.12.95+deb13-amd64", Some((6, 12))),
            ("6.8-rc1", Some((6, 8))),
            ("6", None),
            ("", None),
            ("next", None),
        ] {
            assert_eq!(release(text), want, "{text}");
        }
    }

    #[test]
    fn the_last_possible_cpu_is_found() {
        for (text, want) in
            [("0-511\n", Some(511)), ("0", Some(0)), ("0-3,8-11\n", Some(11)), ("", None), ("x", None)]
        {
            assert_eq!(highest(text), want, "{text}");
        }
    }

    #[test]
    fn a_host_without_anything_is_unknown_not_wrong() {
        let nowhere = HostRoot { proc: "/nowhere".into(), sys: "/nowhere".into(), dev: "/nowhere".into() };
        let kernel = Kernel::look(&nowhere, ["syscalls/sys_enter_ioctl"].into_iter());
        assert_eq!((kernel.tracefs, kernel.tracefs_denied), (None, false));
        assert_eq!(kernel.tracefs_kprobes, Support::Unknown("no_tracefs"));
        assert_eq!(kernel.perf_kprobes, Support::No);
        assert_eq!(kernel.host_pids, Support::Unknown("unreadable"));
        assert_eq!((kernel.events.len(), kernel.possible_cpus), (0, 1));
    }
}
