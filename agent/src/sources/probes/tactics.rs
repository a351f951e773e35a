//! How each kind of call is observed: an ordered table, best first, and a pure choice from it.
//!
//! In: facts about the [`Kernel`] and the driver's functions, rows that the kernel refused when they were tried.
//! Out: one [`Choice`] per probe, with every refused row and its reason.
//! What can go wrong: no row fits; then the probe is off, and its refusals say why.

use warpgauge_ebpf::calls::kind;

use super::functions::Module;
use super::hooks::{Event, tracepoints};
use super::kernel::{Kernel, Support};
use super::refusal::Refusal;
use super::symbols::{Place, Symbols};

/// Something that can be observed on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the first five are named after the system calls")]
pub enum Probe {
    Ioctl,
    Open,
    Close,
    Mmap,
    Poll,
    /// What an ioctl asks the resource manager for.
    Rm,
    /// A GPU being brought up.
    InitAdapter,
    /// RM's locks.
    Locks,
    /// Processes that tie themselves to a GPU.
    UvmRegister,
    /// CPU faults on managed memory.
    UvmFault,
    /// UVM serving faults of GPUs.
    UvmService,
    /// UVM moving pages out of GPUs' memory.
    UvmEvict,
    /// The driver reporting an XID.
    Xid,
    /// The driver going to sleep.
    Power,
    /// Unloading a module, which has no device: see [`super::unload`].
    Unload,
    /// A process that called the driver running another program.
    Exec,
    /// Where threads spend the time in which they do not run: attached on demand only.
    Scheduler,
}

/// A way to observe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tactic {
    /// Kprobe events made through tracefs, on the driver's own functions (`unload`: on the kernel's).
    TracefsKprobe,
    /// Entry by a kprobe of perf, end by the tracepoint of the system call's return.
    PerfKprobe,
    /// Tracepoints of the system call, filtered by the device's major.
    SyscallTracepoint,
    /// The process's own block of parameters, read along with the ioctl in whatever way that is observed.
    IoctlBlock,
    /// Tracepoints of the scheduler.
    SchedTracepoint,
}

/// What was decided for a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The probe.
    pub probe: Probe,
    /// The first row that fits.
    pub tactic: Option<Tactic>,
    /// The rows above it, and why not.
    pub refused: Vec<Refusal>,
    /// Functions that this driver does not have, and that the row can do without.
    pub without: Vec<&'static str>,
}

/// What a choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The driver's functions.
    pub symbols: &'a Symbols,
}

/// All probes.
pub const PROBES: [Probe; 17] = [
    Probe::Ioctl,
    Probe::Open,
    Probe::Close,
    Probe::Mmap,
    Probe::Poll,
    Probe::Rm,
    Probe::InitAdapter,
    Probe::Locks,
    Probe::UvmRegister,
    Probe::UvmFault,
    Probe::UvmService,
    Probe::UvmEvict,
    Probe::Xid,
    Probe::Power,
    Probe::Unload,
    Probe::Exec,
    Probe::Scheduler,
];

/// Below this, the driver's release function runs after `close` has returned: there would be nothing to measure.
pub(super) const CLOSE_RELEASES: (u32, u32) = (6, 6);

impl Probe {
    /// The value of `probe` in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ioctl => "ioctl",
            Self::Open => "open",
            Self::Close => "close",
            Self::Mmap => "mmap",
            Self::Poll => "poll",
            Self::Rm => "rm",
            Self::InitAdapter => "init_adapter",
            Self::Locks => "locks",
            Self::UvmRegister => "uvm_register",
            Self::UvmFault => "uvm_fault",
            Self::UvmService => "uvm_service",
            Self::UvmEvict => "uvm_evict",
            Self::Xid => "xid",
            Self::Power => "power",
            Self::Unload => "unload",
            Self::Exec => "exec",
            Self::Scheduler => "scheduler",
        }
    }

    /// Its rows, best first.
    pub fn table(self) -> &'static [Tactic] {
        const CALL: [Tactic; 3] = [Tactic::TracefsKprobe, Tactic::PerfKprobe, Tactic::SyscallTracepoint];
        // nothing but the driver's own functions shows it, and an end at the system call's return would be wrong
        const DRIVER: [Tactic; 1] = [Tactic::TracefsKprobe];
        // RM's function is in the part of the driver that many kernels cannot trace
        const RM: [Tactic; 2] = [Tactic::TracefsKprobe, Tactic::IoctlBlock];
        // the driver has no function that is called before its unload is decided, but the kernel has
        const UNLOAD: [Tactic; 2] = [Tactic::TracefsKprobe, Tactic::SyscallTracepoint];
        const SCHED: [Tactic; 1] = [Tactic::SchedTracepoint];
        match self {
            Self::Ioctl | Self::Open | Self::Close | Self::Mmap => &CALL,
            Self::Rm => &RM,
            Self::Unload => &UNLOAD,
            Self::Exec | Self::Scheduler => &SCHED,
            Self::Poll
            | Self::InitAdapter
            | Self::Locks
            | Self::UvmRegister
            | Self::UvmFault
            | Self::UvmService
            | Self::UvmEvict
            | Self::Xid
            | Self::Power => &DRIVER,
        }
    }

    /// What is seen all the same where it is off.
    pub fn instead(self) -> Option<&'static str> {
        (self == Self::InitAdapter).then_some("the time it takes is seen in that of `open`")
    }

    /// The [`kind`] of the calls it follows; 0 if it follows none.
    pub fn kind(self) -> u32 {
        match self {
            Self::Ioctl => kind::IOCTL,
            Self::Open => kind::OPEN,
            Self::Close => kind::CLOSE,
            Self::Mmap => kind::MMAP,
            Self::Poll => kind::POLL,
            Self::Rm => kind::RM,
            Self::InitAdapter => kind::INIT,
            Self::Locks => kind::LOCK,
            Self::UvmRegister => kind::REGISTER,
            Self::UvmFault => kind::FAULT,
            Self::UvmService => kind::SERVICE,
            Self::UvmEvict => kind::EVICT,
            Self::Xid | Self::Power | Self::Unload | Self::Exec | Self::Scheduler => 0,
        }
    }
}

