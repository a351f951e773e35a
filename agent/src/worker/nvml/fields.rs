//! The answer to `warpgauge fields` where DCGM is not up: the basic fields, and the devices.
//!
//! In: the last readings. Out: JSON lines as of DCGM's answer. What can go wrong: nothing was read yet; no status then.

use dcgm_ffi::field_table;
use serde_json::{Map, Value as Json, json};

use super::basic::{Plan, RECOVERY};
use super::collector::Collector;
use super::driver::{Driver, Query};
use crate::wire::report::{Answer, Content, Kind};

impl<D: Driver> Collector<'_, D> {
    /// Tells the basic fields and the devices.
    pub(super) fn tell_fields(&self, id: u64) {
        let mut fields = vec![RECOVERY.0];
        let plan = Plan::default();
        for known in &self.known {
            fields.extend(plan.of(known.place, known.is_parted).flat_map(Query::fields));
        }
        fields.sort_unstable();
        fields.dedup();
        let mut text = String::new();
        for row in fields.into_iter().filter_map(field_table::by_id) {
            let mut status: Map<String, Json> = Map::new();
            for known in &self.known {
                let Some(last) = self.memory.last.get(&(known.device.key, row.id)) else { continue };
                let says = match last {
                    Ok(Content::Int(n)) => json!({ "value": n }),
                    Ok(Content::Number(x)) => json!({ "value": x }),
                    Ok(Content::Text(text)) => json!({ "value": text }),
                    Ok(Content::Absent(_)) => json!({}),
                    Err(absence) => json!({ "absent": absence.name() }),
                };
                status.insert(known.device.hw_id.clone(), says);
            }
            let line = json!({
                "id": row.id, "name": row.name, "old_name": row.old_name, "unit": row.unit,
                "type": row.kind.map(dcgm_ffi::FieldKind::name), "level": row.level.name(), "entity": "gpu",
                "group": "nvml", "interval_s": self.every.as_secs_f64(), "known": true, "status": status,
            });
            text.push_str(&line.to_string());
            text.push('\n');
        }
        for known in &self.known {
            let device = &known.device;
            let line = json!({
                "device": device.hw_id, "kind": device.kind, "state": device.state, "model": device.model, "parent": device.parent,
                "index": device.index, "minor": device.minor, "pci": device.pci, "serial": device.serial,
                "architecture": device.architecture, "mig_profile": device.mig_profile,
                "cpu_affinity": device.cpu_affinity, "numa_node": device.numa_node,
            });
            text.push_str(&line.to_string());
            text.push('\n');
        }
        self.link.send(Kind::Answer(Answer { id, done: true, text, more: false }));
    }
}
