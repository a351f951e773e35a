//! The table of all DCGM fields known to us, from libdcgm 2.1 to 4.6.1.
//!
//! In: `data/dcgm_fields.csv`, embedded. Out: [`FieldRow`]s, by id or by name. What can go wrong: nothing at
//! run time; a test reads the file and refuses a row that does not parse. Whether an installed library knows
//! a field is a question to that library ([`crate::Library::field`]); this table gives names and units, which
//! the library lacks.
//!
//! Source of the table: ids, kinds, levels, tags and NVML field ids are what libdcgm 4.6.0 itself answers for
//! each id (`DcgmFieldGetById` over 1…4095); names are those of the public `dcgm_fields.h` of 4.6.0, 4.5.3
//! (`old_name`) and 4.6.1 (`later_name`); units follow the comments and the code of that source, as UCUM
//! codes. Ids 1600 to 1612 are known from the header of 4.6.1 only: their kind is not known here, their level
//! is read off their names.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::entity::EntityGroup;
use crate::field_kind::FieldKind;

/// One field. Texts are empty where there is nothing to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRow {
    /// DCGM's number; it never changes its meaning.
    pub id: u16,
    /// Name in 4.6.0.
    pub name: &'static str,
    /// Name before 4.6, where it differs.
    pub old_name: Option<&'static str>,
    /// Name in 4.6.1, where it differs.
    pub later_name: Option<&'static str>,
    /// How the value is delivered when it is read well (a failed read may deliver another kind). None: not
    /// known.
    pub kind: Option<FieldKind>,
    /// The lowest level at which the field has a value of its own: below it, DCGM repeats the parent's value.
    /// [`EntityGroup::None`]: one value for the node.
    pub level: EntityGroup,
    /// UCUM code; empty for texts, codes, masks and where the source says nothing.
    pub unit: &'static str,
    /// DCGM says not to use it.
    pub deprecated: bool,
    /// The first public version with it; `2.1.4` means this or an earlier one.
    pub since: &'static str,
    /// DCGM's own short name in 4.6.0; empty where not known.
    pub tag: &'static str,
    /// The NVML field it is read from.
    pub nvml_field: Option<u32>,
    /// What the engine needs for it besides its core.
    pub needs: Option<Needs>,
}

/// A part of the engine that delivers fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Needs {
    /// Profiling: Hopper and newer by the core through NVML, older GPUs by a module of its own.
    Profiling,
    /// The NVSwitch module.
    NvSwitch,
    /// The module for CPUs.
    Sysmon,
}

static TABLE: LazyLock<Vec<FieldRow>> =
    LazyLock::new(|| include_str!("../data/dcgm_fields.csv").lines().skip(1).filter_map(parse).collect());

static NAMES: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    let mut names = HashMap::new();
    // Should a name ever mean two fields, the smaller id keeps it; a test says that none does.
    for (at, row) in rows().iter().enumerate() {
        for name in [Some(row.name), row.old_name, row.later_name].into_iter().flatten() {
            names.entry(name.to_ascii_uppercase()).or_insert(at);
        }
    }
    names
});

/// All fields, by rising id.
pub fn rows() -> &'static [FieldRow] {
    &TABLE
}

/// The field of an id.
pub fn by_id(id: u16) -> Option<&'static FieldRow> {
    let at = rows().binary_search_by_key(&id, |row| row.id).ok()?;
    rows().get(at)
}

/// The field of a number (`"1001"`), or of a name in any of its versions and in any case.
pub fn by_name(text: &str) -> Option<&'static FieldRow> {
    let text = text.trim();
    if let Ok(id) = text.parse() {
        return by_id(id);
    }
    rows().get(*NAMES.get(&text.to_ascii_uppercase())?)
}

fn parse(line: &'static str) -> Option<FieldRow> {
    let cells: Vec<&'static str> = line.split(',').collect();
    let [id, name, old_name, later_name, kind, level, unit, deprecated, since, tag, nvml_field, needs] =
        cells.try_into().ok()?;
    let some = |cell: &'static str| (!cell.is_empty()).then_some(cell);
    Some(FieldRow {
        id: id.parse().ok()?,
        name,
        old_name: some(old_name),
        later_name: some(later_name),
        kind: if kind.is_empty() { None } else { Some(FieldKind::from_name(kind)?) },
        level: EntityGroup::from_name(level)?,
        unit,
        deprecated: deprecated == "yes",
        since,
        tag,
        nvml_field: if nvml_field.is_empty() { None } else { Some(nvml_field.parse().ok()?) },
        needs: match needs {
            "" => None,
            "profiling" => Some(Needs::Profiling),
            "nvswitch" => Some(Needs::NvSwitch),
            "sysmon" => Some(Needs::Sysmon),
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_row_and_ids_rise() {
        let lines = include_str!("../data/dcgm_fields.csv").lines().skip(1);
        for line in lines.clone() {
            assert!(parse(line).is_some(), "{line}");
        }
        assert_eq!((rows().len(), lines.count()), (656, 656));
        for pair in rows().windows(2) {
            assert!(pair[0].id < pair[1].id, "{} and {}", pair[0].id, pair[1].id);
        }
    }

    #[test]
    fn a_name_means_one_field() {
        let mut meaning: HashMap<String, u16> = HashMap::new();
        for row in rows() {
            for name in [Some(row.name), row.old_name, row.later_name].into_iter().flatten() {
                assert!(name.starts_with("DCGM_FI_"), "{name}");
                let before = meaning.insert(name.to_ascii_uppercase(), row.id);
                assert!(before.is_none_or(|id| id == row.id), "{name}: {before:?} and {}", row.id);
                assert_eq!(by_name(name).map(|found| found.id), Some(row.id), "{name}");
            }
        }
    }

    #[test]
    fn fields_are_found_by_number_and_by_each_name() {
        let ids = [
            ("150", Some(150)),
            (" 1002 ", Some(1002)),
            ("DCGM_FI_SYSTEM_DRIVER_VERSION", Some(1)),
            ("DCGM_FI_DRIVER_VERSION", Some(1)),
            ("dcgm_fi_prof_sm_active", Some(1002)),
            ("DCGM_FI_DEV_FAN_SPEED_RATIO", Some(1612)),
            ("DCGM_FI_NO_SUCH", None),
            ("4096", None),
            ("-1", None),
            ("99999", None),
            ("", None),
        ];
        for (text, id) in ids {
            assert_eq!(by_name(text).map(|row| row.id), id, "{text}");
        }
    }

    #[test]
    fn rows_say_what_is_measured() {
        let row = by_id(155).unwrap();
        assert_eq!((row.kind, row.level, row.unit), (Some(FieldKind::Double), EntityGroup::Gpu, "W"));
        let row = by_id(1002).unwrap();
        assert_eq!((row.level, row.unit), (EntityGroup::ComputeInstance, "1"));
        assert_eq!(row.needs, Some(Needs::Profiling));
        assert_eq!(by_id(230).map(|row| row.kind), Some(Some(FieldKind::Int)));
        assert_eq!(by_id(1600).map(|row| row.kind), Some(None));
        assert!(by_id(91).unwrap().deprecated);
        assert_eq!(by_id(0), None);
    }
}
