//! What this kernel is and allows, found out once before anything is loaded.
//!
//! In: /proc, /sys and tracefs below the [`HostRoot`]. Out: [`Kernel`], plain facts for pure choices.
//! What can go wrong: a fact cannot be read; then it is [`Support::Unknown`] with the reason, never a guess.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use warpgauge_ebpf::attach::KPROBE_EVENTS;
use warpgauge_ebpf::layout::FIELDS;

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
    /// Kprobes can be made through perf.
    pub perf_kprobes: Support,
    /// Number of perf's kprobe PMU.
    pub kprobe_pmu: Option<u32>,
    /// The events of [`super::tactics`] that this kernel has.
    pub events: Vec<&'static str>,
    /// procfs shows the host's processes, under the numbers that kernel programs see.
    pub host_pids: Support,
    /// CPUs the kernel is prepared for; hash maps hold one spare element for each.
    pub possible_cpus: u32,
    /// CPUs that are online now.
    pub online_cpus: u32,
    /// The first of them, which need not be 0.
    pub first_cpu: u32,
}

impl Kernel {
    /// Looks at everything; `events` are those worth knowing about.
    pub fn look(host: &HostRoot, events: impl Iterator<Item = &'static str>) -> Self {
        let tracefs = tracefs(host);
        let has_event = |event: &&'static str| tracefs.as_deref().is_some_and(|at| has_event(at, event));
        let mut events: Vec<_> = events.filter(has_event).collect();
        events.sort_unstable();
        events.dedup();
        let online = fs::read_to_string(host.sys("devices/system/cpu/online")).unwrap_or_default();
        let pmu = fs::read_to_string(host.sys("bus/event_source/devices/kprobe/type"));
        Self {
            release: release(&rustix::system::uname().release().to_string_lossy()).unwrap_or_default(),
            tracefs_kprobes: tracefs_kprobes(host, tracefs.as_deref()),
            perf_kprobes: perf_kprobes(host, pmu.as_ref().err()),
            kprobe_pmu: pmu.ok().and_then(|number| number.trim().parse().ok()),
            host_pids: host_pids(host),
            possible_cpus: possible_cpus(host),
            online_cpus: cpus(&online).sum::<u32>().max(1),
            first_cpu: lowest(&online).unwrap_or(0),
            events,
            tracefs_denied: tracefs.is_none() && is_denied(host),
            tracefs,
        }
    }
}

/// Whether the event is there, and has its fields where the programs look for them.
fn has_event(tracefs: &Path, event: &str) -> bool {
    let at = tracefs.join("events").join(event);
    let mut fields = FIELDS.iter().filter(|field| field.event == event).peekable();
    if fields.peek().is_none() {
        return at.join("id").exists();
    }
    let format = fs::read_to_string(at.join("format")).unwrap_or_default();
    fields.all(|field| field.is_in(&format))
}

/// Whether the kernel is locked down so far that programs may not read its memory.
pub fn locked_down(host: &HostRoot) -> bool {
    let mode = fs::read_to_string(host.sys("kernel/security/lockdown")).unwrap_or_default();
    mode.contains("[confidentiality]")
}

/// Whether kprobe events can be made: the file is opened as it would be to make one, which does nothing to it.
fn tracefs_kprobes(host: &HostRoot, tracefs: Option<&Path>) -> Support {
    let Some(at) = tracefs else {
        return Support::Unknown(if is_denied(host) { "not_permitted" } else { "no_tracefs" });
    };
    match fs::OpenOptions::new().append(true).open(at.join(KPROBE_EVENTS)) {
        Ok(_) => kprobes_armed(host),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Support::No,
            io::ErrorKind::ReadOnlyFilesystem => Support::Unknown("read_only"),
            io::ErrorKind::PermissionDenied if locked_down(host) => Support::Unknown("lockdown"),
            io::ErrorKind::PermissionDenied => Support::Unknown("not_permitted"),
            _ => Support::Unknown("unreadable"),
        },
    }
}

fn perf_kprobes(host: &HostRoot, pmu: Option<&io::Error>) -> Support {
    match pmu {
        None if locked_down(host) => Support::Unknown("lockdown"),
        None => kprobes_armed(host),
        Some(error) if error.kind() == io::ErrorKind::NotFound => Support::No,
        Some(_) => Support::Unknown("unreadable"),
    }
}