impl Tactic {
    /// The value of `tactic` in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::TracefsKprobe => "tracefs_kprobe",
            Self::PerfKprobe => "perf_kprobe",
            Self::SyscallTracepoint => "syscall_tracepoint",
            Self::IoctlBlock => "ioctl_block",
            Self::SchedTracepoint => "sched_tracepoint",
        }
    }
}

/// Every tracepoint that any row may use.
pub fn events() -> impl Iterator<Item = &'static str> {
    let event = |event: &Event| match event {
        Event::Tracepoint(event) => Some(*event),
        Event::KprobeEvent { .. } | Event::PerfKprobe { .. } => None,
    };
    PROBES.into_iter().flat_map(tracepoints).filter_map(move |hook| event(&hook.event))
}

/// Decides for a probe. `tried`: rows that the kernel refused although nothing spoke against them.
pub fn choose(probe: Probe, facts: Facts<'_>, tried: &[Refusal]) -> Choice {
    let mut choice = Choice { probe, tactic: None, refused: Vec::new(), without: Vec::new() };
    for tactic in probe.table() {
        let by_kernel = tried.iter().find(|refusal| refusal.tactic == *tactic).cloned();
        let by_facts = || refusal(probe, *tactic, facts).map(|reason| Refusal::by_facts(*tactic, reason));
        match by_kernel.or_else(by_facts) {
            Some(refusal) => choice.refused.push(refusal),
            None => {
                choice.tactic = Some(*tactic);
                if matches!(tactic, Tactic::TracefsKprobe | Tactic::PerfKprobe) {
                    choice.without = missing(probe, facts.symbols);
                }
                break;
            }
        }
    }
    choice
}

/// Functions that the loaded driver lacks, by their newest names.
fn missing(probe: Probe, symbols: &Symbols) -> Vec<&'static str> {
    let functions = probe.functions().iter().filter(|function| symbols.place(function) == Place::Nowhere);
    functions.filter_map(|function| function.names.last().copied()).collect()
}

fn refusal(probe: Probe, tactic: Tactic, facts: Facts<'_>) -> Option<&'static str> {
    let Facts { kernel, symbols } = facts;
    let not_supported = |support| match support {
        Support::Yes => None,
        Support::No => Some("no_kprobes"),
        Support::Unknown(reason) => Some(reason),
    };
    let no_symbols = || {
        let lacking = |needed| needed && symbols.unreadable().is_some();
        let nowhere = |place| place == Place::Nowhere;
        let functions = probe.functions();
        if lacking(functions.iter().any(|function| function.module != Module::Kernel)) {
            return Some("no_kallsyms");
        }
        functions
            .iter()
            .any(|function| function.needed && nowhere(symbols.place(function)))
            .then_some("no_symbol")
    };
    match tactic {
        Tactic::TracefsKprobe => not_supported(kernel.tracefs_kprobes).or_else(no_symbols),
        Tactic::PerfKprobe => not_supported(kernel.perf_kprobes)
            .or_else(no_symbols)
            .or_else(|| no_tracepoints(probe, true, kernel)),
        Tactic::SyscallTracepoint if probe == Probe::Close && kernel.release < CLOSE_RELEASES => {
            Some("release_after_close")
        }
        // whether ioctls are observed is told by what became of their probe
        Tactic::IoctlBlock => None,
        Tactic::SyscallTracepoint | Tactic::SchedTracepoint => no_tracepoints(probe, false, kernel),
    }
}

/// `open` is not on every architecture and `openat2` not in every kernel: one entry and one end are enough.
fn no_tracepoints(probe: Probe, ends_only: bool, kernel: &Kernel) -> Option<&'static str> {
    if kernel.tracefs.is_none() {
        return Some(if kernel.tracefs_denied { "not_permitted" } else { "no_tracefs" });
    }
    let wanted = tracepoints(probe);
    let has = |end: bool| {
        let mut of_end = wanted.iter().filter(|hook| hook.is_end() == end).peekable();
        let present = |hook: &super::hooks::Hook| matches!(hook.event, Event::Tracepoint(event) if kernel.events.contains(&event));
        // of the scheduler's both are needed
        if probe == Probe::Scheduler {
            of_end.all(present)
        } else {
            of_end.peek().is_none() || of_end.any(present)
        }
    };
    (!(has(true) && (ends_only || has(false)))).then_some("no_event")
}

#[cfg(test)]
#[path = "tactics_tests.rs"]
mod tests;
