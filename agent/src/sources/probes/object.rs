//! The kernel object: loading it with this kernel's offsets, and putting its programs on their events.
//!
//! In: the embedded object, facts and choices. Out: [`Loaded`], whose parts keep everything alive.
//! What can go wrong: missing rights, a kernel without BTF, a verifier that refuses. [`LoadError`] names each, and says
//! whether trying again makes sense.

use std::os::fd::AsFd;
use std::path::Path;

use aya::maps::{Array, HashMap, MapData, MapError, RingBuf};
use aya::programs::{ProgramError, TracePoint};
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use log::Log;
use warpgauge_ebpf::attach::{Attachment, to_tracepoint};
use warpgauge_ebpf::calls::{InFlight, InFlightKey};
use warpgauge_ebpf::event::KnownProcess;
use warpgauge_ebpf::histogram::{Histogram, HistogramKey};
use warpgauge_ebpf::ioctl_type::TypeSet;
use warpgauge_ebpf::layout::MEMBERS;
use warpgauge_ebpf::lock::{Held, HeldKey};
use warpgauge_ebpf::maps::MAJOR_SLOTS;
use warpgauge_ebpf::prefix::Prefix;
use warpgauge_ebpf::rm::{RmKey, RmSum};
use warpgauge_ebpf::schedule::{Off, OffKey, OffSum};
use warpgauge_ebpf::{globals, maps};

use super::kernel::Kernel;
use super::load_error::LoadError;
use super::offsets::Offsets;
use super::tactics::{Choice, Hook, PROCESS_EXIT, Probe, Tactic};
use crate::host::cgroup_hierarchy::Version;

/// As `cargo xtask build-ebpf` made it; empty where it was not run before this build.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/warpgauge-ebpf"));

/// What the programs are told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A call at least this long is slow. Unit: ns.
    pub slow_ns: u64,
    /// The agent, in the host's pid namespace.
    pub own_pid: u32,
    /// Where the cgroup id comes from.
    pub hierarchy: Version,
    /// Paths whose opens are watched.
    pub open_prefix: Prefix,
    /// Ioctl commands that are passed over unseen.
    pub foreign_types: TypeSet,
}

/// Programs at work, and the maps they share with the agent.
pub struct Loaded {
    /// Calls in flight.
    pub in_flight: HashMap<MapData, InFlightKey, InFlight>,
    /// Finished calls.
    pub histograms: HashMap<MapData, HistogramKey, Histogram>,
    /// Ends of slow calls.
    pub slow_calls: RingBuf<MapData>,
    /// Attempts to unload the driver; `None` once it was handed on.
    pub unloads: Option<RingBuf<MapData>>,
    /// Things that happen once.
    pub events: RingBuf<MapData>,
    /// Processes that have called the driver.
    pub processes: HashMap<MapData, u32, KnownProcess>,
    /// Sums of calls into the resource manager.
    pub rm_calls: HashMap<MapData, RmKey, RmSum>,
    /// Who has which lock.
    pub held: HashMap<MapData, HeldKey, Held>,
    /// Locks that another thread than the holder let go, and when.
    pub released: HashMap<MapData, u64, u64>,
    /// Processes followed by the scheduler's programs, and until when.
    pub armed: HashMap<MapData, u32, u64>,
    /// Their threads that do not run.
    pub off: HashMap<MapData, u32, Off>,
    /// Sums of their times.
    pub off_sums: HashMap<MapData, OffKey, OffSum>,
    /// Losses.
    pub losses: Array<MapData, u64>,
    /// Probes that this kernel refused, and why.
    pub broken: Vec<(Probe, LoadError)>,
    majors: Array<MapData, [u32; MAJOR_SLOTS]>,
    log: Option<EbpfLogger<&'static dyn Log>>,
    // the programs go when their events and this go
    attachments: Vec<Attachment>,
    scheduler: Vec<Attachment>,
    programs: Ebpf,
}

/// Programs of the scheduler, attached on demand.
const SCHEDULER: [Hook; 2] = [
    Hook { program: "sched_wakeup", event: "sched/sched_wakeup" },
    Hook { program: "sched_switch", event: "sched/sched_switch" },
];

/// Whether this build has the object.
pub fn is_built() -> bool {
    !OBJECT.is_empty()
}

