//! The kernel object: loading it with this kernel's offsets, and putting its programs on their events.
//!
//! In: the embedded object, facts and choices. Out: [`Loaded`], whose parts keep everything alive.
//! What can go wrong: missing rights, a kernel without BTF, a verifier that refuses. [`LoadError`] names each, and says
//! whether trying again makes sense.

use aya::maps::{Array, HashMap, MapData, MapError, RingBuf};
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use log::Log;
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

use super::attached::{Attached, Driver};
use super::groups::Group;
use super::hooks::{Hook, tracepoints};
use super::kernel::Kernel;
use super::load_error::LoadError;
use super::offsets::Offsets;
use super::tactics::{PROBES, Probe};
use crate::host::cgroup_hierarchy::Version;

/// As `cargo xtask build-ebpf` made it; empty where it was not run before this build.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/warpgauge-ebpf"));

/// Follows threads to their death; needed by every probe.
const PROCESS_EXIT: Hook = Hook::tracepoint("process_exit", "sched/sched_process_exit");

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
    /// Losses.
    pub losses: Array<MapData, u64>,
    /// What happens once.
    pub events: RingBuf<MapData>,
    /// Processes that have called the driver, by their numbers.
    pub processes: HashMap<MapData, u32, KnownProcess>,
    /// Sums of RM calls.
    pub rm_calls: HashMap<MapData, RmKey, RmSum>,
    /// Locks and who has them.
    pub held: HashMap<MapData, HeldKey, Held>,
    /// Processes that the scheduler's programs follow, and until when. Unit: ns, monotonic.
    pub armed: HashMap<MapData, u32, u64>,
    /// Threads of theirs that are off the processor, by their numbers.
    pub off: HashMap<MapData, u32, Off>,
    /// Their time off the processor.
    pub off_sums: HashMap<MapData, OffKey, OffSum>,
    /// Probes and what they stand on.
    pub attached: Attached,
    majors: Array<MapData, [u32; MAJOR_SLOTS]>,
    log: Option<EbpfLogger<&'static dyn Log>>,
}

/// Whether this build has the object.
pub fn is_built() -> bool {
    !OBJECT.is_empty()
}

impl Loaded {
    /// Loads the object, and of each probe the programs that the kernel takes. Takes some hundred milliseconds.
    ///
    /// # Errors
    /// See [`LoadError`]; one probe's refusals are none, as long as another is at work.
    pub fn new(
        kernel: &Kernel,
        driver: &Driver,
        probes: &[Probe],
        group: Group,
        offsets: &Offsets,
        settings: &Settings,
        majors: [u32; MAJOR_SLOTS],
    ) -> Result<Self, LoadError> {
        let mut ebpf = load(offsets, settings)?;
        let log = EbpfLogger::init(&mut ebpf).ok();
        let mut array = Array::try_from(map(&mut ebpf, maps::MAJORS)?)?;
        array.set(0, majors, 0)?;
        let sure = Array::try_from(map(&mut ebpf, maps::SURE_RETURNS)?)?;
        let rm_from_block = Array::try_from(map(&mut ebpf, maps::RM_FROM_BLOCK)?)?;
        let in_flight = HashMap::try_from(map(&mut ebpf, maps::IN_FLIGHT)?)?;
        let histograms = HashMap::try_from(map(&mut ebpf, maps::HISTOGRAMS)?)?;
        let slow_calls = RingBuf::try_from(map(&mut ebpf, maps::SLOW_CALLS)?)?;
        let unloads = Some(RingBuf::try_from(map(&mut ebpf, maps::UNLOADS)?)?);
        let losses = Array::try_from(map(&mut ebpf, maps::LOSSES)?)?;
        let events = RingBuf::try_from(map(&mut ebpf, maps::EVENTS)?)?;
        let processes = HashMap::try_from(map(&mut ebpf, maps::PROCESSES)?)?;
        let rm_calls = HashMap::try_from(map(&mut ebpf, maps::RM_CALLS)?)?;
        let held = HashMap::try_from(map(&mut ebpf, maps::HELD)?)?;
        let armed = HashMap::try_from(map(&mut ebpf, maps::ARMED)?)?;
        let off = HashMap::try_from(map(&mut ebpf, maps::OFF)?)?;
        let off_sums = HashMap::try_from(map(&mut ebpf, maps::OFF_SUMS)?)?;
        let mut attached = Attached::new(ebpf, kernel, group, sure, rm_from_block)?;
        attached.always(PROCESS_EXIT)?;
        attach_all(&mut attached, kernel, driver, probes)?;
        Ok(Self {
            in_flight,
            histograms,
            slow_calls,
            unloads,
            losses,
            events,
            processes,
            rm_calls,
            held,
            armed,
            off,
            off_sums,
            attached,
            majors: array,
            log,
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
    pub fn attach(&mut self, hook: Hook) -> Result<(), LoadError> {
        self.attached.always(hook)
    }

    /// The scheduler's programs go to work, for the processes in [`armed`](Self::armed): until then they cost nothing.
    /// Nothing happens where they are at work.
    ///
    /// # Errors
    /// This kernel does not have the events or refused the programs, or they have cost too much.
    pub fn arm_scheduler(&mut self) -> Result<(), LoadError> {
        self.attached.arm(Probe::Scheduler, tracepoints(Probe::Scheduler))
    }

    /// They stop.
    pub fn disarm_scheduler(&mut self) {
        self.attached.disarm(Probe::Scheduler);
    }

    /// Hands the programs' log lines to the agent's log.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}

pub(super) fn load(offsets: &Offsets, settings: &Settings) -> Result<Ebpf, LoadError> {
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

/// Each probe by the best row that the kernel takes; without any, all fails.
fn attach_all(
    attached: &mut Attached,
    kernel: &Kernel,
    driver: &Driver,
    probes: &[Probe],
) -> Result<(), LoadError> {
    let mut last = None;
    for probe in PROBES.iter().filter(|probe| probes.contains(probe)) {
        last = attached.settle(*probe, kernel, driver).or(last);
    }
    let on_demand = |probe| probe == Probe::Scheduler;
    let works = attached.choices().any(|choice| choice.tactic.is_some() && !on_demand(choice.probe));
    match last {
        Some(error) if !works => Err(error),
        _ => Ok(()),
    }
}