/// An administrator may have switched all kprobes off: they can then be made, and never fire.
fn kprobes_armed(host: &HostRoot) -> Support {
    let off = fs::read(host.sys("kernel/debug/kprobes/enabled")).is_ok_and(|text| text.trim_ascii() == b"0");
    if off { Support::Unknown("kprobes_off") } else { Support::Yes }
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

/// The first number of a CPU list.
fn lowest(list: &str) -> Option<u32> {
    list.trim().split([',', '-']).next()?.parse().ok()
}

/// How many CPUs each part of a list names.
fn cpus(list: &str) -> impl Iterator<Item = u32> {
    list.split(',').filter_map(|part| Some(highest(part)?.checked_sub(lowest(part)?)?.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

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
        for (text, first, count) in [
            ("0-511\n", Some(0), 512),
            ("0", Some(0), 1),
            ("2-3,8-11\n", Some(2), 6),
            ("", None, 0),
            ("3-1", Some(3), 0),
        ] {
            assert_eq!((lowest(text), cpus(text).sum::<u32>()), (first, count), "{text}");
        }
    }

    #[test]
    fn an_event_whose_fields_are_elsewhere_is_as_good_as_none() {
        let dir = TestDir::new();
        let host = HostRoot { sys: dir.path().to_owned(), ..HostRoot::default() };
        let found = |offset: u32| {
            let at = host.sys("kernel/tracing/events/sched/sched_wakeup");
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("id"), "1\n").unwrap();
            fs::write(at.join("format"), format!("\tfield:pid_t pid;\toffset:{offset};\tsize:4;\n")).unwrap();
            Kernel::look(&host, ["sched/sched_wakeup", "sched/sched_switch"].into_iter()).events
        };
        assert_eq!(found(24), ["sched/sched_wakeup"]);
        assert_eq!(found(28), [""; 0]);
    }

    #[test]
    fn why_kprobe_events_cannot_be_made_is_told_apart() {
        let dir = TestDir::new();
        let host = HostRoot { sys: dir.path().to_owned(), ..HostRoot::default() };
        let kprobes = || {
            let kernel = Kernel::look(&host, ["sched/sched_switch"].into_iter());
            (kernel.tracefs_kprobes, kernel.perf_kprobes, kernel.kprobe_pmu)
        };
        let write = |path: &str, text: &str| {
            let path = host.sys(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(kprobes(), (Support::Unknown("no_tracefs"), Support::No, None));
        write("kernel/tracing/events/sched/sched_switch/id", "300\n");
        assert_eq!(kprobes(), (Support::No, Support::No, None));
        write("kernel/tracing/kprobe_events", "p:somebodys/event do_exit\n");
        write("bus/event_source/devices/kprobe/type", "6\n");
        assert_eq!(kprobes(), (Support::Yes, Support::Yes, Some(6)));
        assert_eq!(
            fs::read(host.sys("kernel/tracing/kprobe_events")).unwrap().len(),
            26,
            "looking changes nothing"
        );
        write("kernel/debug/kprobes/enabled", "0\n");
        let off = Support::Unknown("kprobes_off");
        assert_eq!(kprobes(), (off, off, Some(6)));
        write("kernel/debug/kprobes/enabled", "1\n");
        write("kernel/security/lockdown", "none integrity [confidentiality]\n");
        assert_eq!(kprobes().1, Support::Unknown("lockdown"));
    }

    #[test]
    fn a_host_without_anything_is_unknown_not_wrong() {
        let nowhere = HostRoot {
            proc: "/nowhere".into(),
            sys: "/nowhere".into(),
            dev: "/nowhere".into(),
            ..HostRoot::default()
        };
        let kernel = Kernel::look(&nowhere, ["syscalls/sys_enter_ioctl"].into_iter());
        assert_eq!((kernel.tracefs, kernel.tracefs_denied), (None, false));
        assert_eq!(kernel.tracefs_kprobes, Support::Unknown("no_tracefs"));
        assert_eq!(kernel.perf_kprobes, Support::No);
        assert_eq!(kernel.host_pids, Support::Unknown("unreadable"));
        assert_eq!((kernel.events.len(), kernel.possible_cpus), (0, 1));
        assert_eq!((kernel.online_cpus, kernel.first_cpu), (1, 0));
    }
}
