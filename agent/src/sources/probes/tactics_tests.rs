//! Tests of the choice: each row, and each thing that speaks against it.
//!
//! In: made-up kernels and drivers. Out: rows and reasons.

use super::*;
use crate::sources::probes::functions::Module;
use crate::sources::probes::hooks::{Edge, Hook, of_row};
use crate::sources::probes::load_error::LoadError;
use crate::sources::probes::reload::Loads;

fn kernel(release: (u32, u32)) -> Kernel {
    Kernel {
        release,
        tracefs: Some("/sys/kernel/tracing".into()),
        tracefs_denied: false,
        tracefs_kprobes: Support::Yes,
        perf_kprobes: Support::Yes,
        kprobe_pmu: Some(6),
        events: events().collect(),
        host_pids: Support::Yes,
        possible_cpus: 2,
        online_cpus: 2,
        first_cpu: 0,
    }
}

fn without_kprobes(release: (u32, u32), without: &str) -> Kernel {
    Kernel {
        tracefs_kprobes: Support::No,
        perf_kprobes: Support::Unknown("unreadable"),
        events: events().filter(|event| without.is_empty() || !event.contains(without)).collect(),
        ..kernel(release)
    }
}

fn all(kernel: &Kernel, symbols: &Symbols) -> Vec<Choice> {
    PROBES.into_iter().map(|probe| choose(probe, Facts { kernel, symbols }, &[])).collect()
}

fn of(choices: &[Choice], probe: Probe) -> &Choice {
    choices.iter().find(|choice| choice.probe == probe).expect("every probe is decided")
}

fn reasons(choice: &Choice) -> Vec<(Tactic, &'static str)> {
    choice.refused.iter().map(|refusal| (refusal.tactic, refusal.reason)).collect()
}

fn loaded(names: &[(&str, Module)]) -> Symbols {
    let lines: String =
        names.iter().map(|(name, module)| format!("0 t {name}\t[{}]\n", module.name())).collect();
    Symbols::of(&lines, &Module::ALL)
}

#[test]
fn where_all_is_there_the_first_row_of_each_is_taken() {
    // 5.10, and no driver yet: its functions will have the newest names
    for choice in all(&kernel((5, 10)), &Symbols::default()) {
        assert_eq!(choice.tactic, choice.probe.table().first().copied(), "{choice:?}");
        assert!(choice.refused.is_empty() && choice.without.is_empty(), "{choice:?}");
    }
}

#[test]
fn without_kprobes_calls_fall_to_tracepoints_and_the_rest_is_off() {
    let choices = all(&without_kprobes((6, 6), ""), &Symbols::default());
    let kprobes = [(Tactic::TracefsKprobe, "no_kprobes"), (Tactic::PerfKprobe, "unreadable")];
    for choice in &choices {
        let (want, why) = match choice.probe.table() {
            [_, _, _] => (Some(Tactic::SyscallTracepoint), &kprobes[..]),
            [Tactic::TracefsKprobe] => (None, &kprobes[..1]),
            [Tactic::TracefsKprobe, Tactic::IoctlBlock] => (Some(Tactic::IoctlBlock), &kprobes[..1]),
            [Tactic::TracefsKprobe, Tactic::SyscallTracepoint] => {
                (Some(Tactic::SyscallTracepoint), &kprobes[..1])
            }
            [only] => (Some(*only), &[][..]),
            other => panic!("{other:?}"),
        };
        assert_eq!((choice.tactic, &reasons(choice)[..]), (want, why), "{choice:?}");
    }
}

