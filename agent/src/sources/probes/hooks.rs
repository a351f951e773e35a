//! Which program goes to which event: what a chosen row comes down to.
//!
//! In: a probe, a row, the driver's functions. Out: [`Hook`]s, ends before entries: no entry may wait for an end that
//! nobody sees.
//! What can go wrong: nothing; what a row cannot do without was asked for when it was chosen.

use super::functions::{Function, Module};
use super::kernel::Kernel;
use super::reload::Loads;
use super::symbols::{Place, Symbols};
use super::tactics::{CLOSE_RELEASES, Probe, Tactic};

/// A program and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The program's name in the object.
    pub program: &'static str,
    /// Where it goes.
    pub event: Event,
    /// The probe can do without the function.
    pub optional: bool,
}

/// Something in the kernel that a program can be put on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A tracepoint, as `category/name`.
    Tracepoint(&'static str),
    /// A function, by a kprobe event of tracefs.
    KprobeEvent {
        /// Its module.
        module: Module,
        /// Its name in the kernel.
        function: String,
        /// Where in it.
        edge: Edge,
    },
    /// A function's entry, by the kprobe PMU.
    PerfKprobe {
        /// Its module.
        module: Module,
        /// Its name in the kernel.
        function: String,
        /// Which load of the module: such a kprobe ends with it.
        load: u64,
    },
}

/// One of a function's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Its begin.
    Entry,
    /// Its return, of at most so many calls at once.
    Return {
        /// MAXACTIVE.
        at_once: u32,
    },
}

impl Event {
    /// The function's name in the kernel; a tracepoint's own.
    pub fn function(&self) -> &str {
        match self {
            Self::Tracepoint(event) => event,
            Self::KprobeEvent { function, .. } | Self::PerfKprobe { function, .. } => function,
        }
    }
}

impl Hook {
    /// On a tracepoint.
    pub const fn tracepoint(program: &'static str, event: &'static str) -> Self {
        Self { program, event: Event::Tracepoint(event), optional: false }
    }

    /// The function at whose entry a kprobe event of tracefs puts it.
    pub fn enters(&self) -> Option<(Module, &str)> {
        match &self.event {
            Event::KprobeEvent { module, function, edge: Edge::Entry } => Some((*module, function)),
            Event::KprobeEvent { .. } | Event::Tracepoint(_) | Event::PerfKprobe { .. } => None,
        }
    }

    /// Whether it sees ends of calls.
    pub fn is_end(&self) -> bool {
        match &self.event {
            Event::Tracepoint(event) => event.contains("sys_exit"),
            Event::KprobeEvent { edge, .. } => *edge != Edge::Entry,
            Event::PerfKprobe { .. } => false,
        }
    }
}

