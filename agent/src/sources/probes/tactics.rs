//! How each kind of call is observed: an ordered table, best first, and a pure choice from it.
//!
//! In: facts about the [`Kernel`]. Out: one [`Choice`] per probe, with every refused row and its reason.
//! What can go wrong: no row fits; then the probe is off, and its refusals say why.

use super::kernel::{Kernel, Support};

/// A kind of call that can be observed on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the system calls")]
pub enum Probe {
    Ioctl,
    Open,
    Close,
    Mmap,
    /// Unloading a module, which has no device: see [`super::unload`].
    Unload,
}

/// A way to observe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tactic {
    /// Kprobe events made through tracefs, on the driver's own functions.
    TracefsKprobe,
    /// Entry by a kprobe of perf, end by the tracepoint of the system call's return.
    PerfKprobe,
    /// Tracepoints of the system call, filtered by the device's major.
    SyscallTracepoint,
}

/// A program and the tracepoint it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The program's name in the object.
    pub program: &'static str,
    /// `category/name`.
    pub event: &'static str,
}

/// What was decided for a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The probe.
    pub probe: Probe,
    /// The first row that fits.
    pub tactic: Option<Tactic>,
    /// The rows above it, and why not.
    pub refused: Vec<(Tactic, &'static str)>,
}

/// All probes.
pub const PROBES: [Probe; 5] = [Probe::Ioctl, Probe::Open, Probe::Close, Probe::Mmap, Probe::Unload];

/// Best first.
const TABLE: [Tactic; 3] = [Tactic::TracefsKprobe, Tactic::PerfKprobe, Tactic::SyscallTracepoint];
/// The driver has no function that is called before its unload is decided.
const OF_UNLOAD: [Tactic; 1] = [Tactic::SyscallTracepoint];

/// Follows threads to their death; needed by every probe.
pub const PROCESS_EXIT: Hook = hook("process_exit", "sched/sched_process_exit");

/// Below this, the driver's release function runs after `close` has returned: there would be nothing to measure.
const CLOSE_RELEASES: (u32, u32) = (6, 6);

const fn hook(program: &'static str, event: &'static str) -> Hook {
    Hook { program, event }
}

impl Probe {
    /// The value of `probe` in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ioctl => "ioctl",
            Self::Open => "open",
            Self::Close => "close",
            Self::Mmap => "mmap",
            Self::Unload => "unload",
        }
    }

    fn table(self) -> &'static [Tactic] {
        if self == Self::Unload { &OF_UNLOAD } else { &TABLE }
    }

    /// The hooks of the tracepoint tactic: ends before entries, so that no entry waits for an end nobody sees.
    pub fn hooks(self) -> &'static [Hook] {
        const IOCTL: [Hook; 2] =
            [hook("call_exit", "syscalls/sys_exit_ioctl"), hook("ioctl_enter", "syscalls/sys_enter_ioctl")];
        const OPEN: [Hook; 6] = [
            hook("call_exit", "syscalls/sys_exit_open"),
            hook("call_exit", "syscalls/sys_exit_openat"),
            hook("call_exit", "syscalls/sys_exit_openat2"),
            hook("open_enter", "syscalls/sys_enter_open"),
            hook("openat_enter", "syscalls/sys_enter_openat"),
            hook("openat_enter", "syscalls/sys_enter_openat2"),
        ];
        const CLOSE: [Hook; 2] =
            [hook("call_exit", "syscalls/sys_exit_close"), hook("close_enter", "syscalls/sys_enter_close")];
        const MMAP: [Hook; 2] =
            [hook("call_exit", "syscalls/sys_exit_mmap"), hook("mmap_enter", "syscalls/sys_enter_mmap")];
        const UNLOAD: [Hook; 1] = [hook("delete_module_enter", "syscalls/sys_enter_delete_module")];
        match self {
            Self::Ioctl => &IOCTL,
            Self::Open => &OPEN,
            Self::Close => &CLOSE,
            Self::Mmap => &MMAP,
            Self::Unload => &UNLOAD,
        }
    }
}

impl Tactic {
    /// The value of `tactic` in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::TracefsKprobe => "tracefs_kprobe",
            Self::PerfKprobe => "perf_kprobe",
            Self::SyscallTracepoint => "syscall_tracepoint",
        }
    }
}

/// Every event that any tactic may use.
pub fn events() -> impl Iterator<Item = &'static str> {
    PROBES.into_iter().flat_map(|probe| probe.hooks()).map(|hook| hook.event).chain([PROCESS_EXIT.event])
}

/// Decides for every probe.
pub fn choose(kernel: &Kernel) -> Vec<Choice> {
    PROBES.into_iter().map(|probe| choose_for(probe, kernel)).collect()
}

