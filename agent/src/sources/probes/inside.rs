//! Whether a thread is still in the call that its in-flight entry says it is in: *inside*, *outside* or *unknown*.
//!
//! In: what procfs shows of the thread now and showed before. Out: [`Inside`], by the pure [`judge`].
//! What can go wrong: procfs prints `running` for a thread that spins in the driver, refuses, or the file is gone: none
//! of that proves anything. Then the state letter and the growth of its times decide, or nobody does.

use crate::host::{HostRoot, mono_now};
use crate::model::{Inside, MonoNs, Pid, Tid};

use super::syscalls::Syscalls;
use super::thread_files::{Reading, SyscallText, ThreadFiles};

/// What a thread must be seen doing to be inside its call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected<'a> {
    /// The system calls it may be in.
    pub syscalls: Syscalls<'a>,
    /// Positions and low 32 bits of arguments that must match.
    pub arguments: [Option<(usize, u32)>; 2],
    /// The call may go on after its system call has returned (a `close`).
    pub outlives_syscall: bool,
    /// The kernel has seen the thread exiting.
    pub dying: bool,
    /// No return is ever missed: only proof to the contrary ends the call, and how times grow is none.
    pub sure: bool,
}

/// The times of a thread at one moment, to be compared with a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: MonoNs,
    /// User time. Unit: ticks of 10 ms.
    pub utime: u64,
    /// System time. Unit: ticks of 10 ms.
    pub stime: u64,
}

/// Looks at a thread and judges. Give back the sample with the next question about the same call.
pub fn check(
    host: &HostRoot,
    pid: Pid,
    tid: Tid,
    expected: &Expected<'_>,
    previous: Option<&Sample>,
) -> (Inside, Option<Sample>) {
    let reading = ThreadFiles::default().read(host, pid, tid);
    judge(&reading, mono_now(), expected, previous)
}

/// The rule. The sample that comes back is the one to compare with next time.
pub fn judge(
    reading: &Reading,
    now: MonoNs,
    expected: &Expected<'_>,
    previous: Option<&Sample>,
) -> (Inside, Option<Sample>) {
    let sample = reading.stat.map(|stat| Sample { at: now, utime: stat.utime, stime: stat.stime });
    let growth = previous.zip(sample.as_ref()).and_then(|(before, after)| Growth::between(before, after));
    // an early look must not replace the sample that a later one is to be compared with
    let kept = if growth.is_none() && previous.is_some() { previous.copied() } else { sample };
    (verdict(reading, expected, growth), kept)
}

fn verdict(reading: &Reading, expected: &Expected<'_>, growth: Option<Growth>) -> Inside {
    if reading.gone {
        // procfs of another pid namespace shows nothing either: only with the kernel's word is it an end
        return if expected.dying { Inside::Outside } else { Inside::Unknown };
    }
    if expected.dying {
        // an exiting thread may be in the driver's release function under the name of any system call
        return match by_times(reading, growth) {
            Inside::Inside => Inside::Inside,
            Inside::Outside | Inside::Unknown => Inside::Unknown,
        };
    }
    let by_times = || match by_times(reading, growth) {
        Inside::Outside if expected.sure => Inside::Unknown,
        judged => judged,
    };
    match (reading.syscall, expected.syscalls) {
        (SyscallText::Running | SyscallText::Unreadable, _) | (_, Syscalls::Any) => by_times(),
        (SyscallText::In { number, arguments }, Syscalls::OneOf(numbers)) => {
            let is_it = numbers.contains(&number) && expected.has(&arguments);
            if is_it { Inside::Inside } else { Inside::Outside }
        }
        (SyscallText::NotInAny, Syscalls::OneOf(_)) if expected.outlives_syscall => by_times(),
        (SyscallText::NotInAny, Syscalls::OneOf(_)) => Inside::Outside,
    }
}

impl Expected<'_> {
    fn has(&self, arguments: &[u64; 6]) -> bool {
        let matches = |(position, want): &(usize, u32)| {
            // the upper half of an `int` argument is whatever the caller left there
            arguments.get(*position).is_some_and(|got| *got as u32 == *want)
        };
        self.arguments.iter().flatten().all(matches)
    }
}

/// How much of the time between two samples a thread spent where.
#[derive(Clone, Copy, Debug)]
struct Growth {
    elapsed: u64,
    user: u64,
    system: u64,
}

/// Times are counted in ticks of 10 ms: below ten of them a share says nothing.
const SHORTEST_TICKS: u64 = 10;
const TICK_NS: u64 = 10_000_000;

impl Growth {
    fn between(before: &Sample, after: &Sample) -> Option<Self> {
        let elapsed = after.at.0.checked_sub(before.at.0)? / TICK_NS;
        let user = after.utime.checked_sub(before.utime)?;
        let system = after.stime.checked_sub(before.stime)?;
        (elapsed >= SHORTEST_TICKS).then_some(Self { elapsed, user, system })
    }
}

/// Without a readable system call: asleep in the kernel, or spinning there, is inside; computing is outside.
fn by_times(reading: &Reading, growth: Option<Growth>) -> Inside {
    let Some(stat) = reading.stat else { return Inside::Unknown };
    match (stat.state, growth) {
        ('D', _) => Inside::Inside,
        ('R', Some(Growth { elapsed, user, .. })) if user * 2 >= elapsed => Inside::Outside,
        // the kernel scales both times to their sum, so user time may move a little under a thread in the kernel
        ('R', Some(Growth { elapsed, user, system })) if system * 2 >= elapsed && user * 10 <= elapsed => {
            Inside::Inside
        }
        _ => Inside::Unknown,
    }
}

#[cfg(test)]
#[path = "inside_tests.rs"]
mod tests;
