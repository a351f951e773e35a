//! What procfs shows of one thread: its state, its times, the system call it is in.
//!
//! In: /proc/PID/task/TID/{stat,syscall,stack}, read into buffers that are used again. Out: [`Reading`].
//! What can go wrong: every file may be refused or vanish; that is part of the answer, and never an error.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};

use rustix::fs::{Access, access};

use crate::host::HostRoot;
use crate::model::{Pid, Tid};

/// One look at a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// State and times, where readable.
    pub stat: Option<Stat>,
    /// The system call it is in.
    pub syscall: SyscallText,
    /// It has no directory in procfs.
    pub gone: bool,
}

/// From a `stat` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State letter.
    pub state: char,
    /// The process's parent.
    pub parent: u32,
    /// User time. Unit: ticks of 10 ms.
    pub utime: u64,
    /// System time. Unit: ticks of 10 ms.
    pub stime: u64,
    /// Begin. Unit: ticks of 10 ms after boot.
    pub start: u64,
}

/// The forms of a `syscall` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallText {
    /// On a CPU: in the kernel or not, nobody can tell.
    Running,
    /// Asleep, but in no system call.
    NotInAny,
    /// In this one.
    In {
        /// Its number.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// Refused, gone, or something else.
    Unreadable,
}

/// Reads the files; keeps its buffers from one thread to the next.
#[derive(Debug, Default)]
pub struct ThreadFiles {
    path: String,
    text: Vec<u8>,
}

/// More than any of these files has.
const LONGEST: u64 = 4096;

impl ThreadFiles {
    /// Looks at one thread.
    pub fn read(&mut self, host: &HostRoot, pid: Pid, tid: Tid) -> Reading {
        let stat = self.file(host, pid, Some(tid), "stat").ok().and_then(parse_stat);
        let syscall =
            self.file(host, pid, Some(tid), "syscall").map_or(SyscallText::Unreadable, parse_syscall);
        Reading { stat, syscall, gone: stat.is_none() && self.gone(host, pid, Some(tid)) }
    }

    /// Whether the thread is asleep in a function of the driver's modules. Reading where it is takes CAP_SYS_ADMIN, and a
    /// kernel that keeps track of stacks.
    pub fn is_in_driver(&mut self, host: &HostRoot, pid: Pid, tid: Tid) -> bool {
        self.file(host, pid, Some(tid), "stack").is_ok_and(has_frame_of_driver)
    }

    /// Whether the system calls of other users' threads may be seen: CAP_SYS_PTRACE among the agent's own effective
    /// capabilities. (Process 1 may be refused all the same: it can have more of them.) Without procfs nothing is
    /// refused.
    pub fn may_see_syscalls(host: &HostRoot) -> bool {
        const CAP_SYS_PTRACE: u64 = 1 << 19;
        let status = fs::read_to_string(host.proc("self/status")).unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        effective.is_none_or(|set| set & CAP_SYS_PTRACE != 0)
    }

