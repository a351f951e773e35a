//! Where the threads of armed processes spend the time in which they do not run, by the scheduler's own events.

use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use warpgauge::host::mono_now;
use warpgauge::sources::probes::object::Loaded;
use warpgauge_ebpf::layout::FIELDS;
use warpgauge_ebpf::schedule::{Off, OffKey, OffSum, reason};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::tty::Tty;
use warpgauge_tests::needs;

use crate::driver_calls::Caller;
use crate::known_processes;

const SCHEDULER: [(&str, &str); 2] =
    [("sched_switch", "sched/sched_switch"), ("sched_wakeup", "sched/sched_wakeup")];

const LONG: Duration = Duration::from_millis(300);
const NS_PER_S: u64 = 1_000_000_000;

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

/// Follows a process for a minute.
fn arm(loaded: &mut Loaded, pid: u32) {
    loaded.armed.insert(pid, mono_now().0 + 60 * NS_PER_S, 0).unwrap();
}

fn sum(loaded: &Loaded, tgid: u32, reason: u32) -> OffSum {
    loaded.off_sums.get(&OffKey { tgid, reason }, 0).unwrap_or_default()
}

/// The reasons that a process has sums of.
fn reasons(loaded: &Loaded, pid: u32) -> Vec<u32> {
    let of_process = loaded.off_sums.keys().map(|key| key.unwrap()).filter(|key| key.tgid == pid);
    let mut reasons: Vec<u32> = of_process.map(|key| key.reason).collect();
    reasons.sort_unstable();
    reasons
}

/// It may be preempted on its way there.
fn wait_until_off(loaded: &Loaded, pid: u32, reason: u32) -> Off {
    let off = || loaded.off.get(&pid, 0).ok().filter(|off| off.reason == reason);
    wait_for("the thread to be off the processor", 10, off)
}

/// Lets time pass, on the kernel's own clock.
fn wait_long(since_ns: u64) {
    wait_for("time", 10, || (since_ns + ns(LONG) < mono_now().0).then_some(()));
}

#[test]
fn the_events_have_their_fields_where_the_programs_look() {
    needs!(Root, Probes);
    for field in FIELDS {
        let path = format!("/sys/kernel/tracing/events/{}/format", field.event);
        let format = std::fs::read_to_string(&path).unwrap();
        assert!(field.is_in(&format), "{field:?}: {format}");
    }
}

#[test]
fn a_wait_for_input_is_sleep_and_as_long_as_it_was() {
    needs!(Root, Probes);
    let mut loaded = known_processes::programs(&SCHEDULER);
    let (mut armed, mut other, mut expired) = (Caller::alone(), Caller::alone(), Caller::alone());
    arm(&mut loaded, armed.pid());
    loaded.armed.insert(expired.pid(), mono_now().0, 0).unwrap();
    let began = mono_now().0;
    for caller in [&mut armed, &mut other, &mut expired] {
        assert_eq!(caller.call("open /dev/null"), "done\n");
    }
    // it answers before it sleeps again
    let off = wait_until_off(&loaded, armed.pid(), reason::SLEEP);
    assert_eq!((off.tgid, off.woken_ns), (armed.pid(), 0));
    assert!(began < off.since_ns && off.since_ns < mono_now().0, "{off:?}");
    let before = sum(&loaded, armed.pid(), reason::SLEEP);
    wait_long(off.since_ns);
    for caller in [&mut armed, &mut other, &mut expired] {
        assert_eq!(caller.call("close"), "done\n");
    }
    let slept = wait_for("the sum", 10, || {
        let now = sum(&loaded, armed.pid(), reason::SLEEP);
        (before.times < now.times).then_some(now)
    });
    let elapsed = mono_now().0 - began;
    let waited = slept.waited_ns - before.waited_ns;
    assert!((ns(LONG)..elapsed).contains(&waited), "{waited} ns of {elapsed}");
    assert!(slept.waited_ns + slept.queued_ns < elapsed, "{slept:?} of {elapsed}");
    for unarmed in [&other, &expired] {
        assert_eq!(reasons(&loaded, unarmed.pid()), [0; 0], "nothing of {}", unarmed.pid());
        assert!(loaded.off.get(&unarmed.pid(), 0).is_err());
    }

    // a thread that never runs again leaves nothing behind
    let pid = armed.pid();
    drop(armed);
    assert!(loaded.off.get(&pid, 0).is_err(), "it was waited for");
}

/// Processes that never wait for anything; ended when dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn on_one_cpu(count: usize) -> Self {
        let allowed = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(cpu);
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
            let pid = Pid::from_raw(child.id().cast_signed());
            busy.0.push(child);
            sched_setaffinity(pid, &one).unwrap();
        }
        busy
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill(); // it may have ended by itself
            let _ = child.wait();
        }
    }
}

#[test]
fn a_thread_that_must_share_its_processor_waits_in_the_queue() {
    needs!(Root, Probes);
    let mut loaded = known_processes::programs(&SCHEDULER);
    let busy = Busy::on_one_cpu(2);
    let pid = busy.0[0].id();
    let began = mono_now().0;
    arm(&mut loaded, pid);
    let sum = wait_for("to be preempted for a while", 20, || {
        let sum = sum(&loaded, pid, reason::PREEMPTED);
        (20_000_000 < sum.queued_ns).then_some(sum)
    });
    assert_eq!(sum.waited_ns, 0, "it could have gone on all the time");
    assert!(1 <= sum.times && sum.queued_ns < mono_now().0 - began, "{sum:?}");
    assert_eq!(reasons(&loaded, busy.0[1].id()), [0; 0], "not armed");
}

#[test]
fn a_hung_call_is_the_drivers_time() {
    needs!(Root, Probes, Tty0);
    let calls = [("call_exit", "syscalls/sys_exit_ioctl"), ("ioctl_enter", "syscalls/sys_enter_ioctl")];
    let mut loaded = known_processes::programs(&[SCHEDULER, calls].concat());
    let tty = Tty::hold();
    let mut victim = tty.victim();
    let pid = victim.id();
    arm(&mut loaded, pid);
    let began = mono_now().0;
    tty.hang(&mut victim);
    let off = wait_until_off(&loaded, pid, reason::DRIVER_CALL);
    wait_long(off.since_ns);
    tty.release();
    assert!(victim.wait().unwrap().success());
    let sum = sum(&loaded, pid, reason::DRIVER_CALL);
    let elapsed = mono_now().0 - began;
    assert!((ns(LONG)..elapsed).contains(&sum.waited_ns), "{sum:?} of {elapsed}");
}
