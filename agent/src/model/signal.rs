//! [`Signal`]: everything a source can say, in one closed enum.
//!
//! In: what `sources` parsed. Out: the input of `correlate`. The variants are the lines of the replay format, plus
//! what only a live machine has (call statistics and the passing of time).
//! A new variant visits every stage, since no stage that decides by it matches with `_`.

use super::{
    Call, CgroupId, DeviceNode, DriverLine, LatencyDelta, MonoNs, PciAddress, Pid, Process, ThreadState, Tid,
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
    /// A measured field of a device.
    Sample { at: MonoNs, sample: Sample },
    /// A process uses a device (or stops to).
    Uses { at: MonoNs, uses: Uses },
    /// A process was seen, or was looked for and is not there.
    Process { at: MonoNs, pid: Pid, process: Option<Process> },
    /// A process ended.
    Exit { at: MonoNs, pid: Pid },
    /// A thread entered or left the driver.
    Call { at: MonoNs, call: Box<Call> },
    /// What a thread is doing, looked at from outside.
    Thread { at: MonoNs, pid: Pid, tid: Tid, state: ThreadState },
    /// Driver calls that ended since the previous reading, by process, device and operation.
    CallStats { at: MonoNs, stats: Box<CallStats> },
    /// A line of the kernel log that concerns the driver.
    DriverLog { at: MonoNs, line: Box<DriverLine> },
    /// A device was given to a container (or taken back).
    Allocation { at: MonoNs, allocation: Box<Allocation> },
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
            | Self::Sample { at, .. }
            | Self::Uses { at, .. }
            | Self::Process { at, .. }
            | Self::Exit { at, .. }
            | Self::Call { at, .. }
            | Self::Thread { at, .. }
            | Self::CallStats { at, .. }
            | Self::DriverLog { at, .. }
            | Self::Allocation { at, .. }
            | Self::Source { at, .. }
            | Self::Tick { at }
            | Self::End { at } => at,
        }
    }
}

/// A device's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// `GPU-…` or `MIG-…`, OpenTelemetry's `hw.id`.
    pub hw_id: String,
    /// NVML's index. Trap: not stable across hot-plug.
    pub index: Option<u32>,
    /// The minor of /dev/nvidiaN.
    pub minor: Option<u32>,
    /// PCI address of the board.
    pub pci: Option<PciAddress>,
    /// Product name.
    pub model: Option<String>,
    /// `hw.id` of the GPU that a MIG instance is part of.
    pub parent: Option<String>,
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

/// One value of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Device.
    pub hw_id: String,
    /// DCGM's field number, or a name for a host value such as `pcie.aer.correctable`.
    pub field: Field,
    /// The value, or why there is none.
    pub value: SampleValue,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// A DCGM field id.
    Dcgm(u16),
    /// A value of the host, by name.
    Host(String),
}

/// A measured value. "No data" is a value of its own: never 0, never "healthy".
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A number in the field's unit.
    Number(f64),
    /// A text.
    Text(String),
    /// Nothing, with the reason: `blank`, `not_supported`, `not_permitted`, `stale`, `source_down`.
    Absent(String),
}

/// A process uses a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uses {
    /// The process.
    pub pid: Pid,
    /// The device.
    pub hw_id: String,
    /// How it is known: `uvm_channel`, `nvml`, `cap_fd`, `allocation`, `open_fd` or `env`.
    pub evidence: String,
    /// `workload`, `monitor` or `agent`.
    pub role: String,
    /// The use is over.
    pub end: bool,
}

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
    /// The allocation is over.
    pub end: bool,
}

/// Whether a source gives data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// `dcgm`, `nvml`, `probes`, `kmsg`, `kubelet` or `pid_namespace`.
    pub name: String,
    /// It gives data.
    pub up: bool,
    /// Why not.
    pub reason: Option<String>,
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
    /// Which system call.
    pub kind: super::CallKind,
    /// The ioctl command, as in the call; 0 for other calls.
    pub op: u32,
    /// What was added since the previous reading.
    pub latency: LatencyDelta,
    /// The process is gone and its counts are complete.
    pub last: bool,
}
