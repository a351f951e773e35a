//! One line of a replay file → one signal.
//!
//! In: a JSON object with `t` and exactly one kind of signal, as written by a flight record. Out: [`Signal`].
//! What can go wrong: unknown keys, a missing or surplus kind, values out of range; each is an error text for people.

use serde::Deserialize;
use serde_json::Value;

use super::super::kmsg::xid;
use super::device;
use super::given;
use super::raw::{
    Line, RawAllocation, RawCall, RawDriver, RawEdge, RawExit, RawGpuState, RawInside, RawKmsg,
    RawModuleState, RawProcess, RawSource, RawThread, RawUses,
};
use crate::model::call::{LockWait, RmCall};
use crate::model::signal::{Allocation, AllocationSource, DriverState, ModuleState, SourceState, Uses};
use crate::model::{
    Call, CallKind, DeviceNode, Edge, Inside, LogOrigin, MonoNs, Pid, Process, Signal, StartTicks,
    ThreadState, Tid, UseEvidence,
};

/// The signal of a line; `None` for a blank line, or a line of the kernel log that does not concern the driver or has
/// another facility than the kernel's: a replay has no `kernel_log.facilities`.
pub(super) fn parse(text: &str) -> Result<Option<Signal>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let line: Line = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let at = MonoNs::from_replay_seconds(line.t)
        .ok_or_else(|| format!("t = {}: must be seconds from 0 to 9e6", line.t))?;
    let mut kinds = line.kind.into_iter();
    match (kinds.next(), kinds.next()) {
        (Some((kind, value)), None) => signal(at, &kind, value),
        _ => Err("must have t and exactly one kind of signal".to_owned()),
    }
}

fn signal(at: MonoNs, kind: &str, value: Value) -> Result<Option<Signal>, String> {
    Ok(Some(match kind {
        "gpu" => device::gpu(at, read(kind, value)?)?,
        "driver" => driver(at, read(kind, value)?),
        "gpu_state" => {
            let raw: RawGpuState = read(kind, value)?;
            Signal::GpuState { at, hw_id: raw.hw_id, state: raw.state.into() }
        }
        "sample" => device::sample(at, read(kind, value)?)?,
        "health" => device::health(at, read(kind, value)?)?,
        "processes" => device::processes(at, read(kind, value)?),
        "uses" => {
            let RawUses { pid, hw_id, evidence, role, end } = read(kind, value)?;
            let (pid, role) = (Pid(pid), role.unwrap_or_else(|| "workload".to_owned()));
            let evidence = use_evidence(&evidence)?;
            Signal::Uses { at, uses: Uses { pid, hw_id, evidence, role, end } }
        }
        "process" => process(at, read(kind, value)?),
        "exit" => Signal::Exit { at, pid: Pid(read::<RawExit>(kind, value)?.pid) },
        "call" => call(at, read(kind, value)?)?,
        "thread" => thread(at, read(kind, value)?),
        "kmsg" => return Ok(kmsg(at, read(kind, value)?)),
        "allocation" => {
            let RawAllocation { hw_id, pod_uid, pod, namespace, container, job, shares, end } =
                read(kind, value)?;
            let how = if job.is_some() { AllocationSource::JobMapping } else { AllocationSource::default() };
            let allocation =
                Box::new(Allocation { hw_id, pod_uid, pod, namespace, container, job, how, shares, end });
            Signal::Allocation { at, allocation }
        }
        "pod_devices" => given::pods(at, read(kind, value)?),
        "job_devices" => given::jobs(at, read(kind, value)?),
        "source" => {
            let RawSource { name, up, reason, late } = read(kind, value)?;
            let late = late.map(device::late).transpose()?;
            Signal::Source { at, source: SourceState { name, up, reason, late } }
        }
        "end" => Signal::End { at },
        other => return Err(format!("{other}: no such kind of signal")),
    }))
}

fn read<T: for<'a> Deserialize<'a>>(kind: &str, value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|e| format!("{kind}: {e}"))
}