#[test]
fn a_row_that_the_kernel_refused_is_passed_over() {
    let (kernel, symbols) = (kernel((6, 1)), Symbols::default());
    let facts = Facts { kernel: &kernel, symbols: &symbols };
    let error = LoadError::Missing("kp_ioctl");
    let first = Refusal::by_kernel(Tactic::TracefsKprobe, &error);
    let second = Refusal::by_kernel(Tactic::PerfKprobe, &error);
    let choice = choose(Probe::Ioctl, facts, std::slice::from_ref(&first));
    assert_eq!((choice.tactic, choice.refused), (Some(Tactic::PerfKprobe), vec![first.clone()]));
    let choice = choose(Probe::Ioctl, facts, &[first.clone(), second.clone()]);
    assert_eq!(
        (choice.tactic, choice.refused),
        (Some(Tactic::SyscallTracepoint), vec![first.clone(), second])
    );
    let choice = choose(Probe::Rm, facts, std::slice::from_ref(&first));
    assert_eq!(
        (choice.tactic, &choice.refused[..]),
        (Some(Tactic::IoctlBlock), std::slice::from_ref(&first))
    );
    let no_ioctl = Refusal::by_facts(Tactic::IoctlBlock, "no_ioctl");
    let choice = choose(Probe::Rm, facts, &[no_ioctl.clone(), first.clone()]);
    assert_eq!((choice.tactic, choice.refused), (None, vec![first.clone(), no_ioctl]));
    let choice = choose(Probe::Locks, facts, std::slice::from_ref(&first));
    assert_eq!((choice.tactic, choice.refused), (None, vec![first]));
}

#[test]
fn functions_that_are_missing_refuse_the_row_or_are_said() {
    let names = [
        ("nvidia_unlocked_ioctl", Module::Nvidia),
        ("os_acquire_mutex", Module::Nvidia),
        ("uvm_api_register_gpu", Module::Uvm),
    ];
    let choices = all(&kernel((6, 12)), &loaded(&names));
    assert_eq!(of(&choices, Probe::Ioctl).tactic, Some(Tactic::TracefsKprobe));
    assert_eq!(of(&choices, Probe::Ioctl).without, ["uvm_unlocked_ioctl_entry"]);
    assert_eq!(of(&choices, Probe::UvmRegister).without.len(), 3);
    let open = of(&choices, Probe::Open);
    assert_eq!(open.tactic, Some(Tactic::SyscallTracepoint));
    assert_eq!(reasons(open), [(Tactic::TracefsKprobe, "no_symbol"), (Tactic::PerfKprobe, "no_symbol")]);
    // the other locks could be taken unseen
    assert_eq!(reasons(of(&choices, Probe::Locks)), [(Tactic::TracefsKprobe, "no_symbol")]);
    let unreadable = Symbols::look(std::path::Path::new("/nowhere"), Module::ALL.to_vec());
    let choices = all(&kernel((6, 12)), &unreadable);
    let rm = of(&choices, Probe::Rm);
    assert_eq!(
        (rm.tactic, reasons(rm)),
        (Some(Tactic::IoctlBlock), vec![(Tactic::TracefsKprobe, "no_kallsyms")])
    );
    assert_eq!(of(&choices, Probe::Ioctl).tactic, Some(Tactic::SyscallTracepoint));
    assert_eq!(of(&choices, Probe::Exec).tactic, Some(Tactic::SchedTracepoint));
}

#[test]
fn close_by_tracepoints_needs_a_kernel_that_releases_within_it() {
    let choices = all(&without_kprobes((6, 5), ""), &Symbols::default());
    let close = of(&choices, Probe::Close);
    assert_eq!(
        (close.tactic, reasons(close).last()),
        (None, Some(&(Tactic::SyscallTracepoint, "release_after_close")))
    );
    assert_eq!(of(&choices, Probe::Ioctl).tactic, Some(Tactic::SyscallTracepoint));
    assert_eq!(
        of(&all(&kernel((6, 5)), &Symbols::default()), Probe::Close).tactic,
        Some(Tactic::TracefsKprobe)
    );
}