impl Loaded {
    /// Loads the object and the programs of the chosen tactics, and attaches them. Takes some hundred milliseconds.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn new(
        kernel: &Kernel,
        choices: &[Choice],
        offsets: &Offsets,
        settings: &Settings,
        majors: [u32; MAJOR_SLOTS],
    ) -> Result<Self, LoadError> {
        let tracefs = kernel.tracefs.as_deref().ok_or(LoadError::NoTracefs)?;
        let mut ebpf = load(offsets, settings)?;
        let log = EbpfLogger::init(&mut ebpf).ok();
        let mut array = Array::try_from(map(&mut ebpf, maps::MAJORS)?)?;
        array.set(0, majors, 0)?;
        let (attachments, broken) = attach_all(&mut ebpf, tracefs, kernel, choices)?;
        Ok(Self {
            in_flight: HashMap::try_from(map(&mut ebpf, maps::IN_FLIGHT)?)?,
            histograms: HashMap::try_from(map(&mut ebpf, maps::HISTOGRAMS)?)?,
            slow_calls: RingBuf::try_from(map(&mut ebpf, maps::SLOW_CALLS)?)?,
            unloads: Some(RingBuf::try_from(map(&mut ebpf, maps::UNLOADS)?)?),
            events: RingBuf::try_from(map(&mut ebpf, maps::EVENTS)?)?,
            processes: HashMap::try_from(map(&mut ebpf, maps::PROCESSES)?)?,
            rm_calls: HashMap::try_from(map(&mut ebpf, maps::RM_CALLS)?)?,
            held: HashMap::try_from(map(&mut ebpf, maps::HELD)?)?,
            released: HashMap::try_from(map(&mut ebpf, maps::RELEASED)?)?,
            armed: HashMap::try_from(map(&mut ebpf, maps::ARMED)?)?,
            off: HashMap::try_from(map(&mut ebpf, maps::OFF)?)?,
            off_sums: HashMap::try_from(map(&mut ebpf, maps::OFF_SUMS)?)?,
            losses: Array::try_from(map(&mut ebpf, maps::LOSSES)?)?,
            broken,
            majors: array,
            log,
            attachments,
            scheduler: Vec::new(),
            programs: ebpf,
        })
    }

    /// Watches other majors from now on.
    ///
    /// # Errors
    /// The kernel refused to change the map.
    pub fn watch(&mut self, majors: [u32; MAJOR_SLOTS]) -> Result<(), MapError> {
        self.majors.set(0, majors, 0)
    }

    /// Puts one more program on an event, of whatever probe; tests use events that every kernel has.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn attach(&mut self, tracefs: &Path, hook: &Hook) -> Result<(), LoadError> {
        self.attachments.push(attach_one(&mut self.programs, tracefs, hook)?);
        Ok(())
    }

    /// Puts the scheduler's programs on their events, unless they are there.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn arm_scheduler(&mut self, tracefs: &Path) -> Result<(), LoadError> {
        if self.scheduler.is_empty() {
            let attached = SCHEDULER.iter().map(|hook| attach_one(&mut self.programs, tracefs, hook));
            self.scheduler = attached.collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Takes them off again.
    pub fn disarm_scheduler(&mut self) {
        self.scheduler.clear();
    }

    /// Hands the programs' log lines to the agent's log.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}

fn load(offsets: &Offsets, settings: &Settings) -> Result<Ebpf, LoadError> {
    let cgroup_mode = match settings.hierarchy {
        Version::V1 => globals::CGROUP_V1,
        Version::V2 => globals::CGROUP_V2,
    };
    // lines nobody would see are not even compiled into the kernel
    let log_level = log::max_level() as usize as u8;
    let mut loader = EbpfLoader::new();
    loader
        .btf(None)
        .override_global(globals::SLOW_NS, &settings.slow_ns, true)
        .override_global(globals::OWN_TGID, &settings.own_pid, true)
        .override_global(globals::CGROUP_MODE, &cgroup_mode, true)
        .override_global(globals::PIDS_SUBSYS, &offsets.pids_subsys, true)
        .override_global(globals::OPEN_PREFIX, &settings.open_prefix, true)
        .override_global(globals::FOREIGN_TYPES, &settings.foreign_types, true)
        .override_global(aya_log::LEVEL, &log_level, false);
    for (member, offset) in MEMBERS.iter().zip(&offsets.members) {
        loader.override_global(member.global, offset, true);
    }
    Ok(loader.load(OBJECT)?)
}

fn map(ebpf: &mut Ebpf, name: &'static str) -> Result<aya::maps::Map, LoadError> {
    ebpf.take_map(name).ok_or(LoadError::Missing(name))
}

/// What works, and what does not.
type Attached = (Vec<Attachment>, Vec<(Probe, LoadError)>);

/// Puts each probe's programs on their events. A probe that this kernel refuses is left out; without any, all fails.
fn attach_all(
    ebpf: &mut Ebpf,
    tracefs: &Path,
    kernel: &Kernel,
    choices: &[Choice],
) -> Result<Attached, LoadError> {
    let (mut attachments, mut broken) = (Vec::new(), Vec::new());
    attach(ebpf, tracefs, &[PROCESS_EXIT], kernel, &mut attachments)?;
    let by_tracepoint = |choice: &&Choice| choice.tactic == Some(Tactic::SyscallTracepoint);
    let mut working = 0;
    for choice in choices.iter().filter(by_tracepoint) {
        match attach(ebpf, tracefs, choice.probe.hooks(), kernel, &mut attachments) {
            Ok(()) => working += 1,
            Err(error) => broken.push((choice.probe, error)),
        }
    }
    match broken.pop() {
        Some((_, error)) if working == 0 => return Err(error),
        last => broken.extend(last),
    }
    Ok((attachments, broken))
}

/// All of the hooks that this kernel has, or none of them.
fn attach(
    ebpf: &mut Ebpf,
    tracefs: &Path,
    hooks: &[Hook],
    kernel: &Kernel,
    attachments: &mut Vec<Attachment>,
) -> Result<(), LoadError> {
    let before = attachments.len();
    for hook in hooks.iter().filter(|hook| kernel.events.contains(&hook.event)) {
        match attach_one(ebpf, tracefs, hook) {
            Ok(attachment) => attachments.push(attachment),
            Err(error) => {
                attachments.truncate(before);
                return Err(error);
            }
        }
    }
    Ok(())
}

fn attach_one(ebpf: &mut Ebpf, tracefs: &Path, hook: &Hook) -> Result<Attachment, LoadError> {
    let program = ebpf.program_mut(hook.program).ok_or(LoadError::Missing(hook.program))?;
    let refused = |error| LoadError::of_program(hook.program, &error);
    let program: &mut TracePoint = program.try_into().map_err(refused)?;
    match program.load() {
        Ok(()) => {
            let verified = program.info().ok().and_then(|info| info.verified_instruction_count());
            tracing::debug!(program = hook.program, verified, "kernel program loaded");
        }
        // a program may go to several events
        Err(ProgramError::AlreadyLoaded) => {}
        Err(error) => return Err(refused(error)),
    }
    let fd = program.fd().map_err(refused)?;
    Ok(to_tracepoint(fd.as_fd(), tracefs, hook.event)?)
}
