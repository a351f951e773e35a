//! Is a thread still inside its call? Asked of real threads of this kernel.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use warpgauge::host::HostRoot;
use warpgauge::model::{Inside, Pid, Tid};
use warpgauge::sources::probes::inside::{Expected, Sample, check};
use warpgauge::sources::probes::syscalls::Syscalls;
use warpgauge_tests::harness::deadline::{try_for, wait_for};
use warpgauge_tests::harness::programs;
use warpgauge_tests::needs;

#[cfg(target_arch = "x86_64")]
const READ: u64 = 0;
#[cfg(target_arch = "aarch64")]
const READ: u64 = 63;
#[cfg(target_arch = "x86_64")]
const IOCTL: u64 = 16;
#[cfg(target_arch = "aarch64")]
const IOCTL: u64 = 29;

/// Ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(child: &Child, numbers: &[u64], previous: Option<&Sample>) -> (Inside, Option<Sample>) {
    let expected = Expected { syscalls: Syscalls::OneOf(numbers), ..Expected::default() };
    check(&HostRoot::default(), Pid(child.id()), Tid(child.id()), &expected, previous)
}

/// /proc prints `running` for this thread: only its growing system time tells that it is inside.
#[test]
fn a_thread_that_spins_in_the_kernel_is_not_taken_for_outside() {
    needs!(Root);
    // One read takes seconds; on a busy machine it may end before its share of a CPU tells. Then another one is made.
    let inside = wait_for("an answer by system time", 120, spinning_read);
    assert!(inside);
}

/// Watches one huge read from its first ticks of system time to its end; `None` when it ended without an answer.
fn spinning_read() -> Option<bool> {
    let mut child = Command::new(programs::victim())
        .args(["read-random", "1073741824"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let mut child = Ended(child);
    let mut previous: Option<Sample> = None;
    let base = ask(&child.0, &[READ], None).1.map_or(0, |s| s.stime);
    try_for(60, || {
        if !matches!(child.0.try_wait(), Ok(None)) {
            return Some(None);
        }
        let (answer, sample) = ask(&child.0, &[READ], previous.as_ref());
        if sample.is_none_or(|s| s.stime < base + 5) {
            return None; // the read has not begun
        }
        previous = sample;
        let ended = !matches!(child.0.try_wait(), Ok(None));
        assert!(ended || answer != Inside::Outside, "taken for outside while it spins");
        (answer == Inside::Inside).then_some(Some(true))
    })
    .flatten()
}

#[test]
fn a_thread_asleep_in_a_call_is_inside_that_call_and_outside_others() {
    needs!(Root);
    let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let child = Ended(child);
    wait_for("cat to read", 10, || (ask(&child.0, &[READ], None).0 == Inside::Inside).then_some(()));
    assert_eq!(ask(&child.0, &[IOCTL], None).0, Inside::Outside);
}

#[test]
fn a_thread_that_is_gone_is_unknown_unless_the_kernel_saw_it_exit() {
    let child = Command::new("true").spawn().unwrap();
    let (pid, mut child) = (child.id(), Ended(child));
    child.0.wait().unwrap();
    let ask = |dying| {
        let syscalls = Syscalls::OneOf(&[IOCTL]);
        let expected = Expected { syscalls, dying, ..Expected::default() };
        check(&HostRoot::default(), Pid(pid), Tid(pid), &expected, None).0
    };
    assert_eq!(ask(false), Inside::Unknown);
    assert_eq!(ask(true), Inside::Outside);
}