fn use_evidence(word: &str) -> Result<UseEvidence, String> {
    UseEvidence::from_name(word).ok_or_else(|| {
        let words = UseEvidence::ALL.map(UseEvidence::name).join(", ");
        format!("uses: evidence {word}: must be one of {words}")
    })
}

fn driver(at: MonoNs, raw: RawDriver) -> Signal {
    let state = match raw.state {
        RawModuleState::Loaded => ModuleState::Loaded,
        RawModuleState::Unloading => ModuleState::Unloading,
        RawModuleState::Unloaded => ModuleState::Unloaded,
        RawModuleState::Suspending => ModuleState::Suspending,
    };
    Signal::Driver { at, driver: DriverState { version: raw.version, flavour: raw.flavour, state } }
}

fn process(at: MonoNs, raw: RawProcess) -> Signal {
    let process = (!raw.missing).then(|| {
        let (start, comm, cgroup) = (raw.start.map(StartTicks), raw.comm, raw.cgroup);
        Box::new(Process { start, comm, cgroup, ..Process::default() })
    });
    Signal::Process { at, pid: Pid(raw.pid), process }
}

fn call(at: MonoNs, raw: RawCall) -> Result<Signal, String> {
    let kind =
        CallKind::from_name(&raw.layer).ok_or_else(|| format!("layer {}: no such layer", raw.layer))?;
    let device = match raw.dev.as_deref() {
        None => None,
        Some(text) => {
            Some(DeviceNode::parse(text).ok_or_else(|| format!("dev {text}: must be major:minor"))?)
        }
    };
    let rm = match raw.rm {
        None => None,
        Some(rm) => Some(RmCall { cmd: hex("rm.cmd", rm.cmd)?, class: hex("rm.class", rm.class)? }),
    };
    let edge = match raw.edge {
        RawEdge::Enter => Edge::Enter,
        RawEdge::Exit => Edge::Exit { ret: raw.ret, status: hex("status", raw.status)?, lost: false },
        RawEdge::Release => Edge::Release,
    };
    let exclusive = raw.mode.as_deref().is_some_and(|mode| mode != "read");
    let lock = raw.lock.map(|lock| LockWait { lock, exclusive });
    let call = Call {
        pid: Pid(raw.pid),
        tid: Tid(raw.tid.unwrap_or(raw.pid)),
        kind,
        op: raw.op,
        driver: raw.drv,
        device,
        node: None,
        function: raw.function,
        rm,
        lock,
        edge,
        caller: None,
    };
    Ok(Signal::Call { at, call: Box::new(call) })
}

fn hex(key: &str, text: Option<String>) -> Result<Option<u32>, String> {
    let Some(text) = text else { return Ok(None) };
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    let value =
        u32::from_str_radix(digits, 16).map_err(|_| format!("{key} {text}: must be hexadecimal, 0x…"))?;
    Ok(Some(value))
}

fn thread(at: MonoNs, raw: RawThread) -> Signal {
    let RawThread { pid, tid, state, wait, launcher, inside, utime, stime } = raw;
    let inside = match inside {
        RawInside::Inside => Inside::Inside,
        RawInside::Outside => Inside::Outside,
        RawInside::Unknown => Inside::Unknown,
    };
    let state = ThreadState { state, wait, launcher, inside, utime, stime };
    Signal::Thread { at, pid: Pid(pid), tid: Tid(tid.unwrap_or(pid)), state }
}

