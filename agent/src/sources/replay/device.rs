//! Replay lines about devices → signals.
//!
//! In: the keys as written. Out: identities, readings, processes, health. What can go wrong: values out of range; each is
//! an error text for people.

use serde_json::Value;

use super::raw::{RawField, RawGpu, RawHealth, RawLate, RawLevel, RawProcesses, RawSample, RawTeller};
use crate::model::signal::{
    GpuContext, GpuDetails, GpuProcess, GpuProcesses, HealthLevel, LateCall, MigPlace, Subsystem,
};
use crate::model::{
    Absence, Field, Gpu, HostField, MonoNs, Origin, Part, PciAddress, Pid, Reading, SampleValue, Samples,
    Signal, Subject,
};

pub(super) fn gpu(at: MonoNs, raw: RawGpu) -> Result<Signal, String> {
    let pci = match raw.pci.as_deref() {
        None => None,
        Some(text) => {
            Some(PciAddress::parse(text).ok_or_else(|| format!("pci {text}: must be dddd:bb:dd.f"))?)
        }
    };
    let details = Box::new(GpuDetails {
        kind: raw.kind.into(),
        serial: raw.serial,
        architecture: raw.architecture,
        mig_profile: raw.mig_profile,
        mig_profile_source: raw.mig_profile_source.map(|teller| origin(teller).name()),
        numa_node: raw.numa_node,
        cpu_affinity: raw.cpu_affinity,
        mig: MigPlace {
            index: raw.mig_index,
            gpu_instance: raw.gpu_instance,
            compute_instance: raw.compute_instance,
            start: raw.mig_start,
        },
        nvlink_peers: raw.nvlink_peers,
    });
    let RawGpu { hw_id, index, minor, model, parent, .. } = raw;
    Ok(Signal::Gpu { at, gpu: Gpu { hw_id, index, minor, pci, model, parent, details } })
}

pub(super) fn sample(at: MonoNs, raw: RawSample) -> Result<Signal, String> {
    let (field, usual) = match raw.field {
        RawField::Number(id) => (Field::Dcgm(id), Origin::Dcgm),
        RawField::Name(name) => {
            let field = HostField::from_name(&name).ok_or_else(|| format!("field {name}: no such field"))?;
            (Field::Host(field), Origin::Host)
        }
    };
    let value = match raw.value {
        Value::Number(n) => match n.as_i64() {
            Some(whole) => SampleValue::Int(whole),
            None => SampleValue::Number(n.as_f64().ok_or("value: must be a finite number")?),
        },
        Value::String(text) => SampleValue::Text(text.into()),
        Value::Object(absent) => match absent.get("absent").and_then(Value::as_str) {
            Some(reason) if absent.len() == 1 => SampleValue::Absent(
                Absence::from_name(reason).ok_or_else(|| format!("absent {reason}: no such reason"))?,
            ),
            _ => return Err("value: an object must be {\"absent\":\"reason\"}".to_owned()),
        },
        _ => return Err("value: must be a number, a text or {\"absent\":\"reason\"}".to_owned()),
    };
    let part = match (raw.link, raw.core, raw.port) {
        (None, None, None) => Part::Whole,
        (Some(link), None, None) => Part::Link(link),
        (None, Some(core), None) => Part::Core(core),
        (None, None, Some(port)) => Part::Port(port),
        _ => return Err("sample: at most one of link, core, port".to_owned()),
    };
    let (subject, origin) = (Subject { hw_id: raw.hw_id.into(), part }, raw.origin.map_or(usual, origin));
    let samples = Samples { subject, origin, readings: vec![Reading { at, field, value }] };
    Ok(Signal::Samples { at, samples: Box::new(samples) })
}

pub(super) fn health(at: MonoNs, raw: RawHealth) -> Result<Signal, String> {
    let RawHealth { hw_id, subsystem, level } = raw;
    let named = Subsystem::ALL.iter().copied().find(|known| known.name() == subsystem);
    let subsystem = named.ok_or_else(|| format!("subsystem {subsystem}: no such subsystem"))?;
    let level = match level {
        RawLevel::Pass => HealthLevel::Pass,
        RawLevel::Warn => HealthLevel::Warn,
        RawLevel::Fail => HealthLevel::Fail,
    };
    Ok(Signal::Health { at, hw_id, subsystem, level })
}

pub(super) fn processes(at: MonoNs, raw: RawProcesses) -> Signal {
    let processes = raw.processes.into_iter().map(|raw| GpuProcess {
        pid: Pid(raw.pid),
        memory: raw.memory,
        sm_utilization: raw.sm,
        context: GpuContext::Compute,
    });
    let list = GpuProcesses { hw_id: raw.hw_id.into(), processes: processes.collect() };
    Signal::Processes { at, processes: Box::new(list) }
}

pub(super) fn late(raw: RawLate) -> Result<LateCall, String> {
    let RawLate { call, hw_id, began } = raw;
    let began =
        MonoNs::from_replay_seconds(began).ok_or_else(|| format!("late.began = {began}: out of range"))?;
    Ok(LateCall { call, hw_id, began })
}

fn origin(teller: RawTeller) -> Origin {
    match teller {
        RawTeller::Nvml => Origin::Nvml,
        RawTeller::Dcgm => Origin::Dcgm,
    }
}
