//! [`Signal`]: everything a source can say, in one closed enum.
//!
//! In: what `sources` parsed. Out: the input of `correlate`. The variants are the lines of the replay format, plus
//! what only a live machine has (call statistics and the passing of time).
//! A new variant visits every stage, since no stage that decides by it matches with `_`.

use std::sync::Arc;

pub use super::gpu::{DeviceKind, Gpu, GpuDetails, MigPlace};
use super::{
    Call, CgroupId, DeviceNode, DriverLine, JobDevices, LatencyDelta, LockHolders, LockWaits, MonoNs,
    OpenNodes, Origin, Pid, PodDevices, Process, RmCalls, Samples, Scheduling, ThreadState, Tid, UseEvidence,
    UvmWork, XidReport,
};

/// One observation of one source.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "every variant has its line; the fields are a time and the thing itself")]
pub enum Signal {
    /// A GPU or MIG instance exists.
    Gpu { at: MonoNs, gpu: Gpu },
    /// The driver's version and state.
    Driver { at: MonoNs, driver: DriverState },
    /// A device changed state: lost, resetting, back.
    GpuState { at: MonoNs, hw_id: String, state: DeviceState },
    /// Measured fields of a device.
    Samples { at: MonoNs, samples: Box<Samples> },
    /// Every process that uses a device now, as NVML tells: who is not in the list does not use it any more.
    Processes { at: MonoNs, processes: Box<GpuProcesses> },
    /// What DCGM's health checks say of one subsystem of a device.
    Health { at: MonoNs, hw_id: String, subsystem: Subsystem, level: HealthLevel },
    /// A process uses a device (or stops to).
    Uses { at: MonoNs, uses: Uses },
    /// A process was seen, or was looked for and is not there.
    Process { at: MonoNs, pid: Pid, process: Option<Box<Process>> },
    /// A process runs another program from now on: whatever it had open for the former one is closed.
    Exec { at: MonoNs, pid: Pid },
    /// Which device nodes a process has open; the whole of it each time.
    OpenNodes { at: MonoNs, open: Box<OpenNodes> },
    /// A process ended.
    Exit { at: MonoNs, pid: Pid },
    /// A thread entered or left the driver.
    Call { at: MonoNs, call: Box<Call> },
    /// What a thread is doing, looked at from outside.
    Thread { at: MonoNs, pid: Pid, tid: Tid, state: ThreadState },
    /// Driver calls that ended since the previous reading, by process, device and operation.
    CallStats { at: MonoNs, stats: Box<CallStats> },
    /// Calls into the resource manager that came back since the previous reading, by operation and status.
    RmCalls { at: MonoNs, calls: Box<RmCalls> },
    /// Waits for the driver's locks that ended since the previous reading.
    LockWaits { at: MonoNs, waits: Box<LockWaits> },
    /// What unified memory cost the node since the previous reading.
    UvmWork { at: MonoNs, work: Box<UvmWork> },
    /// Where the threads of a process were while they did not run, since the previous reading.
    Scheduling { at: MonoNs, scheduling: Scheduling },
    /// Who has a lock that somebody waits for.
    LockHolders { at: MonoNs, holders: Box<LockHolders> },
    /// What a process is, by what it asks the driver for.
    Role { at: MonoNs, pid: Pid, role: ProcessRole },
    /// The driver's function for errors was called.
    XidReport { at: MonoNs, report: XidReport },
    /// Calls into a vendor's library that came back since the previous reading, by function and device.
    VendorCalls { at: MonoNs, calls: Box<VendorCalls> },
    /// A line of the kernel log that concerns the driver.
    DriverLog { at: MonoNs, line: Box<DriverLine> },
    /// A device was given to a container (or taken back).
    Allocation { at: MonoNs, allocation: Box<Allocation> },
    /// Which container was given which devices, as the kubelet tells; the whole of it each time.
    PodDevices { at: MonoNs, devices: Arc<PodDevices> },
    /// Which batch jobs have which GPUs, as a job mapping directory tells; the whole of it each time.
    JobDevices { at: MonoNs, jobs: Arc<JobDevices> },
    /// A source came up or went down.
    Source { at: MonoNs, source: SourceState },
    /// Time passed. Signals from before `at` may still be on their way.
    Tick { at: MonoNs },
    /// Nothing more will come: what is open is closed as far as it can be known.
    End { at: MonoNs },
}

