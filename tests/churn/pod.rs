//! A pod with one process, and all that the sources say of it in its life.
//!
//! In: its number and when it began. Out: signals, as the probes, NVML and the kubelet tell them.

use std::sync::Arc;
use std::time::Duration;

use warpgauge::model::signal::{GpuContext, GpuProcess, GpuProcesses};
use warpgauge::model::{
    Call, CallKind, CallStats, Caller, CgroupId, DeviceNode, Edge, Grant, Inside, Known, LatencyDelta,
    MonoNs, Pid, PodDevices, Process, Signal, StartTicks, ThreadState, Tid,
};
use warpgauge::sources::replay::replay;

/// The one device.
const GPU: &str = "GPU-77770000-0000-4000-8000-000000000000";
/// So many pids go round among every other pod; the rest have new ones.
const PIDS: u64 = 64;
/// Each so many pods one hangs in the driver.
const HANGS: u64 = 10;
/// Shares of the device.
const SHARES: u64 = 64;
const OP: u32 = 0xc020_462a;

/// A pod.
pub(crate) struct Pod {
    number: u64,
    /// Unit: s of the scenario.
    pub(crate) began: u64,
    pub(crate) cgroup: CgroupId,
}

impl Pod {
    pub(crate) fn new(number: u64, began: u64) -> Self {
        Self { number, began, cgroup: CgroupId(0) }
    }

    pub(crate) fn pid(&self) -> u64 {
        if self.number.is_multiple_of(2) { 100 + self.number / 2 % PIDS } else { 1_000 + self.number }
    }

    /// When its process began. Unit: clock ticks.
    pub(crate) fn start(&self) -> u64 {
        self.began * 100 + 7
    }

    fn uid(&self) -> String {
        format!("0a1b2c3d-1111-4222-8333-{:012x}", self.number)
    }

    fn container(&self) -> String {
        format!("{:064x}", self.number)
    }

    /// Its cgroup, below the root.
    pub(crate) fn path(&self) -> String {
        format!("kubepods/burstable/pod{}/{}", self.uid(), self.container())
    }

    pub(crate) fn log_folder(&self) -> String {
        format!("ml_job-{}_{}", self.number, self.uid())
    }

    pub(crate) fn log_link(&self) -> String {
        format!("job-{}_ml_main-{}.log", self.number, self.container())
    }

    /// Whether its process hangs in the driver, from its fifth second to its ninth, or until it is killed.
    pub(crate) fn hangs(&self) -> bool {
        self.number.is_multiple_of(HANGS)
    }

    /// Whether what is known of a process says that it is this one.
    pub(crate) fn is(&self, known: &Known<Process>) -> bool {
        known.is().is_some_and(|process| {
            process.start == Some(StartTicks(self.start()))
                && process.workload.pod_uid == Some(self.uid())
                && process.workload.container.as_deref() == Some("main")
        })
    }

    fn process(&self) -> Pid {
        Pid(self.pid() as u32)
    }

    /// It begins: a process that opens the driver, and uses the device.
    pub(crate) fn first_words(&self, at: MonoNs) -> Vec<Signal> {
        let process = Process {
            start: Some(StartTicks(self.start())),
            comm: Some("python3".to_owned()),
            cgroup_id: Some(self.cgroup),
            ..Process::default()
        };
        vec![
            Signal::Process { at, pid: self.process(), process: Some(Box::new(process)) },
            uses(at, self.process(), false),
        ]
    }

    /// A second of it: some calls now and then; one that hangs, in its time.
    pub(crate) fn words(&self, second: u64) -> Vec<Signal> {
        let at = MonoNs(second * 1_000_000_000).after(Duration::from_millis(100));
        let mut words = Vec::new();
        if (second - self.began) % 10 == 1 {
            words.push(self.stats(at, false));
        }
        let short = second - self.began == 1;
        let age = if self.hangs() { second - self.began } else { 0 };
        if short || age == 5 {
            words.push(self.call(at, Edge::Enter));
        }
        if short {
            let exit = Edge::Exit { ret: Some(0), status: None, lost: false };
            words.push(self.inside(at.after(Duration::from_millis(50))));
            words.push(self.call(at.after(Duration::from_millis(100)), exit));
        }
        if (5..9).contains(&age) {
            words.push(self.inside(at.after(Duration::from_millis(400))));
        }
        // Every other one returns; of the rest the end is never seen.
        if age == 9 && self.number.is_multiple_of(2 * HANGS) {
            words.push(self.call(at, Edge::Exit { ret: Some(0), status: None, lost: false }));
        }
        words
    }