    /// State and times of a process's first thread, and when the process began. `Ok(None)`: there is no such process.
    ///
    /// # Errors
    /// It may not be looked at.
    pub fn process(&mut self, host: &HostRoot, pid: Pid) -> io::Result<Option<Stat>> {
        match self.file(host, pid, None, "stat") {
            Ok(text) => Ok(parse_stat(text)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn gone(&mut self, host: &HostRoot, pid: Pid, tid: Option<Tid>) -> bool {
        self.name(host, pid, tid, "");
        matches!(access(self.path.as_str(), Access::EXISTS), Err(e) if is_gone(&io::Error::from(e)))
            // procfs itself must be there, else nothing has been seen
            && fs::metadata(&host.proc).is_ok()
    }

    fn file(&mut self, host: &HostRoot, pid: Pid, tid: Option<Tid>, name: &str) -> io::Result<&str> {
        self.name(host, pid, tid, name);
        self.text.clear();
        File::open(&self.path)?.take(LONGEST).read_to_end(&mut self.text)?;
        // a thread's name may be any bytes; all that matters stands behind it
        let behind_name = self.text.iter().rposition(|b| *b == b')').map_or(0, |at| at + 1);
        let text = self.text.get(behind_name..).unwrap_or_default();
        str::from_utf8(text).map_err(|_| ErrorKind::InvalidData.into())
    }

    fn name(&mut self, host: &HostRoot, pid: Pid, tid: Option<Tid>, file: &str) {
        self.path.clear();
        // writing to a String cannot fail
        let _ = match tid {
            Some(tid) => write!(self.path, "{}/{}/task/{}/{file}", host.proc.display(), pid.0, tid.0),
            None => write!(self.path, "{}/{}/{file}", host.proc.display(), pid.0),
        };
    }
}

/// A process that ends while its file is being read answers ESRCH.
fn is_gone(error: &io::Error) -> bool {
    let no_such_process = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(no_such_process)
}

/// What stands behind the name: field 3 is the first.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut number = |skip: usize| fields.nth(skip)?.parse::<u64>().ok();
    Some(Stat {
        state,
        parent: u32::try_from(number(0)?).ok()?,
        utime: number(9)?,
        stime: number(0)?,
        start: number(6)?,
    })
}

/// A frame of a module ends with its name in brackets; those of the driver begin all alike. Its first frame alone may be
/// within the LONGEST bytes read, which is enough.
fn has_frame_of_driver(stack: &str) -> bool {
    stack.lines().filter_map(|frame| frame.strip_suffix(']')?.rsplit_once(" [")).any(|(_, module)| {
        // kernels with STACKTRACE_BUILD_ID have a number behind the name
        module.split(' ').next().is_some_and(|name| name == "nvidia" || name.starts_with("nvidia_"))
    })
}

fn parse_syscall(text: &str) -> SyscallText {
    let mut fields = text.split_ascii_whitespace();
    let number = match fields.next() {
        Some("running") => return SyscallText::Running,
        Some("-1") => return SyscallText::NotInAny,
        Some(number) => number.parse().ok(),
        None => None,
    };
    let Some(number) = number else { return SyscallText::Unreadable };
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        let hex = fields.next().and_then(|field| field.strip_prefix("0x"));
        let Some(value) = hex.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
            return SyscallText::Unreadable;
        };
        *argument = value;
    }
    SyscallText::In { number, arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_the_syscall_file() {
        let arguments = [3, 0xc020_462a, 0x7ffe_0000_1000, 0, 0, 0];
        for (text, want) in [
            ("running\n", SyscallText::Running),
            ("-1 0x7ffe0 0x401000\n", SyscallText::NotInAny),
            (
                "16 0x3 0xc020462a 0x7ffe00001000 0x0 0x0 0x0 0x7ffd0 0x7f00\n",
                SyscallText::In { number: 16, arguments },
            ),
            ("16 0x3\n", SyscallText::Unreadable),
            ("16 3 0 0 0 0 0\n", SyscallText::Unreadable),
            ("", SyscallText::Unreadable),
            ("-2", SyscallText::Unreadable),
        ] {
            assert_eq!(parse_syscall(text), want, "{text}");
        }
    }

    #[test]
    fn a_frame_of_the_driver_is_told_from_others() {
        let stack = |frame: &str| format!("[<0>] msleep+0x2d/0x40\n{frame}\n[<0>] chrdev_open+0xb2/0x220\n");
        for (frame, want) in [
            ("[<0>] nvidia_open+0x1f3/0x480 [nvidia]", true),
            ("[<0>] uvm_open+0x21/0x60 [nvidia_uvm]", true),
            ("[<0>] nvidia_open+0x1f3/0x480 [nvidia 0123456789abcdef0123456789abcdef01234567]", true),
            ("[<0>] nvidia_open+0x1f3/0x480", false),
            ("[<0>] open+0x1f3/0x480 [nvidiafb]", false),
            ("[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]", false),
            ("[nvidia]", false),
            ("", false),
        ] {
            assert_eq!(has_frame_of_driver(&stack(frame)), want, "{frame}");
        }
    }

    #[test]
    fn stat_is_read_behind_the_name() {
        let text = " D 1 2 2 0 -1 4194560 5 0 0 0 123 456 0 0 20 0 1 0 99887 1000 2 18446744073709551615";
        assert_eq!(
            parse_stat(text),
            Some(Stat { state: 'D', parent: 1, utime: 123, stime: 456, start: 99887 })
        );
        assert_eq!(parse_stat(" R 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn the_right_to_see_system_calls_is_a_capability() {
        let proc = crate::test_dir::TestDir::new();
        let host = HostRoot { proc: proc.path().into(), ..HostRoot::default() };
        fs::create_dir(proc.path().join("self")).expect("a folder");
        for (effective, may) in
            [("000001fffeffffff", true), ("0000000000080000", true), ("000001fffff7ffff", false)]
        {
            let status = format!("Name:\twarpgauge\nCapPrm:\t000001ffffffffff\nCapEff:\t{effective}\n");
            fs::write(proc.path().join("self/status"), status).expect("a file");
            assert_eq!(ThreadFiles::may_see_syscalls(&host), may, "{effective}");
        }
    }

    #[test]
    fn this_process_is_found_and_a_missing_one_is_gone() {
        let (host, mut files) = (HostRoot::default(), ThreadFiles::default());
        let me = Pid(std::process::id());
        let stat = files.process(&host, me).expect("readable").expect("alive");
        let main_thread = files.read(&host, me, Tid(me.0));
        assert_eq!(main_thread.stat.map(|s| s.start), Some(stat.start));
        assert!(!main_thread.gone);
        assert_eq!(files.process(&host, Pid(u32::MAX)).expect("readable"), None);
        assert!(files.read(&host, Pid(u32::MAX), Tid(1)).gone);
        let nowhere = HostRoot { proc: "/nowhere".into(), ..host };
        assert!(ThreadFiles::may_see_syscalls(&nowhere), "nobody refused");
        assert!(!files.read(&nowhere, me, Tid(me.0)).gone, "without procfs nothing has been seen");
    }
}