/// The tracepoints of a probe's third row; those of one that is none of the driver's are all it has.
pub fn tracepoints(probe: Probe) -> &'static [Hook] {
    static IOCTL: [Hook; 2] = [
        Hook::tracepoint("call_exit", "syscalls/sys_exit_ioctl"),
        Hook::tracepoint("ioctl_enter", "syscalls/sys_enter_ioctl"),
    ];
    static OPEN: [Hook; 6] = [
        Hook::tracepoint("call_exit", "syscalls/sys_exit_open"),
        Hook::tracepoint("call_exit", "syscalls/sys_exit_openat"),
        Hook::tracepoint("call_exit", "syscalls/sys_exit_openat2"),
        Hook::tracepoint("open_enter", "syscalls/sys_enter_open"),
        Hook::tracepoint("openat_enter", "syscalls/sys_enter_openat"),
        Hook::tracepoint("openat_enter", "syscalls/sys_enter_openat2"),
    ];
    static CLOSE: [Hook; 2] = [
        Hook::tracepoint("call_exit", "syscalls/sys_exit_close"),
        Hook::tracepoint("close_enter", "syscalls/sys_enter_close"),
    ];
    static MMAP: [Hook; 2] = [
        Hook::tracepoint("call_exit", "syscalls/sys_exit_mmap"),
        Hook::tracepoint("mmap_enter", "syscalls/sys_enter_mmap"),
    ];
    static UNLOAD: [Hook; 1] = [Hook::tracepoint("delete_module_enter", "syscalls/sys_enter_delete_module")];
    static EXEC: [Hook; 1] = [Hook::tracepoint("process_exec", "sched/sched_process_exec")];
    // a thread that is seen to leave must be seen to wake up
    static SCHEDULER: [Hook; 2] = [
        Hook::tracepoint("sched_wakeup", "sched/sched_wakeup"),
        Hook::tracepoint("sched_switch", "sched/sched_switch"),
    ];
    match probe {
        Probe::Ioctl => &IOCTL,
        Probe::Open => &OPEN,
        Probe::Close => &CLOSE,
        Probe::Mmap => &MMAP,
        Probe::Unload => &UNLOAD,
        Probe::Exec => &EXEC,
        Probe::Scheduler => &SCHEDULER,
        Probe::Poll
        | Probe::Rm
        | Probe::InitAdapter
        | Probe::Locks
        | Probe::UvmRegister
        | Probe::UvmFault
        | Probe::UvmService
        | Probe::UvmEvict
        | Probe::Xid
        | Probe::Power => &[],
    }
}

/// What is to be attached for a probe in a row.
pub fn of_row(probe: Probe, tactic: Tactic, kernel: &Kernel, symbols: &Symbols, loads: &Loads) -> Vec<Hook> {
    let present =
        |hook: &&Hook| matches!(hook.event, Event::Tracepoint(event) if kernel.events.contains(&event));
    let tracepoints = tracepoints(probe).iter().filter(present).cloned();
    match tactic {
        Tactic::TracefsKprobe => {
            let functions = || probe.functions().iter();
            let ends = functions().filter_map(|function| {
                let (program, at_once) = function.returns?;
                Some((function, program, Edge::Return { at_once }))
            });
            let entries = functions().map(|function| (function, function.entry, Edge::Entry));
            let hooks = ends.chain(entries).flat_map(|(function, program, edge)| {
                let hook = move |name| Hook {
                    program,
                    event: Event::KprobeEvent { module: function.module, function: name, edge },
                    optional: !function.needed,
                };
                names(function, symbols).into_iter().map(hook)
            });
            hooks.collect()
        }
        Tactic::PerfKprobe => {
            let entries = probe.functions().iter().flat_map(|function| {
                let Function { module, entry, needed, .. } = *function;
                // where the module is not loaded there is nothing to stand on; the hooks are made again when it is
                let load = loads.number(module);
                let names = load.map(|_| names(function, symbols)).unwrap_or_default();
                let hook = move |name| {
                    Some(Hook {
                        program: entry,
                        event: Event::PerfKprobe { module, function: name, load: load? },
                        optional: !needed,
                    })
                };
                names.into_iter().filter_map(hook)
            });
            let entries: Vec<Hook> = entries.collect();
            // without an entry every end would be looked at for nothing; and where the driver's release begins once
            // `close` has returned, that return would be taken for the end of the one before
            let has_ends = !entries.is_empty() && (probe != Probe::Close || kernel.release >= CLOSE_RELEASES);
            let ends = tracepoints.filter(|hook| hook.is_end() && has_ends);
            ends.collect::<Vec<_>>().into_iter().chain(entries.iter().cloned()).collect()
        }
        Tactic::SyscallTracepoint | Tactic::SchedTracepoint => tracepoints.collect(),
        // read by the programs of another probe
        Tactic::IoctlBlock => Vec::new(),
    }
}

fn names(function: &Function, symbols: &Symbols) -> Vec<String> {
    match symbols.place(function) {
        Place::At(names) => names,
        Place::NotYet(name) => vec![name.to_owned()],
        Place::Nowhere => Vec::new(),
    }
}
