//! Putting a loaded program on a kernel event, by a perf event of our own.
//!
//! In: the program's descriptor, and the event: a tracepoint, a kprobe event made through tracefs, or a function's entry
//! through the kprobe PMU. Out: an [`Attachment`]; dropping it detaches, and removes what was made.
//! Not aya's attach: it looks for tracefs in the agent's own mounts only, and its kprobes lose returns of calls that
//! overlap (no MAXACTIVE) and die with the module.
//! What can go wrong: no such event, or no right to it; the error names the event.

mod kprobe_event;
mod perf;

use std::ffi::CString;
use std::fs::read_to_string;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::string::{String, ToString};

use kprobe_event::KprobeEvent;
pub use kprobe_event::{Definition, FILE as KPROBE_EVENTS, remove};
use perf::Kind;

/// A program on an event, for as long as this lives.
#[derive(Debug)]
pub struct Attachment {
    // in this order: an event in use cannot be removed
    _perf: OwnedFd,
    _event: Option<KprobeEvent>,
}

/// Why a program could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The event's number cannot be read.
    #[error("tracepoint {path}: {source} (mount tracefs; a kernel without this event leaves the probe out)")]
    Event {
        /// The file with the number.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// tracefs refused to make the event.
    #[error(
        "kprobe event for {function}: {source} ({file} must be writable, and the kernel not locked down)"
    )]
    Define {
        /// `module:function`.
        function: String,
        /// Where it was to be made.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The perf event was refused.
    #[error(
        "perf event for {event}: {source} (the agent needs CAP_PERFMON; where kernel.perf_event_paranoid is above 2, CAP_SYS_ADMIN)"
    )]
    Open {
        /// `category/name`, or `module:function`.
        event: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The program was refused.
    #[error("program on {event}: {source} (the agent needs CAP_BPF and CAP_PERFMON)")]
    Bind {
        /// `category/name`, or `module:function`.
        event: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Runs `program` whenever the tracepoint `event` (`category/name`) is hit, on every CPU. `cpu`: any that is online.
///
/// # Errors
/// The event is missing, or one of the two steps was refused.
pub fn to_tracepoint(
    program: BorrowedFd<'_>,
    tracefs: &Path,
    event: &str,
    cpu: u32,
) -> Result<Attachment, AttachError> {
    let id = event_id(tracefs, event)?;
    let perf = on(Kind::Tracepoint(id), cpu, program, event)?;
    Ok(Attachment { _perf: perf, _event: None })
}

/// Makes a kprobe event, and runs `program` whenever it is hit. The function's module need not be loaded yet.
/// `cpu`: any that is online.
///
/// # Errors
/// tracefs refuses the event, or one of the steps of [`to_tracepoint`] fails; then no event is left.
pub fn to_kprobe_event(
    program: BorrowedFd<'_>,
    tracefs: &Path,
    definition: &Definition,
    cpu: u32,
) -> Result<Attachment, AttachError> {
    let event = define(tracefs, definition)?;
    let id = event_id(tracefs, event.path())?;
    let perf = on(Kind::Tracepoint(id), cpu, program, &definition.function)?;
    Ok(Attachment { _perf: perf, _event: Some(event) })
}

/// Makes the event and removes it at once: whether this function of a module that is loaded can have one. An event that
/// was made before the module came is not heard of any more when the kernel then refuses it.
///
/// # Errors
/// tracefs refuses the event.
pub fn try_kprobe_event(tracefs: &Path, definition: &Definition) -> Result<(), AttachError> {
    define(tracefs, definition).map(drop)
}

fn define(tracefs: &Path, definition: &Definition) -> Result<KprobeEvent, AttachError> {
    KprobeEvent::define(tracefs, definition).map_err(|source| AttachError::Define {
        function: definition.function.clone(),
        file: tracefs.join(KPROBE_EVENTS),
        source,
    })
}

/// Runs `program` at each entry of `function` (`module:function`), by the kprobe PMU, whose number is `pmu`. It ends in
/// silence when the module goes. `cpu`: any that is online.
///
/// # Errors
/// The function is not there now, or one of the two steps was refused.
pub fn to_perf_kprobe(
    program: BorrowedFd<'_>,
    pmu: u32,
    function: &str,
    cpu: u32,
) -> Result<Attachment, AttachError> {
    let name = CString::new(function).map_err(|error| AttachError::Open {
        event: function.to_string(),
        source: io::Error::new(io::ErrorKind::InvalidInput, error),
    })?;
    let perf = on(Kind::Kprobe { pmu, function: &name }, cpu, program, function)?;
    Ok(Attachment { _perf: perf, _event: None })
}

fn on(kind: Kind<'_>, cpu: u32, program: BorrowedFd<'_>, event: &str) -> Result<OwnedFd, AttachError> {
    let fd =
        perf::open(kind, cpu).map_err(|source| AttachError::Open { event: event.to_string(), source })?;
    perf::bind(&fd, program).map_err(|source| AttachError::Bind { event: event.to_string(), source })?;
    Ok(fd)
}

fn event_id(tracefs: &Path, event: &str) -> Result<u64, AttachError> {
    let path = tracefs.join("events").join(event).join("id");
    let text = read_to_string(&path).map_err(|source| AttachError::Event { path: path.clone(), source })?;
    text.trim().parse().map_err(|_| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "not a number");
        AttachError::Event { path, source }
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let nowhere = Path::new("/nowhere");
        let error = to_tracepoint(null.as_fd(), nowhere, "syscalls/sys_enter_ioctl", 0)
            .expect_err("no tracefs there");
        assert!(matches!(error, AttachError::Event { .. }), "{error}");
        assert!(error.to_string().contains("/nowhere/events/syscalls/sys_enter_ioctl/id"), "{error}");
        let definition =
            Definition { group: "g".into(), name: "n".into(), function: "nvidia:f".into(), returns: None };
        let error = to_kprobe_event(null.as_fd(), nowhere, &definition, 0).expect_err("no tracefs there");
        assert!(matches!(error, AttachError::Define { .. }), "{error}");
        assert!(error.to_string().contains("nvidia:f") && error.to_string().contains("/nowhere"), "{error}");
        let error = to_perf_kprobe(null.as_fd(), u32::MAX, "nvidia:f", 0).expect_err("no such PMU");
        assert!(matches!(error, AttachError::Open { .. }), "{error}");
        assert!(error.to_string().contains("nvidia:f"), "{error}");
        let error = to_perf_kprobe(null.as_fd(), 6, "nvidia:\0f", 0).expect_err("no name");
        assert!(matches!(error, AttachError::Open { .. }), "{error}");
    }
}
