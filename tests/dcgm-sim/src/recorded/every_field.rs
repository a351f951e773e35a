//! Every field of every kind of entity against the recording: watch code, status, type, sentinel.
//!
//! In: `tests/fixtures/dcgm/values_<node>.csv` and the scenario of the same name. Out: a failed test with the first
//! differences. The numbers are not compared: the recording's are made up.

use std::collections::BTreeMap;

use gpu_scenario::catalog;

use super::rig::Rig;
use crate::calls::groups::dcgmFieldGroupDestroy;

/// What was recorded for one (entity, field); `None`: not asked.
#[derive(Clone, Debug, PartialEq)]
struct Recorded {
    field_group: Option<i32>,
    add: Option<i32>,
    watch: Option<i32>,
    status: Option<i32>,
    kind: String,
    value: String,
}

fn recording(node: &str) -> BTreeMap<((u32, u32), u16), Recorded> {
    let path = format!("{}/../fixtures/dcgm/values_{node}.csv", env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeMap::new();
    for row in csv::Reader::from_path(path).unwrap().records().map(Result::unwrap) {
        let code = |at: usize| row[at].parse().ok();
        let recorded = Recorded {
            field_group: code(2),
            add: code(3),
            watch: code(4),
            status: code(5),
            kind: row[6].to_owned(),
            value: row[7].to_owned(),
        };
        for range in row[8].split(' ') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            for field in first.parse::<u16>().unwrap()..=last.parse().unwrap() {
                let entity = (row[0].parse().unwrap(), row[1].parse().unwrap());
                found.insert((entity, field), recorded.clone());
            }
        }
    }
    found
}

/// As the recording did it: each field in a field group of its own, watched on each entity, read 3 s later.
fn simulated(node: &str, entities: &[(u32, u32)]) -> BTreeMap<((u32, u32), u16), Recorded> {
    let mut rig = Rig::of(node, "");
    rig.at(300);
    assert_eq!(rig.connect(), 0);
    let mut found = BTreeMap::new();
    for row in catalog::rows() {
        // an engine has room for 61 field groups: each is dropped after its read
        let (created, field_group) = rig.field_group("f", &[row.id]);
        let mut groups = Vec::new();
        for entity in entities {
            let (group, added) = rig.group(&[*entity]);
            let watched = (created == 0 && added == [0]).then(|| rig.watch(group, field_group, 1000));
            groups.push((*entity, group, added[0], watched));
        }
        rig.at(3300);
        for (entity, group, added, watched) in groups {
            let (_, seen) =
                if created == 0 { rig.of_entities(&[entity], &[row.id], 0) } else { (0, Vec::new()) };
            let seen = seen.first();
            let value = match seen.map(|seen| seen.value.as_str()) {
                None => "",
                Some(other @ ("blank" | "not_found" | "not_supported" | "not_permitted" | "empty")) => other,
                Some(_) => "value",
            };
            let kind = seen.map_or("", |seen| match seen.kind {
                'i' => "i64",
                'd' => "f64",
                's' => "str",
                _ => "bin",
            });
            let recorded = Recorded {
                field_group: (created != 0).then_some(created),
                add: (added != 0 && created == 0).then_some(added),
                watch: watched,
                status: seen.map(|seen| seen.status),
                kind: kind.to_owned(),
                value: value.to_owned(),
            };
            found.insert((entity, row.id), recorded);
            assert_eq!(crate::calls::groups::dcgmGroupDestroy(rig.handle, group), 0);
        }
        if created == 0 {
            assert_eq!(dcgmFieldGroupDestroy(rig.handle, field_group), 0);
        }
        rig.at(300);
    }
    found
}

fn check(node: &str, entities: &[(u32, u32)]) {
    let (recorded, simulated) = (recording(node), simulated(node, entities));
    assert_eq!(recorded.len(), entities.len() * 656, "{node}: the recording holds each field of each entity");
    let wrong: Vec<String> = recorded
        .iter()
        .filter(|(key, recorded)| simulated.get(key) != Some(recorded))
        .map(|(key, recorded)| format!("{key:?}: recorded {recorded:?}, simulated {:?}", simulated.get(key)))
        .collect();
    assert!(wrong.is_empty(), "{node}: {} differ\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

#[test]
fn four_gpus_and_two_links() {
    check("h100x4", &[(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (6, 1), (6, 50_336_001)]);
}

#[test]
fn instances_of_a_gpu_with_gpm() {
    check("h100mig", &[(0, 0), (1, 0), (1, 1), (4, 7), (4, 8), (5, 7), (5, 8)]);
}

#[test]
fn instances_of_a_gpu_whose_profiling_module_is_missing() {
    check("a100mig", &[(0, 0), (1, 0), (1, 1), (4, 7), (4, 8), (5, 7), (5, 8)]);
}

#[test]
fn one_gpu_of_an_older_generation() {
    check("t4x1", &[(0, 0), (1, 0)]);
}
