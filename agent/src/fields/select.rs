//! Which devices and fields are shown.
//!
//! In: the lines, `--gpu`, and a filter text. Out: the lines that remain, with the chosen devices' values only.
//! What can go wrong: no such device; the error names those that there are.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::FieldsError;

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// `hw.id`, index or PCI address of a device; its MIG instances come with it.
    pub device: Option<String>,
    /// Part of a field's number, name, old name, unit or group, in any case.
    pub text: Option<String>,
}

impl Selection {
    /// The lines that remain.
    ///
    /// # Errors
    /// [`FieldsError::NoDevice`], [`FieldsError::NoField`].
    pub fn apply(&self, mut lines: Vec<Json>) -> Result<Vec<Json>, FieldsError> {
        if let Some(wanted) = &self.device {
            let chosen = devices(&lines, wanted)?;
            lines.retain_mut(|line| narrow(line, &chosen));
        }
        if let Some(text) = self.text.as_deref().map(str::to_lowercase) {
            lines.retain(|line| is_field(line) && matches(line, &text));
            if lines.is_empty() {
                return Err(FieldsError::NoField(text));
            }
        }
        Ok(lines)
    }
}

/// The line is about a field.
pub(super) fn is_field(line: &Json) -> bool {
    line.get("id").is_some()
}

fn text<'a>(line: &'a Json, key: &str) -> &'a str {
    line.get(key).and_then(Json::as_str).unwrap_or_default()
}

/// The device that is meant, and its instances.
fn devices(lines: &[Json], wanted: &str) -> Result<BTreeSet<String>, FieldsError> {
    let is_it = |line: &&Json| {
        let index = line.get("index").and_then(Json::as_u64).map(|index| index.to_string());
        // Indices of MIG instances are their parent's to give.
        let by_index = line.get("kind").and_then(Json::as_u64) == Some(1) && index.as_deref() == Some(wanted);
        text(line, "device") == wanted || by_index || (!wanted.is_empty() && text(line, "pci") == wanted)
    };
    let all = || lines.iter().filter(|line| line.get("device").is_some());
    let mut chosen: BTreeSet<String> =
        all().filter(is_it).map(|line| text(line, "device").to_owned()).collect();
    if chosen.is_empty() {
        let there: Vec<&str> = all().map(|line| text(line, "device")).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        return Err(FieldsError::NoDevice(wanted.to_owned(), there));
    }
    let parts = all()
        .filter(|line| chosen.contains(text(line, "parent")))
        .map(|line| text(line, "device").to_owned());
    let parts: Vec<String> = parts.collect();
    chosen.extend(parts);
    Ok(chosen)
}

/// Takes the other devices out of a line; false when nothing is left of it.
fn narrow(line: &mut Json, chosen: &BTreeSet<String>) -> bool {
    if let Some(device) = line.get("device").and_then(Json::as_str) {
        return chosen.contains(device);
    }
    if let Some(status) = line.get_mut("status").and_then(Json::as_object_mut) {
        status.retain(|name, _| chosen.contains(name.split('/').next().unwrap_or_default()));
        return true;
    }
    false
}

fn matches(line: &Json, wanted: &str) -> bool {
    let number = line.get("id").and_then(Json::as_u64).map(|id| id.to_string());
    let texts = ["name", "old_name", "unit", "group"].map(|key| text(line, key).to_lowercase());
    number.as_deref() == Some(wanted) || texts.iter().any(|text| text.contains(wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines() -> Vec<Json> {
        vec![
            json!({"capabilities": {}}),
            json!({"id": 150, "name": "GPU_TEMP", "unit": "°C", "group": "performance",
                   "status": {"GPU-a": {"value": 45}, "GPU-b": {"value": 46}, "GPU-a/3": {"value": 1}}}),
            json!({"id": 1502, "name": "OTHER", "status": {"MIG-x": {"absent": "blank"}}}),
            json!({"device": "GPU-a", "kind": 1, "index": 0, "pci": "0000:3b:00.0"}),
            json!({"device": "GPU-b", "kind": 1, "index": 1}),
            json!({"device": "MIG-x", "kind": 2, "index": 1, "parent": "GPU-a"}),
        ]
    }

    #[test]
    fn a_device_is_chosen_by_its_id_index_or_address_with_its_instances() {
        for wanted in ["GPU-a", "0", "0000:3b:00.0"] {
            let selection = Selection { device: Some(wanted.into()), text: None };
            let left = selection.apply(lines()).unwrap();
            let devices: Vec<&str> = left.iter().filter_map(|line| line.get("device")?.as_str()).collect();
            assert_eq!(devices, ["GPU-a", "MIG-x"], "{wanted}");
            assert_eq!(left[0]["status"], json!({"GPU-a": {"value": 45}, "GPU-a/3": {"value": 1}}));
            assert_eq!(left[1]["status"], json!({"MIG-x": {"absent": "blank"}}));
        }
        let none = Selection { device: Some("7".into()), text: None };
        assert_eq!(
            none.apply(lines()).unwrap_err().to_string(),
            "no device 7; there are: GPU-a, GPU-b, MIG-x"
        );
    }

    #[test]
    fn fields_are_found_by_any_of_their_names_and_by_the_whole_number() {
        for (text, want) in
            [("150", vec![150]), ("temp", vec![150]), ("perf", vec![150]), ("o", vec![150, 1502])]
        {
            let left = Selection { device: None, text: Some(text.into()) }.apply(lines()).unwrap();
            let ids: Vec<u64> = left.iter().filter_map(|line| line.get("id")?.as_u64()).collect();
            assert_eq!(ids, want, "{text}");
        }
        let none = Selection { device: None, text: Some("Nowhere".into()) }.apply(lines()).unwrap_err();
        assert!(none.to_string().starts_with("no field has `nowhere` in its number"), "{none}");
    }
}