impl Signal {
    /// The time the signal is about; for a call's entry this is well before it was noticed.
    pub fn at(&self) -> MonoNs {
        match *self {
            Self::Gpu { at, .. }
            | Self::Driver { at, .. }
            | Self::GpuState { at, .. }
            | Self::Samples { at, .. }
            | Self::Processes { at, .. }
            | Self::Health { at, .. }
            | Self::Uses { at, .. }
            | Self::Process { at, .. }
            | Self::Exec { at, .. }
            | Self::OpenNodes { at, .. }
            | Self::Exit { at, .. }
            | Self::Call { at, .. }
            | Self::Thread { at, .. }
            | Self::CallStats { at, .. }
            | Self::RmCalls { at, .. }
            | Self::LockWaits { at, .. }
            | Self::UvmWork { at, .. }
            | Self::Scheduling { at, .. }
            | Self::LockHolders { at, .. }
            | Self::Role { at, .. }
            | Self::XidReport { at, .. }
            | Self::VendorCalls { at, .. }
            | Self::DriverLog { at, .. }
            | Self::Allocation { at, .. }
            | Self::PodDevices { at, .. }
            | Self::JobDevices { at, .. }
            | Self::Source { at, .. }
            | Self::Tick { at }
            | Self::End { at } => at,
        }
    }
}

/// The driver as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverState {
    /// Release, such as 580.142.
    pub version: Option<String>,
    /// `open` or `proprietary`.
    pub flavour: Option<String>,
    /// `loaded`, `unloading`, `unloaded` or `suspending`.
    pub state: ModuleState,
}

/// Where the driver's module is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the replay format's words")]
pub enum ModuleState {
    Loaded,
    Unloading,
    Unloaded,
    Suspending,
}

/// Whether a device answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the replay format's words")]
pub enum DeviceState {
    Ok,
    Lost,
    Resetting,
    Gone,
}

/// The processes on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuProcesses {
    /// The GPU or MIG instance.
    pub hw_id: Arc<str>,
    /// Its processes; empty where there are none.
    pub processes: Vec<GpuProcess>,
}

/// What one process has of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuProcess {
    /// The process, in the driver's (the host's) pid namespace.
    pub pid: Pid,
    /// Device memory. Unit: bytes. Source: NVML; it has none for some drivers (WDDM, vGPU).
    pub memory: Option<u64>,
    /// Share of the time in which its kernels ran. Range: 0 to 1. Source: NVML's process utilisation samples.
    pub sm_utilization: Option<f64>,
    /// What kind of context it has.
    pub context: GpuContext,
}

/// Kind of a process's context on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "NVML's three lists of processes")]
pub enum GpuContext {
    Compute,
    Graphics,
    Mps,
}

/// Subsystems of DCGM's health checks. Source: `dcgmHealthSystems_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names of the bits")]
pub enum Subsystem {
    Pcie,
    NvLink,
    Pmu,
    Mcu,
    Memory,
    Sm,
    Inforom,
    Thermal,
    Power,
    Driver,
    NvSwitchNonFatal,
    NvSwitchFatal,
    /// An incident that names no single subsystem, such as most XIDs.
    All,
}

impl Subsystem {
    /// All of them; the first twelve in the order of DCGM's bits.
    pub const ALL: &[Self] = &[
        Self::Pcie,
        Self::NvLink,
        Self::Pmu,
        Self::Mcu,
        Self::Memory,
        Self::Sm,
        Self::Inforom,
        Self::Thermal,
        Self::Power,
        Self::Driver,
        Self::NvSwitchNonFatal,
        Self::NvSwitchFatal,
        Self::All,
    ];

    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pcie => "pcie",
            Self::NvLink => "nvlink",
            Self::Pmu => "pmu",
            Self::Mcu => "mcu",
            Self::Memory => "memory",
            Self::Sm => "sm",
            Self::Inforom => "inforom",
            Self::Thermal => "thermal",
            Self::Power => "power",
            Self::Driver => "driver",
            Self::NvSwitchNonFatal => "nvswitch_nonfatal",
            Self::NvSwitchFatal => "nvswitch_fatal",
            Self::All => "all",
        }
    }
}

