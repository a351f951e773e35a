//! Why a row was passed over, and what would help.
//!
//! In: short words of [`tactics`](super::tactics), errors of attaching. Out: [`Refusal`], with a remedy.
//! What can go wrong: one answer of the kernel may have several causes; the words of the system are kept.

use std::io;

use warpgauge_ebpf::attach::AttachError;

use super::load_error::LoadError;
use super::tactics::Tactic;

/// A row that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The row.
    pub tactic: Tactic,
    /// One of a few short words, for `warpgauge.probe.refused{reason}`.
    pub reason: &'static str,
    /// The system's own words, where it was the system that refused.
    pub text: String,
}

impl Refusal {
    /// By the facts alone.
    pub fn by_facts(tactic: Tactic, reason: &'static str) -> Self {
        Self { tactic, reason, text: String::new() }
    }

    /// The kernel refused when it was tried.
    pub fn by_kernel(tactic: Tactic, error: &LoadError) -> Self {
        Self { tactic, reason: reason(error), text: error.to_string() }
    }

    /// What the operator can do.
    pub fn remedy(&self) -> &'static str {
        remedy(self.reason)
    }
}

/// What the operator can do about a refusal of that short word.
pub fn remedy(reason: &str) -> &'static str {
    match reason {
        "no_kprobes" => "run a kernel built with CONFIG_KPROBE_EVENTS",
        "kprobes_off" => "echo 1 > /sys/kernel/debug/kprobes/enabled",
        "read_only" => "mount tracefs writable (in Kubernetes: /sys/kernel/tracing, without readOnly)",
        "no_tracefs" => "mount -t tracefs tracefs /sys/kernel/tracing",
        "lockdown" => "leave the kernel's lockdown mode `confidentiality`",
        "not_permitted" => {
            "run as root with CAP_BPF and CAP_PERFMON; not as root, with CAP_DAC_OVERRIDE, too"
        }
        "no_kallsyms" => "give access to /proc/kallsyms (CONFIG_KALLSYMS)",
        "no_symbol" => "report it, with the driver's version: its functions are not known to this agent",
        "notrace" => {
            "run a kernel built with CONFIG_KPROBE_EVENTS_ON_NOTRACE: this part of the driver is not traceable"
        }
        "no_event" => "run a kernel built with CONFIG_FTRACE_SYSCALLS (for `unload`, with modules)",
        "release_after_close" => "run a kernel from 6.6 on, or one with kprobes",
        "not_built" => "run `cargo xtask build-ebpf`, then build the agent again",
        "no_ioctl" => "see why the probe `ioctl` is off",
        "no_descriptors" => {
            "raise the limit of open files (LimitNOFILE, ulimit -n) to 1024 or more, and start again"
        }
        "over_budget" => "raise `probes.budget`, or look for what calls the driver so often",
        _ => "the text is the kernel's own; if it helps nobody, report it",
    }
}

/// The short word for what went wrong.
fn reason(error: &LoadError) -> &'static str {
    match error {
        LoadError::Missing(_) => "not_built",
        error if error.lacks_descriptors() => "no_descriptors",
        LoadError::Attach(AttachError::Define { source, .. }) => match source.kind() {
            io::ErrorKind::PermissionDenied => "not_permitted",
            io::ErrorKind::ReadOnlyFilesystem => "read_only",
            io::ErrorKind::NotFound => "no_kprobes",
            // what else could be wrong with a line is not: the function is there, but built without the kernel's tracing
            io::ErrorKind::InvalidInput => "notrace",
            _ => "refused_by_kernel",
        },
        error if error.denied() => "not_permitted",
        _ => "refused_by_kernel",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_answers_have_their_words() {
        let define = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            let file = "/t/kprobe_events".into();
            LoadError::from(AttachError::Define { function: "nvidia:rm_ioctl".into(), file, source })
        };
        let open = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            LoadError::from(AttachError::Open { event: "nvidia:rm_ioctl".into(), source })
        };
        for (error, want) in [
            (define(13), "not_permitted"),
            (define(1), "not_permitted"),
            (define(30), "read_only"),
            (define(2), "no_kprobes"),
            (define(22), "notrace"),
            (define(12), "refused_by_kernel"),
            (open(13), "not_permitted"),
            (open(2), "refused_by_kernel"),
            (open(24), "no_descriptors"),
            (define(24), "no_descriptors"),
            (LoadError::Missing("kp_poll"), "not_built"),
        ] {
            let refusal = Refusal::by_kernel(Tactic::TracefsKprobe, &error);
            assert_eq!(refusal.reason, want, "{error}");
            assert!(!refusal.remedy().is_empty() && !refusal.text.is_empty(), "{refusal:?}");
        }
    }
}
