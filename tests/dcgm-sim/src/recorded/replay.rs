//! Plays a recorded time line, step by step: what was done to the engine is done to the simulator at the same time, and
//! each poll is compared.
//!
//! In: `tests/fixtures/dcgm/timeline_*.jsonl`; `t_ms` and sample times are ms since the start of the line, a value is
//! `[entity, field, status, value, sample time]`, runs of equal blanks are one. Out: a failed test. Sample times may
//! differ by 70 ms: the recording's engine had threads of its own, and a poll near a sample may see either side of it.

use gpu_scenario::event::{Xid, XidSource};
use gpu_scenario::overlay::{EngineState, Overlay};
use gpu_scenario::{load, simulator};
use serde_json::Value;

use super::rig::{Rig, START, Seen};
use crate::abi::devices::DeviceAttributes;
use crate::abi::values::HealthResponseV5;
use crate::abi::version_word;
use crate::calls::{devices, groups, health, session};
use crate::engine::groups::ALL_GPUS;

pub(super) const TOLERANCE_MS: i64 = 70;

pub(super) struct Replay {
    pub(super) rig: Rig,
    overlay: Overlay,
    group: usize,
    pub(super) fields: usize,
    pub(super) now_ms: i64,
    raises: u32,
}

pub(super) fn events(name: &str) -> Vec<Value> {
    let path = format!("{}/../fixtures/dcgm/timeline_{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(super) fn number(event: &Value, key: &str) -> Option<i64> {
    event.get(key).and_then(Value::as_i64)
}

/// A value as the time lines write it.
pub(super) fn recorded(value: &Value) -> Seen {
    let entity = (value[0][0].as_u64().unwrap(), value[0][1].as_u64().unwrap());
    let text = value[3].as_str().map_or_else(|| value[3].to_string(), str::to_owned);
    Seen {
        entity: (u32::try_from(entity.0).unwrap(), u32::try_from(entity.1).unwrap()),
        field: u16::try_from(value[1].as_u64().unwrap()).unwrap(),
        status: i32::try_from(value[2].as_i64().unwrap()).unwrap(),
        kind: ' ',
        value: text,
        ts_ms: value[4].as_i64(),
    }
}

impl Replay {
    pub(super) fn new(node: &str, more: &str) -> Self {
        let rig = Rig::of(node, more);
        Self { rig, overlay: Overlay::default(), group: ALL_GPUS, fields: 0, now_ms: 0, raises: 0 }
    }

    pub(super) fn run(&mut self, name: &str) {
        let events = events(name);
        assert!(8 < events.len(), "{name}: {} events", events.len());
        for event in &events {
            let at = number(event, "t_ms").unwrap();
            // a call in flight is written with the time of its begin
            self.now_ms = self.now_ms.max(at);
            self.rig.at(self.now_ms);
            self.step(name, event);
        }
    }

    fn inject(&self) {
        simulator().inject(self.overlay.clone());
    }

    pub(super) fn step(&mut self, name: &str, event: &Value) {
        let what = event["ev"].as_str().unwrap();
        let at = format!("{name} {} {what}", self.now_ms);
        match what {
            "health_set" | "check" if self.rig.handle == 0 => {
                assert_eq!(self.rig.connect(), 0, "{at}");
                self.step(name, event);
            }
            "connect" | "reconnect" | "second_connect" if self.overlay.engine == EngineState::Hung => {}
            "connect" | "reconnect" | "second_connect" => self.connect(&at, event),
            "setup" | "watch" => self.set_up(&at, event),
            "latest" | "latest_230" => self.poll(&at, event),
            "engine_killed" => self.set_engine(EngineState::Down),
            "engine_stopped" => self.set_engine(EngineState::Hung),
            "engine_continued" => self.set_engine(EngineState::Up),
            "gpu1_removed" | "gpu1_restored" => {
                self.overlay.lost = if what == "gpu1_removed" { vec![1] } else { Vec::new() };
                self.inject();
            }
            "devices" => self.devices(&at, event),
            "nvml_event_raised" | "kernel_log_line_written" => self.raise(event),
            "driver_detached" | "driver_attached" => self.driver(what == "driver_detached"),
            "detach_again" => assert_eq!(session::dcgmDetachDriver(self.rig.handle), 0, "{at}"),
            "attach_again" => assert_eq!(session::dcgmAttachDriver(self.rig.handle), 0, "{at}"),
            "counters_raised" | "ecc_pending_rows" => self.raise_counters(name),
            "health_set" => assert_eq!(health::dcgmHealthSet(self.rig.handle, ALL_GPUS, u32::MAX), 0, "{at}"),
            "check" => self.check_health(&at, event),
            "unwatch" => {
                assert_eq!(groups::dcgmUnwatchFields(self.rig.handle, self.group, self.fields), 0, "{at}");
            }
            "watch_again" => assert_eq!(self.rig.watch(self.group, self.fields, 1000), 0, "{at}"),
            "watch_all_while_detached" | "watch_while_lost_all" | "new_watch" => {
                let fields: &[u16] = if what == "new_watch" { &[100, 1002] } else { &[100] };
                assert_eq!(self.rig.watch(ALL_GPUS, self.rig.field_group(&at, fields).1, 1000), 0, "{at}");
            }
            "watch_while_lost_gpu1_only" => {
                assert_eq!(
                    i64::from(self.rig.group(&[(1, 1)]).1[0]),
                    number(event, "add_rc").unwrap(),
                    "{at}"
                );
            }
            "latest_of_new_watch" | "latest_of_watch_made_while_detached" => {
                let fields: &[u16] = if what == "latest_of_new_watch" { &[100, 1002] } else { &[100] };
                let entities: Vec<(u32, u32)> = (0..4).map(|gpu| (1, gpu)).collect();
                self.same(&at, event, self.rig.of_entities(&entities, fields, 0).1);
            }
            "since_0" | "since_0_230" | "since_0_230_gpu1" | "since_0_156_gpu0" => self.since(&at, event),
            "state" => self.state(&at, event),
            "field_group_create" => {
                let wanted = number(event, "id").unwrap();
                assert_eq!(i64::try_from(self.rig.field_group(&at, &[100]).1).unwrap(), wanted, "{at}");
            }
            _ => {}
        }
    }

    fn connect(&mut self, at: &str, event: &Value) {
        if self.overlay.engine == EngineState::Down && number(event, "rc") == Some(0) {
            // the recording connects while the engine comes up
            self.set_engine(EngineState::Up);
        }
        let old = self.rig.handle;
        assert_eq!(Some(i64::from(self.rig.connect())), number(event, "rc"), "{at}");
        assert_ne!(self.rig.handle, old, "{at}: also a failed connect writes a handle");
    }

    fn set_up(&mut self, at: &str, event: &Value) {
        if self.rig.handle == 0 {
            assert_eq!(self.rig.connect(), 0, "{at}");
        }
        let profiling = [150, 1001, 1004, 1005, 1009, 1091];
        let fields: Vec<u16> = match event.get("fields").and_then(Value::as_array) {
            Some(fields) => fields.iter().map(|id| u16::try_from(id.as_u64().unwrap()).unwrap()).collect(),
            None if event["ev"] == "watch" => profiling.to_vec(),
            None => vec![230],
        };
        if event.get("group").is_some() {
            self.group = self.rig.group(&[(1, 0), (1, 1), (4, 7), (4, 8), (5, 7), (5, 8)]).0;
        }
        let interval_ms = number(event, "interval_ms").unwrap_or(1000);
        if event["ev"] == "watch" {
            // the recording takes another GPU each time, so that nothing is known of it
            let gpu = match interval_ms {
                1000 => 0,
                100 => 1,
                _ => 2,
            };
            self.group = self.rig.group(&[(1, gpu)]).0;
        }
        let (code, id) = self.rig.field_group(at, &fields);
        assert_eq!(code, 0, "{at}");
        if let Some(wanted) = number(event, "field_group") {
            assert_eq!(i64::try_from(id).unwrap(), wanted, "{at}: ids begin again with each engine");
        }
        self.fields = id;
        assert_eq!(self.rig.watch(self.group, id, interval_ms), 0, "{at}");
    }

    fn poll(&self, at: &str, event: &Value) {
        let wanted = number(event, "rc").unwrap();
        let (code, mut seen) = match event.get("handle").and_then(Value::as_str) {
            // after the restart the old handle is dead whatever the number of the group
            Some("old") if self.overlay.engine == EngineState::Up => return,
            _ => self.rig.latest(self.group, self.fields),
        };
        assert_eq!(i64::from(code), wanted, "{at}");
        if event["ev"] == "latest_230" {
            seen.retain(|seen| seen.field == 230);
        }
        let entities: Vec<Value> =
            event["values"].as_array().unwrap().iter().map(|value| value[0].clone()).collect();
        seen.retain(|seen| entities.contains(&serde_json::json!([seen.entity.0, seen.entity.1])));
        self.same(at, event, seen);
    }

    /// The values are those recorded, in their order.
    fn same(&self, at: &str, event: &Value, mut seen: Vec<Seen>) {
        seen.dedup_by(|next, before| {
            next.value == "blank"
                && (next.entity, next.field, next.status, &next.value)
                    == (before.entity, before.field, before.status, &before.value)
        });
        let wanted: Vec<Seen> = event["values"].as_array().unwrap().iter().map(recorded).collect();
        assert_eq!(seen.len(), wanted.len(), "{at}\nsimulated {seen:?}\nrecorded {wanted:?}");
        for (seen, wanted) in seen.iter().zip(&wanted) {
            let both = format!("{at}\nsimulated {seen:?}\nrecorded  {wanted:?}");
            assert_eq!(
                (seen.entity, seen.field, seen.status),
                (wanted.entity, wanted.field, wanted.status),
                "{both}"
            );
            let value = |seen: &Seen| match seen.value.parse::<f64>() {
                // a whole counter taken for a rate: how large depends on the counter
                Ok(rate) if seen.field == 449 && 1e6 < rate => "huge".to_owned(),
                Ok(number) => format!("{number}"),
                Err(_) => seen.value.clone(),
            };
            assert_eq!(value(seen), value(wanted), "{both}");
            match (seen.ts_ms, wanted.ts_ms) {
                (None, None) => {}
                (Some(ours), Some(theirs)) => {
                    let near = (ours - theirs).abs() <= TOLERANCE_MS;
                    // a poll at the moment of a sample sees the sample before or after
                    let at_edge = self.now_ms - ours.max(theirs) <= TOLERANCE_MS;
                    assert!(near || at_edge, "{both}");
                }
                _ => panic!("{both}"),
            }
        }
    }

    fn set_engine(&mut self, state: EngineState) {
        self.overlay.engine = state;
        self.inject();
    }

    fn devices(&self, at: &str, event: &Value) {
        let (mut all, mut all_count, mut supported, mut count, mut status) = ([0; 32], 0, [0; 32], 0, 0);
        // SAFETY: room for 32 ids, and places for the numbers
        let codes = unsafe {
            [
                devices::dcgmGetAllDevices(self.rig.handle, all.as_mut_ptr(), &raw mut all_count),
                devices::dcgmGetAllSupportedDevices(self.rig.handle, supported.as_mut_ptr(), &raw mut count),
                devices::dcgmGetGpuStatus(self.rig.handle, 1, &raw mut status),
            ]
        };
        assert_eq!(codes, [0; 3], "{at}");
        let ids = |ids: &[u32], count: i32| serde_json::json!(ids[..usize::try_from(count).unwrap()]);
        assert_eq!(ids(&all, all_count), event["all"], "{at}");
        assert_eq!(ids(&supported, count), event["supported"], "{at}");
        assert_eq!(i64::from(status), number(event, "gpu1_status").unwrap(), "{at}");
    }

    pub(super) fn raise(&mut self, event: &Value) {
        let of_bus = |bus: &str| match bus {
            "30" => 2,
            "40" => 3,
            _ => 99, // no GPU of the node
        };
        let optional = |key: &str| number(event, key).and_then(|id| u32::try_from(id).ok());
        let logged = event["ev"] == "kernel_log_line_written";
        self.overlay.xids.push(Xid {
            t: 0.0,
            gpu: optional("gpu").unwrap_or_else(|| of_bus(event["bus"].as_str().unwrap())),
            code: optional("xid").unwrap(),
            source: if logged { XidSource::Kmsg } else { XidSource::Nvml },
            late_s: f64::from(optional("line_age_ms").unwrap_or(0)) / 1000.0,
            gi: optional("gpu_instance"),
            ci: optional("compute_instance"),
        });
        self.inject();
    }

    /// The scenario says how long it takes, as it took in the recording.
    fn driver(&mut self, detach: bool) {
        if detach {
            assert_eq!(session::dcgmDetachDriver(self.rig.handle), 0);
        } else {
            self.overlay.fields.clear();
            self.inject();
            assert_eq!(session::dcgmAttachDriver(self.rig.handle), 0);
        }
    }

    fn raise_counters(&mut self, name: &str) {
        self.raises += 1;
        let n = self.raises;
        let text = if name == "health" {
            "health:\n- {gpu: 0, system: 1, level: 10, code: 3}\n- {gpu: 0, system: 16, level: 20, code: 4}\n\
             - {gpu: 3, system: 16, level: 20, code: 80}\n"
                .to_owned()
        } else {
            let more = [
                (156, 987_654_321 + 150_000 * n),
                (310, n),
                (311, n),
                (312, n + 2),
                (393, n),
                (240, 1_000_000 + 500_000_000 * n),
                (409, 10 * n),
            ];
            let lines = more.map(|(field, value)| format!("    {field}: {{curve: {{constant: {value}}}}}\n"));
            format!("fields:\n  0:\n{}", lines.concat())
        };
        let new = load::overlay_from("now", &text).unwrap();
        (self.overlay.fields, self.overlay.health) = (new.fields, new.health);
        self.inject();
    }

    fn check_health(&self, at: &str, event: &Value) {
        // SAFETY: a struct of numbers, above 1 MB: made on the heap
        let mut response = unsafe { Box::<HealthResponseV5>::new_zeroed().assume_init() };
        response.version = version_word::<HealthResponseV5>(5);
        // SAFETY: a place of the right kind
        let code = unsafe { health::dcgmHealthCheck(self.rig.handle, ALL_GPUS, &raw mut *response) };
        assert_eq!(code, 0, "{at}");
        let found = response.incidents[..response.incidentCount as usize].iter().map(|i| {
            serde_json::json!({"system": i.system, "health": i.health, "code": i.error.code,
                "eg": i.entityInfo.entityGroupId, "eid": i.entityInfo.entityId})
        });
        assert_eq!(Value::Array(found.collect()), event["incidents"], "{at}");
        assert_eq!(i64::from(response.overallHealth), number(event, "overall").unwrap(), "{at}");
    }

    fn since(&self, at: &str, event: &Value) {
        let wanted: Vec<Seen> = event["values"].as_array().unwrap().iter().map(recorded).collect();
        let (code, next, mut seen) = self.rig.since(self.group, self.fields, 0);
        assert_eq!(code, 0, "{at}");
        assert_eq!(next, START + self.now_ms * 1000 + 1, "{at}: the engine's now + 1 µs");
        seen.retain(|seen| wanted.iter().any(|w| (w.entity, w.field) == (seen.entity, seen.field)));
        self.same(at, event, seen);
    }

    fn state(&self, at: &str, event: &Value) {
        // SAFETY: a struct of numbers
        let mut attributes = unsafe { Box::<DeviceAttributes>::new_zeroed().assume_init() };
        attributes.version = version_word::<DeviceAttributes>(3);
        // SAFETY: a place of the right kind
        let code = unsafe { devices::dcgmGetDeviceAttributes(self.rig.handle, 1, &raw mut *attributes) };
        assert_eq!(code, 0, "{at}");
        let uuid = attributes.identifiers.uuid;
        let end = uuid.iter().position(|byte| *byte == 0).unwrap();
        assert_eq!(std::str::from_utf8(&uuid[..end]).unwrap(), event["attributes_uuid"], "{at}");
        let live = self.rig.of_entities(&[(1, 1)], &[150, 155], 1).1;
        for (seen, wanted) in live.iter().zip(event["live"].as_array().unwrap()) {
            let ours =
                seen.value.parse::<f64>().map_or(serde_json::json!(seen.value), |n| serde_json::json!(n));
            let theirs = wanted[2].as_f64().map_or(wanted[2].clone(), |n| serde_json::json!(n));
            assert_eq!((u64::from(seen.field), ours), (wanted[0].as_u64().unwrap(), theirs), "{at}");
        }
        let mut status = 0;
        // SAFETY: a place for the number
        unsafe { devices::dcgmGetGpuStatus(self.rig.handle, 1, &raw mut status) };
        assert_eq!(i64::from(status), number(event, "gpu1_status").unwrap(), "{at}");
    }
}
