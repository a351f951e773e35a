//! A process is known from its first call on a watched device: its exec and its end are told, those of others are not.

use std::fs;
use std::process::{Child, Command, Stdio};

use warpgauge::host::HostRoot;
use warpgauge::host::cgroup_hierarchy::Version;
use warpgauge::sources::probes::attached::Driver;
use warpgauge::sources::probes::btf::Btf;
use warpgauge::sources::probes::groups::Group;
use warpgauge::sources::probes::hooks::Hook;
use warpgauge::sources::probes::kernel::Kernel;
use warpgauge::sources::probes::object::{Loaded, Settings};
use warpgauge::sources::probes::offsets::Offsets;
use warpgauge::sources::probes::tactics;
use warpgauge_ebpf::calls::{InFlight, InFlightKey, flags, kind, layer};
use warpgauge_ebpf::event::{Event, what};
use warpgauge_ebpf::ioctl_type::TypeSet;
use warpgauge_ebpf::prefix::Prefix;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::programs::victim;
use warpgauge_tests::harness::tty::{MAJOR, Tty};
use warpgauge_tests::needs;

use crate::driver_calls::Caller;

/// Programs at work on terminals, and these in addition; ends first.
pub(crate) fn programs(hooks: &[(&'static str, &'static str)]) -> Loaded {
    let hooks: Vec<Hook> = hooks.iter().map(|(program, event)| Hook::tracepoint(program, event)).collect();
    programs_of(std::process::id(), &hooks)
}

/// The same, of an agent with this number: what that one does is not seen.
pub(crate) fn programs_of(own_pid: u32, hooks: &[Hook]) -> Loaded {
    let kernel = Kernel::look(&HostRoot::default(), tactics::events());
    let btf = Btf::parse(fs::read("/sys/kernel/btf/vmlinux").unwrap()).unwrap();
    let settings = Settings {
        slow_ns: u64::MAX,
        own_pid,
        hierarchy: Version::V2,
        open_prefix: Prefix::new(b"/dev/tty0").unwrap(),
        foreign_types: TypeSet::EMPTY,
    };
    let offsets = Offsets::resolve(&btf, Version::V2).unwrap();
    let majors = [MAJOR, 0, 0, 0, 0, 0, 0, 0];
    let group = Group::own(&HostRoot::default(), std::process::id());
    let driver = Driver::default();
    let mut loaded = Loaded::new(&kernel, &driver, &[], group, &offsets, &settings, majors).unwrap();
    hooks.iter().for_each(|hook| loaded.attach(hook.clone()).unwrap());
    loaded
}

const OPENS: [(&str, &str); 3] = [
    ("process_exec", "sched/sched_process_exec"),
    ("call_exit", "syscalls/sys_exit_openat"),
    ("openat_enter", "syscalls/sys_enter_openat"),
];

const VICTIM: &[u8; 16] = b"ioctl-victim\0\0\0\0";

/// What was told of this process so far.
fn told(loaded: &mut Loaded, all: &mut Vec<Event>, pid: u32) -> Vec<Event> {
    while let Some(item) = loaded.events.next() {
        all.push(Event::from_bytes(&item).unwrap());
    }
    all.iter().filter(|event| event.tgid == pid).copied().collect()
}