#[test]
fn missing_events_and_missing_tracefs_refuse_the_row() {
    let last = |kernel: &Kernel, probe| {
        let choices = all(kernel, &Symbols::default());
        let choice = of(&choices, probe);
        (choice.tactic, reasons(choice).last().map(|(_, reason)| *reason))
    };
    let tracepoints = Some(Tactic::SyscallTracepoint);
    let no_ioctl = without_kprobes((6, 12), "ioctl");
    assert_eq!(last(&no_ioctl, Probe::Ioctl), (None, Some("no_event")));
    assert_eq!(last(&no_ioctl, Probe::Open).0, tracepoints);
    // a perf kprobe has its end from a tracepoint
    let no_end = Kernel { perf_kprobes: Support::Yes, ..without_kprobes((6, 12), "sys_exit_ioctl") };
    assert_eq!(last(&no_end, Probe::Ioctl), (None, Some("no_event")));
    assert_eq!(last(&no_end, Probe::Mmap).0, Some(Tactic::PerfKprobe));
    // a kernel without modules
    assert_eq!(last(&without_kprobes((6, 12), "delete_module"), Probe::Unload), (None, Some("no_event")));
    assert_eq!(last(&without_kprobes((6, 12), "sched_wakeup"), Probe::Scheduler), (None, Some("no_event")));
    // aarch64 has no open(2)
    let events = vec!["syscalls/sys_enter_openat", "syscalls/sys_exit_openat"];
    assert_eq!(last(&Kernel { events, ..no_ioctl.clone() }, Probe::Open).0, tracepoints);
    let no_tracefs = Kernel { tracefs: None, ..without_kprobes((6, 12), "") };
    assert_eq!(last(&no_tracefs, Probe::Open), (None, Some("no_tracefs")));
    let denied = Kernel { tracefs_denied: true, ..no_tracefs };
    assert_eq!(last(&denied, Probe::Exec), (None, Some("not_permitted")));
}

#[test]
fn ends_are_attached_before_entries_and_nothing_twice() {
    let (kernel, symbols) = (kernel((6, 12)), loaded(&[("rm_ioctl", Module::Nvidia)]));
    for (symbols, loads) in
        [(&symbols, Loads::of([Some(1), Some(2)])), (&Symbols::default(), Loads::default())]
    {
        for probe in PROBES {
            for tactic in probe.table() {
                let hooks = of_row(probe, *tactic, &kernel, symbols, &loads);
                let order: Vec<bool> = hooks.iter().map(Hook::is_end).collect();
                assert!(order.is_sorted_by(|a, b| a >= b), "{probe:?}: {order:?}");
                let twice = (1..hooks.len()).any(|at| hooks[..at].contains(&hooks[at]));
                assert!(!twice, "{probe:?}: {hooks:?}");
            }
        }
    }
}

#[test]
fn a_row_comes_down_to_its_hooks() {
    let (kernel, none) = (kernel((6, 12)), Symbols::default());
    let open = loaded(&[("nvidia_close", Module::Nvidia)]);
    let (loaded, no_loads) =
        (loaded(&[("rm_ioctl.isra.0", Module::Nvidia), ("nvidia_mmap", Module::Nvidia)]), Loads::default());
    let event =
        |edge, function: &str| Event::KprobeEvent { module: Module::Nvidia, function: function.into(), edge };
    let hook = |program, event| Hook { program, event, optional: false };
    let hooks = of_row(Probe::Rm, Tactic::TracefsKprobe, &kernel, &loaded, &no_loads);
    let want = [
        hook("kr_rm_ioctl", event(Edge::Return { at_once: 4096 }, "rm_ioctl.isra.0")),
        hook("kp_rm_ioctl", event(Edge::Entry, "rm_ioctl.isra.0")),
    ];
    assert_eq!(hooks, want);
    let hooks = of_row(Probe::Xid, Tactic::TracefsKprobe, &kernel, &none, &no_loads);
    assert_eq!(hooks, [hook("kp_report_error", event(Edge::Entry, "nv_report_error"))]);
    // perf's are made for the load that is there, and for none that is not
    let mmap = |loads| of_row(Probe::Mmap, Tactic::PerfKprobe, &kernel, &loaded, &loads);
    assert_eq!(mmap(no_loads), []);
    let kprobe = Event::PerfKprobe { module: Module::Nvidia, function: "nvidia_mmap".into(), load: 41 };
    let want = [Hook::tracepoint("call_exit", "syscalls/sys_exit_mmap"), hook("kp_mmap", kprobe)];
    assert_eq!(mmap(Loads::of([Some(41), None])), want);
    assert_ne!(mmap(Loads::of([Some(42), None])), want);
    // a close whose release begins once it has returned has no end of its own
    let ends = |release: (u32, u32)| {
        let kernel = Kernel { release, ..kernel.clone() };
        let hooks = of_row(Probe::Close, Tactic::PerfKprobe, &kernel, &open, &Loads::of([Some(41), None]));
        (hooks.len(), hooks.iter().filter(|hook| hook.is_end()).count())
    };
    assert_eq!([ends((6, 5)), ends((6, 6))], [(1, 0), (2, 1)]);
}
