//! Why the probes are not at work, and whether it makes sense to try again.
//!
//! In: errors of every step from the configuration to the last event. Out: [`Exit`], with a reason, words and a remedy.
//! What can go wrong: the kernel answers "not permitted" for several causes; what can be told apart is told apart.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use rustix::io::Errno;
use warpgauge_ebpf::attach::AttachError;
use warpgauge_ebpf::prefix::LONGEST;

use crate::sources::{Exit, Lack};

use super::btf::BtfError;
use super::offsets::OffsetError;
use crate::host::cgroup_hierarchy::HierarchyError;

/// A step that did not work.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kill switch.
    #[error("the probes are switched off by configuration")]
    Disabled,
    /// This build has no object.
    #[error("this agent was built without probes")]
    NotBuilt,
    /// The configured path prefix.
    #[error("`probes.open_prefix` is empty or longer than {LONGEST} bytes: {0:?}")]
    Prefix(String),
    /// The kernel does not describe its types.
    #[error("{path}: {source}")]
    NoBtf {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Its description cannot be used.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// Its description lacks something.
    #[error(transparent)]
    Offset(#[from] OffsetError),
    /// No cgroup hierarchy.
    #[error(transparent)]
    Hierarchy(#[from] HierarchyError),
    /// tracefs is not there.
    #[error("tracefs is not mounted at kernel/tracing or kernel/debug/tracing below the host's sysfs")]
    NoTracefs,
    /// tracefs is only for root.
    #[error("tracefs, at kernel/tracing or kernel/debug/tracing below the host's sysfs, may not be read")]
    TracefsDenied,
    /// The object does not have what this agent expects.
    #[error("the kernel object has no {0}: it is not of this agent's version")]
    Missing(&'static str),
    /// The kernel refused the object.
    #[error("kernel object: {}", chain(.0))]
    Object(#[from] EbpfError),
    /// The kernel refused a program.
    #[error("kernel program {name}: {text}")]
    Program {
        /// The program.
        name: &'static str,
        /// The end of what the verifier said.
        text: String,
        /// It was a matter of rights.
        denied: bool,
    },
    /// The kernel refused to attach a program.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// perf has no kprobes.
    #[error("perf has no kprobe PMU")]
    NoKprobePmu,
    /// A probe that is off is asked for.
    #[error("the probe {0} is off: see why in `warpgauge doctor`")]
    Off(&'static str),
    /// A map does not work.
    #[error("kernel map: {}", chain(.0))]
    Map(#[from] MapError),
    /// The task that loads was stopped.
    #[error("loading was interrupted: {0}")]
    Interrupted(String),
}

/// Everything the probes need, whichever of it is missing: who gives the first of them is not to be told of the next.
pub const RIGHTS: &str = "give the agent CAP_BPF, CAP_PERFMON, CAP_SYS_RESOURCE, CAP_SYS_PTRACE and \
                          CAP_DAC_READ_SEARCH, or run it as root with all capabilities";

/// Debian and Ubuntu have a level 3 of their own, on by default, at which CAP_PERFMON is not enough.
const PERF_RIGHTS: &str = "set kernel.perf_event_paranoid to 2 or less and give the agent CAP_PERFMON, or give it \
                           CAP_SYS_ADMIN, or run it as root with all capabilities";

/// The verifier's log can be a megabyte; what matters stands at its end.
const LOG_END: usize = 2000;

impl LoadError {
    /// A program that was refused.
    pub fn of_program(name: &'static str, error: &ProgramError) -> Self {
        let text = error.to_string();
        let from = (text.len().saturating_sub(LOG_END)..=text.len()).find(|at| text.is_char_boundary(*at));
        let text = from.and_then(|from| text.get(from..)).unwrap_or_default().to_owned();
        Self::Program { name, text, denied: is_denied(error) }
    }

    /// For the supervisor. `locked_down`: the kernel's lockdown forbids reading its memory.
    pub fn exit(self, locked_down: bool) -> Exit {
        match self.lack(locked_down) {
            Some(lack) => Exit::Unavailable(vec![lack]),
            None => Exit::Failed(Box::new(self)),
        }
    }

    /// What is missing on this node, if that is what it is.
    pub fn lack(&self, locked_down: bool) -> Option<Lack> {
        let (reason, remedy) = match self {
            Self::Disabled => ("disabled", "remove `--probes off`, or set `probes.enabled: true`"),
            Self::NotBuilt => ("not_built", "run `cargo xtask build-ebpf`, then build the agent again"),
            Self::Prefix(_) => ("open_prefix", "set `probes.open_prefix` to a path such as /dev/nvidia"),
            Self::NoBtf { .. } => {
                ("no_btf", "run a kernel built with CONFIG_DEBUG_INFO_BTF, or mount the host's /sys")
            }
            Self::Btf(_) | Self::Offset(_) => ("unknown_kernel", "use an agent that knows this kernel"),
            Self::Hierarchy(_) => ("no_cgroup", "mount the host's cgroups, or set `probes.cgroup`"),
            Self::NoTracefs => ("no_tracefs", "mount -t tracefs tracefs /sys/kernel/tracing"),
            _ if self.denied() && locked_down => {
                ("lockdown", "leave the kernel's lockdown mode `confidentiality`")
            }
            Self::Attach(AttachError::Open { .. }) if self.denied() => ("not_permitted", PERF_RIGHTS),
            _ if self.denied() => ("not_permitted", RIGHTS),
            _ => return None,
        };
        Some(Lack { reason, what: self.to_string(), remedy })
    }

    /// The process, or the machine, has no room for another open file.
    pub fn lacks_descriptors(&self) -> bool {
        is_of(self, &[Errno::MFILE, Errno::NFILE])
    }

    /// It was a matter of rights.
    pub fn denied(&self) -> bool {
        match self {
            Self::Object(error) => is_denied(error),
            Self::Map(error) => is_denied(error),
            Self::Program { denied, .. } => *denied,
            Self::TracefsDenied => true,
            // perf answers "access denied" for rights; binding a program does so for other reasons
            Self::Attach(
                AttachError::Open { source, .. }
                | AttachError::Event { source, .. }
                | AttachError::Define { source, .. },
            ) => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Attach(error) => is_denied(error),
            _ => false,
        }
    }
}

/// Only EPERM means rights: the verifier answers EACCES for a program it does not like.
fn is_denied(error: &(dyn Error + 'static)) -> bool {
    is_of(error, &[Errno::PERM])
}

/// Whether the system's answer was one of these.
fn is_of(error: &(dyn Error + 'static), answers: &[Errno]) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let answer = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if answers.iter().any(|of| Some(of.raw_os_error()) == answer) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The error and its causes in one line; aya's errors leave the system's answer to their sources.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use aya::sys::SyscallError;

    use super::*;

    fn reason(error: LoadError, locked_down: bool) -> &'static str {
        match error.exit(locked_down) {
            Exit::Unavailable(lacks) => lacks[0].reason,
            Exit::Failed(_) => "failed",
            Exit::Stopped => "stopped",
        }
    }

    fn create(errno: i32) -> LoadError {
        let io_error = io::Error::from_raw_os_error(errno);
        EbpfError::MapError(MapError::CreateError { name: "IN_FLIGHT".to_owned(), io_error }).into()
    }

    #[test]
    fn rights_lockdown_and_real_failures_are_told_apart() {
        assert_eq!(reason(create(1), false), "not_permitted");
        assert_eq!(reason(create(1), true), "lockdown");
        assert_eq!(reason(create(12), false), "failed");
        assert_eq!(reason(LoadError::NotBuilt, false), "not_built");
        assert_eq!(reason(LoadError::TracefsDenied, false), "not_permitted");
        assert_eq!(reason(LoadError::Missing("MAJORS"), false), "failed");
        let event = "syscalls/sys_enter_ioctl".to_owned();
        let open = AttachError::Open { event: event.clone(), source: io::Error::from_raw_os_error(13) };
        assert_eq!(reason(open.into(), false), "not_permitted");
        let bind = AttachError::Bind { event, source: io::Error::from_raw_os_error(13) };
        assert_eq!(reason(bind.into(), false), "failed");
    }

    #[test]
    fn the_systems_words_are_in_the_text_once() {
        let text = create(12).to_string();
        assert!(text.contains("IN_FLIGHT") && text.contains("Cannot allocate memory"), "{text}");
        assert_eq!(text.matches("Cannot allocate memory").count(), 1, "{text}");
    }

    #[test]
    fn only_the_end_of_a_refusal_is_kept() {
        let long = ProgramError::UnknownInterface { name: format!("{}é the end", "é".repeat(LOG_END)) };
        let LoadError::Program { text, denied, .. } = LoadError::of_program("ioctl_enter", &long) else {
            panic!("a program error")
        };
        assert!(text.ends_with("é the end") && text.len() <= LOG_END, "{} bytes", text.len());
        assert!(!denied);
    }

    #[test]
    fn what_the_verifier_dislikes_is_no_matter_of_rights() {
        let refused = |errno| {
            let io_error = io::Error::from_raw_os_error(errno);
            ProgramError::SyscallError(SyscallError { call: "bpf_prog_load", io_error })
        };
        assert!(!is_denied(&refused(13)));
        assert!(is_denied(&refused(1)));
    }
}