/// Result of a health check. Source: `dcgmHealthWatchResults_t` (0, 10, 20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "DCGM's words")]
pub enum HealthLevel {
    Pass,
    Warn,
    Fail,
}

/// A process uses a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uses {
    /// The process.
    pub pid: Pid,
    /// The device.
    pub hw_id: String,
    /// How it is known.
    pub evidence: UseEvidence,
    /// `workload`, `monitor`, `agent` or `mps`.
    pub role: String,
    /// The use is over.
    pub end: bool,
}

/// What a process is to the driver. Its names are those of [`Uses::role`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRole {
    /// It has allocated an engine or a channel: it computes.
    Workload,
    /// It asks the resource manager and has allocated nothing that computes.
    Monitor,
    /// A process of this agent.
    Agent,
    /// The server or the control program of MPS: what it does in the driver, it does for its clients.
    Mps,
}

/// The name in [`SourceState`] of the probe that [`XidReport`]s come from: a part of `probes`, which may be missing.
pub const XID_REPORTS: &str = "xid_reports";

/// A device given to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The device.
    pub hw_id: String,
    /// `k8s.pod.uid`.
    pub pod_uid: Option<String>,
    /// `k8s.pod.name`.
    pub pod: Option<String>,
    /// `k8s.namespace.name`.
    pub namespace: Option<String>,
    /// `k8s.container.name`.
    pub container: Option<String>,
    /// The batch job (Slurm's, as dcgm-exporter's mapping files name it).
    pub job: Option<String>,
    /// Who says so.
    pub how: AllocationSource,
    /// Shares of the device (time-slicing replicas, MPS slots, virtual GPUs) that were given; empty: all of it.
    pub shares: Vec<u32>,
    /// The allocation is over.
    pub end: bool,
}

/// Who says that a device was given to somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AllocationSource {
    /// The kubelet, of an extended resource.
    #[default]
    PodResources,
    /// The kubelet, of a ResourceClaim (dynamic resource allocation).
    ResourceClaim,
    /// A file of the job mapping directory.
    JobMapping,
}

impl AllocationSource {
    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::PodResources => "pod_resources",
            Self::ResourceClaim => "resource_claim",
            Self::JobMapping => "job_mapping",
        }
    }
}

/// The reason of a source that pauses for a moment because its process is exchanged as planned.
pub const REPLACEMENT: &str = "replaced";

/// Whether a source gives data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// `dcgm`, `nvml`, `probes`, `kmsg`, `kubelet` or `pid_namespace`.
    pub name: String,
    /// It gives data.
    pub up: bool,
    /// Why not: `slow` (alive, a call is late), `down` (gone), `released`, or a source's own word.
    pub reason: Option<String>,
    /// The call that is late.
    pub late: Option<LateCall>,
}

/// A call into a vendor's library that has not come back in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateCall {
    /// The function.
    pub call: String,
    /// The device it is about, where it is about one.
    pub hw_id: Option<String>,
    /// When it began.
    pub began: MonoNs,
}

/// Finished calls of one function of a vendor's library about one device, since the previous reading.
#[derive(Clone, Debug, PartialEq)]
pub struct VendorCalls {
    /// Whose library.
    pub origin: Origin,
    /// The function, as the vendor names it.
    pub call: String,
    /// The device they were about, where they were about one.
    pub hw_id: Option<String>,
    /// What was added since the previous reading. Its errors are calls that returned one.
    pub latency: LatencyDelta,
}

/// Finished driver calls of one process on one device node, since the previous reading.
#[derive(Clone, Debug, PartialEq)]
pub struct CallStats {
    /// The process; it may be gone by now.
    pub pid: Pid,
    /// Its cgroup when it made the calls, taken in the probe.
    pub cgroup: CgroupId,
    /// The node it called; `None` for an `open` that failed.
    pub device: Option<DeviceNode>,
    /// Which way in.
    pub kind: super::CallKind,
    /// The driver's function, for [`super::CallKind::Driver`].
    pub function: Option<&'static str>,
    /// The ioctl command, as in the call; 0 for other calls.
    pub op: u32,
    /// What was added since the previous reading.
    pub latency: LatencyDelta,
    /// The process is gone and its counts are complete.
    pub last: bool,
}