fn kmsg(at: MonoNs, raw: RawKmsg) -> Option<Signal> {
    let (from_kernel, level) = (raw.prio >> 3 == 0, u8::try_from(raw.prio & 7).ok());
    let origin = LogOrigin { seq: raw.seq, level, backlog: false };
    let line = from_kernel.then(|| xid::driver_line(&raw.text, origin)).flatten()?;
    Some(Signal::DriverLog { at, line: Box::new(line) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_evidence_of_a_use_is_one_of_the_known_words() {
        let line =
            |word: &str| format!(r#"{{"t":1,"uses":{{"pid":7,"hw_id":"GPU-1","evidence":"{word}"}}}}"#);
        for evidence in UseEvidence::ALL {
            let Ok(Some(Signal::Uses { uses, .. })) = parse(&line(evidence.name())) else {
                panic!("{evidence:?}")
            };
            assert_eq!((uses.evidence, uses.role.as_str(), uses.end), (evidence, "workload", false));
        }
        let refused = parse(&line("guess")).unwrap_err();
        assert_eq!(
            refused,
            "uses: evidence guess: must be one of uvm_channel, nvml, cap_fd, allocation, open_fd, env"
        );
    }

    #[test]
    fn a_line_of_the_kernel_log_is_the_one_a_live_agent_makes() {
        #[track_caller]
        fn check(prio: u32, text: &str, want: Option<(&str, Option<u8>)>) {
            let line = serde_json::json!({"t": 1.5, "kmsg": {"prio": prio, "seq": 9, "text": text}});
            let signal = parse(&line.to_string()).unwrap();
            let got = signal.as_ref().map(|signal| {
                let Signal::DriverLog { at, line } = signal else { panic!("{signal:?}") };
                assert_eq!((at.0, line.origin.seq, line.origin.backlog), (1_500_000_000, Some(9), false));
                (line.raw.as_str(), line.origin.level)
            });
            assert_eq!(got, want, "{text:?}");
        }
        let plain = "NVRM: Xid (PCI:0000:3b:00): 79, a b";
        check(4, plain, Some((plain, Some(4))));
        check(3, "[  12.5] NVRM: Xid (PCI:0000:3b:00): 79, a\tb\u{1b}\u{202e} \n", Some((plain, Some(3))));
        check(12, plain, None);
        check(4, "usb 1-1: new device", None);
    }

    #[test]
    fn an_answer_is_put_in_order_as_its_source_does_it() {
        #[track_caller]
        fn same(a: &str, b: &str) -> Signal {
            let [a, b] = [a, b].map(|text| parse(text).unwrap().unwrap());
            assert_eq!(a, b);
            a
        }
        let pod = |pod: &str, ids: &str| {
            let names = format!("\"namespace\":\"a\",\"pod\":\"{pod}\",\"container\":\"m\"");
            format!("{{{names},\"resource\":\"nvidia.com/gpu\",\"ids\":{ids}}}")
        };
        let line = |kind: &str, grants: &[String]| {
            format!("{{\"t\":1,\"{kind}\":{{\"grants\":[{}]}}}}", grants.join(","))
        };
        let pods = line("pod_devices", &[pod("y", "[\"0\"]"), pod("x", "[\"2\",\"1\",\"2\"]")]);
        let in_order = line("pod_devices", &[pod("x", "[\"1\",\"2\"]"), pod("y", "[\"0\"]")]);
        let Signal::PodDevices { devices, .. } = same(&pods, &in_order) else { panic!("{pods}") };
        assert_eq!((devices.grants.len(), devices.grants[0].pod.as_str()), (2, "x"));
        let jobs = ["{\"gpu\":1,\"instance\":7,\"jobs\":[\"b\",\"a\"]}", "{\"gpu\":1,\"jobs\":[\"c\"]}"];
        let turned = ["{\"gpu\":1,\"jobs\":[\"c\"]}", "{\"gpu\":1,\"instance\":7,\"jobs\":[\"a\",\"b\"]}"];
        let [jobs, turned] = [jobs, turned].map(|of| line("job_devices", &of.map(str::to_owned)));
        let Signal::JobDevices { jobs, .. } = same(&jobs, &turned) else { panic!("{turned}") };
        assert_eq!((jobs.grants.len(), jobs.grants[0].instance), (2, None));
        let unknown = line("job_devices", &["{\"gpu\":1,\"job\":\"c\"}".to_owned()]);
        assert!(parse(&unknown).unwrap_err().starts_with("job_devices: unknown field `job`"), "{unknown}");
    }
}
