//! A perf event that carries a program.
//!
//! In: the event's kind and number, and a program. Out: the event's descriptor; closing it detaches the program.
//! What can go wrong: no right (CAP_PERFMON), an event that is gone, a CPU that is off; the system's answer is given.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Which event.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    /// One of tracefs, by its number.
    Tracepoint(u64),
    /// A function's entry.
    Kprobe {
        /// The number of the kprobe PMU.
        pmu: u32,
        /// `module:function`.
        function: &'a CStr,
    },
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

/// An event counts on one CPU, but its program runs on every CPU: one is enough, as long as it is online now. It may go
/// offline later: the kernel asks for the program before it looks at the CPU's events.
pub(super) fn open(kind: Kind<'_>, cpu: u32) -> io::Result<OwnedFd> {
    let (number, config, config1) = match kind {
        Kind::Tracepoint(id) => (TRACEPOINT, id, 0),
        // config 0: the entry. A return would need MAXACTIVE, which perf cannot give.
        Kind::Kprobe { pmu, function } => (pmu, 0, function.as_ptr() as u64),
    };
    let attributes = EventAttributes {
        kind: number,
        size: size_of::<EventAttributes>() as u32,
        config,
        sample_period: 1,
        wakeup_events: 1,
        config1,
        ..EventAttributes::default()
    };
    let (any_process, no_group) = (-1 as libc::c_int, -1 as libc::c_int);
    let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the structure is as long as it says, and both it and the function's name, which ends in NUL, live through
    // the call; the kernel only reads them.
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

/// Puts the program on the event, and lets it run.
pub(super) fn bind(event: &OwnedFd, program: BorrowedFd<'_>) -> io::Result<()> {
    control(event, SET_BPF, program.as_raw_fd().into())?;
    control(event, ENABLE, 0)
}

fn control(event: &OwnedFd, request: libc::Ioctl, argument: libc::c_long) -> io::Result<()> {
    // SAFETY: both requests take a plain number, no memory of ours is involved.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
