//! Profiling fields that one pass of the hardware cannot measure together (GPUs before Hopper, code -38).
//!
//! In: the wanted fields and the GPU's metric groups. Out: the fields to watch, and those that must stay out. What can
//! go wrong: nothing.

use std::collections::BTreeMap;

use super::engine::MetricGroup;

/// Of groups with one major id only one can be measured: the one with most of the wanted fields, the first of equals.
pub(super) fn choose(wanted: &[u16], groups: &[MetricGroup]) -> (Vec<u16>, Vec<u16>) {
    let has = |group: &MetricGroup| wanted.iter().filter(|f| group.fields.contains(f)).count();
    let mut best: BTreeMap<u16, &MetricGroup> = BTreeMap::new();
    for group in groups {
        best.entry(group.major)
            .and_modify(|was| {
                if has(group) > has(was) {
                    *was = group;
                }
            })
            .or_insert(group);
    }
    // A field in no group at all is not for us to judge: the engine refuses it by itself.
    let listed = |field: &u16| groups.iter().any(|g| g.fields.contains(field));
    let kept = |field: &u16| best.values().any(|g| g.fields.contains(field));
    wanted.iter().copied().partition(|field| kept(field) || !listed(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_group_of_each_major_is_measured() {
        let groups =
            [(0, 0, vec![1002, 1003]), (1, 0, vec![1004]), (1, 1, vec![1006, 1007]), (2, 0, vec![1009])]
                .map(|(major, minor, fields)| MetricGroup { major, minor, fields });
        let check = |wanted: &[u16], kept: &[u16], left: &[u16]| {
            assert_eq!(choose(wanted, &groups), (kept.to_vec(), left.to_vec()));
        };
        check(&[1002, 1004, 1009], &[1002, 1004, 1009], &[]);
        check(&[1004, 1006, 1009], &[1004, 1009], &[1006]);
        check(&[1004, 1006, 1007], &[1006, 1007], &[1004]);
        check(&[1013], &[1013], &[]);
    }
}
