//! The answer to `warpgauge fields`: every field, where it is read, and what it gives.
//!
//! In: the field table and the latest values. Out: JSON lines, a field and kind of entity each, then a device each.
//! What can go wrong: the lines are many; they go out in several answers.

use std::collections::BTreeMap;

use dcgm_ffi::field_table::{self, FieldRow};
use serde_json::{Map, Value as Json, json};

use super::engine::{Answer, Dcgm, Entity, EntityGroup, FieldValue, ReturnCode, Value};
use super::inventory::unless_gone;
use super::plan::{self, Watched};
use super::readings::of_code;
use super::session::Session;
use crate::model::{Absence, Part};
use crate::wire::report::{self, Kind};

/// Text of one answer; a frame holds much more.
const CHUNK: usize = 64 * 1024;

/// What a field gives, by device and part.
type Statuses = BTreeMap<(u16, Entity), Json>;

/// A field that there may be: one of our table, or one that only the library knows.
struct Field<'a> {
    id: u16,
    level: EntityGroup,
    row: Option<&'a FieldRow>,
}

impl<'a> Field<'a> {
    fn of(row: &'a FieldRow) -> Self {
        Self { id: row.id, level: row.level, row: Some(row) }
    }
}

impl<D: Dcgm> Session<'_, D> {
    /// Tells all fields and devices.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn tell_fields(&self, id: u64) -> Answer<()> {
        let statuses = self.statuses()?;
        let mut text = String::new();
        let mut say = |line: &Json| {
            if text.len() > CHUNK {
                let text = std::mem::take(&mut text);
                self.caller.link.send(Kind::Answer(report::Answer { id, done: true, text, more: true }));
            }
            text.push_str(&line.to_string());
            text.push('\n');
        };
        say(&self.capabilities()?);
        for row in field_table::rows() {
            self.lines(&Field::of(row), &statuses).iter().for_each(&mut say);
        }
        for field in self.beyond_the_table() {
            self.lines(&field, &statuses).iter().for_each(&mut say);
        }
        for field in self.task.unknown {
            say(
                &json!({ "id": field.name.trim().parse::<u16>().ok(), "name": field.name, "group": field.group,
                "known": false, "status": {} }),
            );
        }
        for device in &self.found.devices {
            say(&json!({
                "device": device.hw_id, "kind": device.kind, "state": device.state, "model": device.model,
                "parent": device.parent, "index": device.index, "minor": device.minor, "pci": device.pci, "serial": device.serial, "architecture": device.architecture,
                "mig_profile": device.mig_profile, "cpu_affinity": device.cpu_affinity,
                "nvlink_peers": device.nvlink_peers, "numa_node": device.numa_node,
            }));
        }
        self.caller.link.send(Kind::Answer(report::Answer { id, done: true, text, more: false }));
        Ok(())
    }

    /// Configured fields that a newer library knows and our table does not.
    fn beyond_the_table(&self) -> Vec<Field<'_>> {
        let all = self.task.groups.iter().flat_map(|group| &group.fields);
        let mut beyond: Vec<Field<'_>> = all
            .filter(|field| field_table::by_id(field.id).is_none())
            .map(|field| Field { id: field.id, level: field.level, row: None })
            .collect();
        beyond.sort_unstable_by_key(|field| field.id);
        beyond.dedup_by_key(|field| field.id);
        beyond
    }

    /// A line per kind of entity that has the field; one without status where none has.
    fn lines(&self, row: &Field<'_>, statuses: &Statuses) -> Vec<Json> {
        let groups = self.task.groups;
        let group = groups.iter().find(|g| g.fields.iter().any(|f| f.id == row.id));
        let every = group.map(|group| group.every.as_secs_f64());
        let group = group.map(|group| &group.name);
        let field = Watched { id: row.id, level: row.level, profiling: false };
        let mut kinds: BTreeMap<&str, Map<String, Json>> = BTreeMap::new();
        for entity in plan::entities(field, &self.found, None) {
            let Some(target) = self.found.targets.get(&entity) else { continue };
            let name = match target.part {
                Part::Whole => target.hw_id.to_string(),
                Part::Link(n) | Part::Core(n) | Part::Port(n) => format!("{}/{n}", target.hw_id),
            };
            let not_watched = || json!({ "watched": false });
            let status = statuses.get(&(row.id, entity)).cloned().unwrap_or_else(not_watched);
            kinds.entry(entity.group.name()).or_default().insert(name, status);
        }
        if kinds.is_empty() {
            kinds.insert(row.level.name(), Map::new());
        }
        let line = |(entity, status): (&str, Map<String, Json>)| {
            json!({
                "id": row.id, "name": row.row.map(|row| &row.name), "old_name": row.row.map(|row| &row.old_name),
                "unit": row.row.map(|row| &row.unit), "level": row.level.name(),
                "type": row.row.and_then(|row| row.kind).map(dcgm_ffi::FieldKind::name),
                "entity": entity, "group": group, "interval_s": every, "known": self.caller.local().knows(row.id),
                "status": status,
            })
        };
        kinds.into_iter().map(line).collect()
    }

    /// The latest value, or why there is none, of all that is watched or was refused.
    fn statuses(&self) -> Answer<Statuses> {
        let mut statuses = Statuses::new();
        for poll in &self.polls {
            let unit = &poll.unit;
            let read = self.caller.call("dcgmGetLatestValues_v2", "", |d| {
                d.latest(unit.group, unit.handle, &mut |entity, value| {
                    statuses.insert((value.field, entity), status(value));
                })
            });
            unless_gone(read)?;
        }
        for refusal in &self.refusals.list {
            let of_it = |t: &&Entity| self.found.targets.get(t) == Some(&refusal.target);
            for entity in self.found.targets.keys().filter(of_it) {
                let absent = json!({ "absent": refusal.absence.name() });
                statuses.entry((refusal.field, *entity)).or_insert(absent);
            }
        }
        Ok(statuses)
    }
}

fn status(value: &FieldValue<'_>) -> Json {
    let absent = |absence: Absence| json!({ "absent": absence.name() });
    match (value.status, &value.value) {
        (ReturnCode::OK, Ok(Value::Int(n) | Value::Time(n))) => json!({ "value": n }),
        (ReturnCode::OK, Ok(Value::Double(x))) => json!({ "value": x }),
        (ReturnCode::OK, Ok(Value::Text(text))) => json!({ "value": text }),
        (ReturnCode::OK, Ok(Value::Binary)) => absent(Absence::Unexportable),
        (ReturnCode::OK, Err(why)) => absent(super::readings::of_sentinel(*why)),
        (code, _) => absent(of_code(code)),
    }
}