    /// It ends.
    pub(crate) fn last_words(&self, at: MonoNs) -> Vec<Signal> {
        vec![Signal::Exit { at, pid: self.process() }, self.stats(at, true), uses(at, self.process(), true)]
    }

    fn stats(&self, at: MonoNs, last: bool) -> Signal {
        let mut latency = LatencyDelta::default();
        latency.slots[12] = 3;
        latency.sum_ns = 30_000;
        let device = DeviceNode::parse("195:0");
        let stats = CallStats {
            pid: self.process(),
            cgroup: self.cgroup,
            device,
            kind: CallKind::Ioctl,
            function: None,
            op: OP,
            latency,
            last,
        };
        Signal::CallStats { at, stats: Box::new(stats) }
    }

    fn call(&self, at: MonoNs, edge: Edge) -> Signal {
        let caller =
            Caller { comm: "python3".to_owned(), start: StartTicks(self.start()), cgroup: self.cgroup };
        let call = Call {
            pid: self.process(),
            tid: Tid(self.process().0),
            kind: CallKind::Ioctl,
            op: OP,
            driver: Some("nvidia".to_owned()),
            device: DeviceNode::parse("195:0"),
            node: None,
            function: None,
            rm: None,
            lock: None,
            edge,
            caller: Some(caller),
        };
        Signal::Call { at, call: Box::new(call) }
    }

    fn inside(&self, at: MonoNs) -> Signal {
        let state = ThreadState {
            state: Some('D'),
            wait: None,
            launcher: true,
            inside: Inside::Inside,
            utime: None,
            stime: None,
        };
        Signal::Thread { at, pid: self.process(), tid: Tid(self.process().0), state }
    }
}

/// The device.
pub(crate) fn gpu() -> Signal {
    of_line(&format!("{{\"t\":0,\"gpu\":{{\"hw_id\":\"{GPU}\",\"index\":0,\"minor\":0}}}}"))
}

/// What NVML lists.
pub(crate) fn processes(alive: &[Pod], at: MonoNs) -> Signal {
    let one = |pod: &Pod| GpuProcess {
        pid: pod.process(),
        memory: Some(1 << 20),
        sm_utilization: Some(0.01),
        context: GpuContext::Compute,
    };
    let processes = GpuProcesses { hw_id: GPU.into(), processes: alive.iter().map(one).collect() };
    Signal::Processes { at, processes: Box::new(processes) }
}

/// What the kubelet answers.
pub(crate) fn given(alive: &[Pod], at: MonoNs) -> Signal {
    let grant = |pod: &Pod| Grant {
        namespace: "ml".to_owned(),
        pod: format!("job-{}", pod.number),
        container: "main".to_owned(),
        resource: "nvidia.com/gpu.shared".to_owned(),
        device_ids: vec![format!("{GPU}::{}", pod.number % SHARES)],
        claim: None,
    };
    Signal::PodDevices { at, devices: Arc::new(PodDevices { grants: alive.iter().map(grant).collect() }) }
}

/// A process uses the device, or no longer.
fn uses(at: MonoNs, pid: Pid, end: bool) -> Signal {
    let of = format!("\"hw_id\":\"{GPU}\",\"evidence\":\"uvm_channel\",\"end\":{end}");
    match of_line(&format!("{{\"t\":0,\"uses\":{{\"pid\":{},{of}}}}}", pid.0)) {
        Signal::Uses { uses, .. } => Signal::Uses { at, uses },
        other => other,
    }
}

/// The signal of a line of a recording; time 0.
fn of_line(line: &str) -> Signal {
    let mut first = None;
    let _ = replay(line.as_bytes(), |signal| {
        // from memory
        first.get_or_insert(signal);
    });
    first.unwrap_or(Signal::End { at: MonoNs(0) })
}