/// A shell that opens a file and then becomes another program, which ends at the end of its input.
fn becomes_victim(path: &str) -> Child {
    let script = format!("exec 3<>{path}; exec {} script", victim().display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn an_exec_and_the_end_are_told_of_who_called_the_driver() {
    needs!(Root, Probes, Tty0);
    let mut loaded = programs(&OPENS);
    let (mut known, mut other) = (becomes_victim("/dev/tty0"), becomes_victim("/dev/null"));
    let mut all = Vec::new();
    let execs = wait_for("the exec", 10, || {
        Some(told(&mut loaded, &mut all, known.id())).filter(|events| !events.is_empty())
    });
    let entry = loaded.processes.get(&known.id(), 0).expect("known until user space removes it");
    assert_eq!((execs.len(), execs[0].what), (1, what::EXEC), "{execs:?}");
    assert_eq!((execs[0].tid, &execs[0].comm), (known.id(), VICTIM));
    assert_eq!(execs[0].start_ns, entry.start_ns);
    assert_ne!(entry.start_ns, 0);
    assert!(loaded.processes.get(&other.id(), 0).is_err(), "it opened nothing that is watched");

    for child in [&mut other, &mut known] {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    // both were waited for, so all there is to tell was told
    let events = told(&mut loaded, &mut all, known.id());
    let kinds: Vec<u32> = events.iter().map(|event| event.what).collect();
    assert_eq!(kinds, [what::EXEC, what::EXIT], "{events:?}");
    assert_eq!((events[1].start_ns, &events[1].comm), (entry.start_ns, VICTIM));
    assert!(events[0].at_ns < events[1].at_ns);
    assert_eq!(told(&mut loaded, &mut all, other.id()), []);
}

#[test]
fn a_process_ends_with_its_last_thread() {
    needs!(Root, Probes, Tty0);
    const THREADS: usize = 8;
    let mut loaded = programs(&OPENS);
    let tty = Tty::hold();
    let mut crowd = tty.crowd(THREADS);
    let pid = crowd.id();
    let tasks = format!("/proc/{pid}/task");
    wait_for("the threads", 10, || (fs::read_dir(&tasks).unwrap().count() == THREADS + 1).then_some(()));
    wait_for("the process to be known", 10, || loaded.processes.get(&pid, 0).ok());
    tty.release();
    tty.hang(&mut crowd); // the end of its input
    assert!(crowd.wait().unwrap().success());
    let mut all = Vec::new();
    let events = told(&mut loaded, &mut all, pid);
    let kinds: Vec<u32> = events.iter().map(|event| event.what).collect();
    assert_eq!(kinds, [what::EXIT], "{events:?}");
}

#[test]
fn a_process_is_known_by_its_first_call_of_any_kind() {
    needs!(Root, Probes, Tty0);
    let mut caller = Caller::alone();
    assert_eq!(caller.call("open /dev/tty0"), "done\n");
    let loaded =
        programs(&[("call_exit", "syscalls/sys_exit_ioctl"), ("ioctl_enter", "syscalls/sys_enter_ioctl")]);
    assert!(loaded.processes.get(&caller.pid(), 0).is_err(), "it opened before the programs were there");
    assert_eq!(caller.call("ioctl 56832"), "failed 25\n");
    let entry = loaded.processes.get(&caller.pid(), 0).expect("known");
    assert_eq!(entry.flags, 0);
    assert!(loaded.processes.get(&std::process::id(), 0).is_err(), "the agent does not know itself");
}

/// A probe may have come off while the thread was in its call: nothing else would ever end the entry.
#[test]
fn whatever_a_dying_thread_is_in_is_marked() {
    needs!(Root, Probes);
    let mut loaded = programs(&[]);
    let (dying, other) = (Caller::alone(), Caller::alone());
    let (dies, lives) = (dying.pid(), other.pid());
    for (tid, layer) in [dies, lives].into_iter().flat_map(|tid| layer::ALL.map(|layer| (tid, layer))) {
        let call =
            InFlight { tgid: tid, kind: kind::FAULT, flags: flags::SURE_RETURN, ..InFlight::default() };
        loaded.in_flight.insert(InFlightKey { tid, layer }, call, 0).unwrap();
    }
    drop(dying); // it is waited for
    let flags_of =
        |tid| layer::ALL.map(|layer| loaded.in_flight.get(&InFlightKey { tid, layer }, 0).unwrap().flags);
    assert_eq!(flags_of(dies), [flags::SURE_RETURN | flags::DYING; 5]);
    assert_eq!(flags_of(lives), [flags::SURE_RETURN; 5]);
}
