//! Attaching a loaded program to a kernel tracepoint, by a perf event of our own.
//!
//! In: the program's descriptor, and where tracefs is. Out: an [`Attachment`]; dropping it detaches.
//! Not aya's attach, since that looks for tracefs in the agent's own mounts only, and the agent may live in a container.
//! What can go wrong: no such event, or no right to it; the error names the event.

use std::fs::read_to_string;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::string::{String, ToString};

/// A program on an event, for as long as this lives.
#[derive(Debug)]
pub struct Attachment {
    _event: OwnedFd,
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
    /// The perf event was refused.
    #[error("perf event for tracepoint {event}: {source} (the agent needs CAP_PERFMON)")]
    Open {
        /// `category/name`.
        event: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The program was refused.
    #[error("program on tracepoint {event}: {source} (the agent needs CAP_BPF and CAP_PERFMON)")]
    Bind {
        /// `category/name`.
        event: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Runs `program` whenever the tracepoint `event` (`category/name`) is hit, on every CPU.
///
/// # Errors
/// The event is missing, or one of the two steps was refused.
pub fn to_tracepoint(
    program: BorrowedFd<'_>,
    tracefs: &Path,
    event: &str,
) -> Result<Attachment, AttachError> {
    let id = event_id(tracefs, event)?;
    let fd = open_event(id).map_err(|source| AttachError::Open { event: event.to_string(), source })?;
    let bind = |source| AttachError::Bind { event: event.to_string(), source };
    control(&fd, SET_BPF, program.as_raw_fd().into()).map_err(bind)?;
    control(&fd, ENABLE, 0).map_err(bind)?;
    Ok(Attachment { _event: fd })
}

fn event_id(tracefs: &Path, event: &str) -> Result<u64, AttachError> {
    let path = tracefs.join("events").join(event).join("id");
    let text = read_to_string(&path).map_err(|source| AttachError::Event { path: path.clone(), source })?;
    text.trim().parse().map_err(|_| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "not a number");
        AttachError::Event { path, source }
    })
}

/// The first version of the kernel's `perf_event_attr`, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    bits: u64,
    wakeup_events: u32,
    breakpoint: u32,
    config1: u64,
}

const _: () = assert!(size_of::<EventAttributes>() == 64);

const TRACEPOINT: u32 = 2;
const SET_BPF: libc::Ioctl = 0x4004_2408;
const ENABLE: libc::Ioctl = 0x2400;
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// An event counts on one CPU, but a program on a tracepoint's event runs on every CPU: CPU 0 is enough.
fn open_event(id: u64) -> io::Result<OwnedFd> {
    let attributes = EventAttributes {
        kind: TRACEPOINT,
        size: size_of::<EventAttributes>() as u32,
        config: id,
        sample_period: 1,
        wakeup_events: 1,
        ..EventAttributes::default()
    };
    let (any_process, cpu, no_group) = (-1 as libc::c_int, 0 as libc::c_int, -1 as libc::c_int);
    // SAFETY: the structure is as long as it says and lives through the call; the kernel only reads it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            any_process,
            cpu,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    let fd = i32::try_from(answer).map_err(|_| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn control(event: &OwnedFd, request: libc::Ioctl, argument: libc::c_long) -> io::Result<()> {
    // SAFETY: both requests take a plain number, no memory of ours is involved.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_missing_event_is_named() {
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let error = to_tracepoint(null.as_fd(), Path::new("/nowhere"), "syscalls/sys_enter_ioctl")
            .expect_err("no tracefs there");
        assert!(matches!(error, AttachError::Event { .. }), "{error}");
        assert!(error.to_string().contains("/nowhere/events/syscalls/sys_enter_ioctl/id"), "{error}");
    }
}
