//! Configured fields that the built-in table does not have: said at the start, when no DCGM may be there to say it.
//!
//! In: the watch groups. Out: a text for each such field. What can go wrong: a newer DCGM knows a field that the table
//! does not; so it is a warning, and the field is asked for all the same.

use dcgm_ffi::field_table;

use crate::config::WatchGroup;

/// Likeness from which another name is offered. Source: common practice with this measure.
const ALIKE: f64 = 0.85;
/// Fields that are told of; there are that many in no sensible file.
const TOLD_MAX: usize = 16;

/// What is said of the fields that are in no list.
pub(super) fn words(groups: &[WatchGroup]) -> Vec<String> {
    let all = groups.iter().flat_map(|group| group.fields.iter().map(move |field| (&group.name, field)));
    let unlisted = all.filter(|(_, field)| field_table::by_name(field).is_none());
    unlisted.take(TOLD_MAX).map(|(group, field)| word(group, field)).collect()
}

fn word(group: &str, field: &str) -> String {
    let wanted = field.to_ascii_uppercase();
    let names =
        field_table::rows().iter().flat_map(|row| [Some(row.name), row.old_name, row.later_name]).flatten();
    let likeness = |name: &str| strsim::jaro_winkler(&wanted, name);
    let alike = names.filter(|name| likeness(name) >= ALIKE);
    let meant = alike.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let meant = meant.map_or(String::new(), |name| format!("; did you mean {name}?"));
    format!("group {group}: field {field} is not in this agent's list{meant}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_field_that_is_in_no_list_is_told_with_the_one_that_may_be_meant() {
        let group = |fields: &[&str]| WatchGroup {
            name: "mine".to_owned(),
            interval: Duration::from_secs(1),
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        };
        let told = words(&[group(&["150", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMPS", "64999"])]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].ends_with(
            "DCGM_FI_DEV_GPU_TEMPS is not in this agent's list; did you mean DCGM_FI_DEV_GPU_TEMP?"
        ));
        assert_eq!(told[1], "group mine: field 64999 is not in this agent's list");
        assert_eq!(words(&crate::config::Config::default().worker.groups), [] as [String; 0]);
        let many: Vec<String> = (64_000..64_100).map(|id: u16| id.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(words(&[group(&many)]).len(), TOLD_MAX);
    }
}