fn choose_for(probe: Probe, kernel: &Kernel) -> Choice {
    let mut refused = Vec::new();
    for tactic in probe.table() {
        match refusal(probe, *tactic, kernel) {
            None => return Choice { probe, tactic: Some(*tactic), refused },
            Some(reason) => refused.push((*tactic, reason)),
        }
    }
    Choice { probe, tactic: None, refused }
}

fn refusal(probe: Probe, tactic: Tactic, kernel: &Kernel) -> Option<&'static str> {
    let kprobes = |support| match support {
        Support::No => "no_kprobes",
        Support::Unknown(reason) => reason,
        // the kernel could, but this release has no programs for it
        Support::Yes => "not_built",
    };
    match tactic {
        Tactic::TracefsKprobe => Some(kprobes(kernel.tracefs_kprobes)),
        Tactic::PerfKprobe => Some(kprobes(kernel.perf_kprobes)),
        Tactic::SyscallTracepoint if kernel.tracefs.is_none() => Some("no_tracefs"),
        Tactic::SyscallTracepoint if probe == Probe::Close && kernel.release < CLOSE_RELEASES => {
            Some("release_after_close")
        }
        Tactic::SyscallTracepoint => {
            // `open` is not on every architecture and `openat2` not in every kernel: one entry is enough
            let present = |hook: &&Hook| kernel.events.contains(&hook.event);
            let hooks = || probe.hooks().iter().filter(present);
            let ends = hooks().any(is_end) || probe == Probe::Unload; // only its begin matters
            let all = ends && hooks().any(|hook| !is_end(hook));
            (!all).then_some("no_event")
        }
    }
}

fn is_end(hook: &Hook) -> bool {
    hook.event.contains("sys_exit")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(release: (u32, u32), without: &str) -> Kernel {
        Kernel {
            release,
            tracefs: Some("/sys/kernel/tracing".into()),
            tracefs_denied: false,
            tracefs_kprobes: Support::No,
            perf_kprobes: Support::Unknown("unreadable"),
            events: events().filter(|e| without.is_empty() || !e.contains(without)).collect(),
            host_pids: Support::Yes,
            possible_cpus: 2,
        }
    }

    fn tactic(choices: &[Choice], probe: Probe) -> Option<Tactic> {
        choices.iter().find(|c| c.probe == probe).and_then(|c| c.tactic)
    }

    #[test]
    fn the_first_row_that_fits_is_taken_and_the_others_say_why_not() {
        let choices = choose(&kernel((6, 6), ""));
        assert_eq!(choices.len(), PROBES.len());
        for choice in choices {
            assert_eq!(choice.tactic, Some(Tactic::SyscallTracepoint), "{choice:?}");
            let why = [(Tactic::TracefsKprobe, "no_kprobes"), (Tactic::PerfKprobe, "unreadable")];
            let why = if choice.probe == Probe::Unload { &[] } else { &why[..] };
            assert_eq!(choice.refused, why);
        }
    }

    #[test]
    fn close_needs_a_kernel_that_releases_within_it() {
        let choices = choose(&kernel((6, 5), ""));
        assert_eq!(tactic(&choices, Probe::Close), None);
        assert_eq!(tactic(&choices, Probe::Ioctl), Some(Tactic::SyscallTracepoint));
        let close = choices.iter().find(|c| c.probe == Probe::Close).expect("there");
        assert_eq!(close.refused.last(), Some(&(Tactic::SyscallTracepoint, "release_after_close")));
    }

    #[test]
    fn missing_events_and_missing_tracefs_refuse_the_row() {
        let choices = choose(&kernel((6, 12), "ioctl"));
        assert_eq!(tactic(&choices, Probe::Ioctl), None);
        assert_eq!(tactic(&choices, Probe::Open), Some(Tactic::SyscallTracepoint));
        // a kernel without modules
        let choices = choose(&kernel((6, 12), "delete_module"));
        assert_eq!(tactic(&choices, Probe::Unload), None);
        let unload = choices.iter().find(|c| c.probe == Probe::Unload).expect("there");
        assert_eq!(unload.refused, [(Tactic::SyscallTracepoint, "no_event")]);
        // aarch64 has no open(2)
        let choices = choose(&Kernel {
            events: vec!["syscalls/sys_enter_openat", "syscalls/sys_exit_openat"],
            ..kernel((6, 12), "")
        });
        assert_eq!(tactic(&choices, Probe::Open), Some(Tactic::SyscallTracepoint));
        let choices = choose(&Kernel { tracefs: None, ..kernel((6, 12), "") });
        assert!(choices.iter().all(|c| c.tactic.is_none()));
    }

    #[test]
    fn ends_are_attached_before_entries() {
        for probe in PROBES {
            let order: Vec<bool> = probe.hooks().iter().map(is_end).collect();
            assert!(order.is_sorted_by(|a, b| a >= b), "{probe:?}: {order:?}");
        }
    }
}
