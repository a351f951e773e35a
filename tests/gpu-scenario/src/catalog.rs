//! The field table of the simulated engine: what each of the 656 known fields is, and what it usually says.
//!
//! In: `fields.csv`, which is part of the library. Out: rows by id or tag. What can go wrong: a row that does not parse
//! is left out; a test counts the rows. The usual answers were recorded with an engine whose NVML was a fake one:
//! "blank" for a field which that fake did not know (a driver says a number or "not supported"), profiling values on
//! GPU instances (blank there), and the numbers themselves are the fake's. The column `gpu` is the answer on a GPU,
//! `gi` and `ci` on an instance where it differs, `link` on a link.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::answer::{Kind, Sentinel};
use crate::version::Version;

const TABLE: &str = include_str!("fields.csv");

/// One field.
#[derive(Clone, Debug)]
pub struct FieldRow {
    /// Number.
    pub id: u16,
    /// Tag, as `DcgmFieldGetByTag` takes it (names of 4.6.0).
    pub tag: String,
    /// Type of its value.
    pub kind: Kind,
    /// Lowest entity level at which it means something, as the table of 4.6.0 names it.
    pub level: Level,
    /// NVML's field value behind it.
    pub nvml: Option<u32>,
    /// First version that knows it.
    pub first: Version,
    /// NVLink link it counts for.
    pub link_index: Option<u32>,
    /// Usual answer on a GPU.
    pub gpu: Usual,
    /// Usual answer on a GPU instance.
    pub gpu_instance: Usual,
    /// Usual answer on a compute instance.
    pub compute_instance: Usual,
    /// Usual answer on a link.
    pub link: Usual,
    /// The usual value, as text.
    pub default: String,
}

/// What a field usually says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// Its default value.
    Value,
    /// Status 0 and a sentinel.
    Absent(Sentinel),
    /// No sample, this status.
    Status(i32),
}

/// Entity level of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the vendor's names")]
pub enum Level {
    Global,
    Gpu,
    Vgpu,
    Switch,
    GpuInstance,
    ComputeInstance,
    Link,
    Cpu,
    CpuCore,
    ConnectX,
}

impl Level {
    /// DCGM's number of the entity group.
    pub fn raw(self) -> u32 {
        match self {
            Self::Global => 0,
            Self::Gpu => 1,
            Self::Vgpu => 2,
            Self::Switch => 3,
            Self::GpuInstance => 4,
            Self::ComputeInstance => 5,
            Self::Link => 6,
            Self::Cpu => 7,
            Self::CpuCore => 8,
            Self::ConnectX => 9,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "global" => Self::Global,
            "gpu" => Self::Gpu,
            "vgpu" => Self::Vgpu,
            "nvswitch" => Self::Switch,
            "gpu_instance" => Self::GpuInstance,
            "compute_instance" => Self::ComputeInstance,
            "link" => Self::Link,
            "cpu" => Self::Cpu,
            "cpu_core" => Self::CpuCore,
            "connectx" => Self::ConnectX,
            _ => return None,
        })
    }
}

impl Usual {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "value" => Self::Value,
            "blank" => Self::Absent(Sentinel::Blank),
            "not_found" => Self::Absent(Sentinel::NotFound),
            "not_supported" => Self::Absent(Sentinel::NotSupported),
            "not_permitted" => Self::Absent(Sentinel::NotPermitted),
            status => Self::Status(status.parse().ok()?),
        })
    }
}

impl FieldRow {
    fn parse(row: &csv::StringRecord) -> Option<Self> {
        let gpu = Usual::parse(row.get(6)?)?;
        let or = |text: &str, other: Usual| if text.is_empty() { Some(other) } else { Usual::parse(text) };
        Some(Self {
            id: row.get(0)?.parse().ok()?,
            tag: row.get(1)?.to_owned(),
            kind: match row.get(2)? {
                "i64" => Kind::Int,
                "double" => Kind::Double,
                "str" => Kind::Text,
                "bin" => Kind::Bytes,
                _ => return None,
            },
            level: Level::parse(row.get(3)?)?,
            nvml: row.get(4)?.parse().ok(),
            first: Version::parse(row.get(5)?)?,
            link_index: row.get(10)?.parse().ok(),
            gpu,
            gpu_instance: or(row.get(7)?, gpu)?,
            compute_instance: or(row.get(8)?, gpu)?,
            link: or(row.get(9)?, Usual::Status(-14))?,
            default: row.get(11)?.to_owned(),
        })
    }

    /// Type of its value in the library of `version`: 877 was a number before 4.6.
    pub fn kind_in(&self, version: Version) -> Kind {
        if self.id == 877 && version < Version(4, 6, 0) { Kind::Int } else { self.kind }
    }

    /// Whether it is a profiling field.
    pub fn is_profiling(&self) -> bool {
        matches!(self.id, 1001..=1096 | 1532..=1533)
    }

    /// Whether the engine makes it from the difference of a counter, so that its first value after a gap is huge.
    pub fn is_link_rate(&self) -> bool {
        matches!(self.id, 440..=449 | 475..=480 | 494..=496 | 825..=843 | 879..=897)
    }
}

/// All rows, by id.
pub fn rows() -> &'static [FieldRow] {
    static ROWS: OnceLock<Vec<FieldRow>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
        reader.records().filter_map(|row| FieldRow::parse(&row.ok()?)).collect()
    })
}

/// The row of `id`, if the library of `version` knows it.
pub fn by_id(id: u16, version: Version) -> Option<&'static FieldRow> {
    static INDEX: OnceLock<HashMap<u16, &'static FieldRow>> = OnceLock::new();
    let index = INDEX.get_or_init(|| rows().iter().map(|row| (row.id, row)).collect());
    index.get(&id).copied().filter(|row| row.first <= version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_row() {
        assert_eq!(rows().len(), TABLE.lines().count() - 1);
        assert_eq!(rows().len(), 656);
    }

    #[test]
    fn a_field_is_known_from_its_first_version() {
        let check = |id, version: &str| by_id(id, Version::parse(version).unwrap()).is_some();
        assert!(check(150, "3.1.8"));
        assert!(!check(1532, "4.5.3") && check(1532, "4.6.0"));
        assert!(!check(1600, "4.6.0") && check(1600, "4.6.1"));
        assert!(!check(9999, "4.6.0"));
        let kind = |version: &str| {
            let version = Version::parse(version).unwrap();
            by_id(877, version).unwrap().kind_in(version)
        };
        assert_eq!([kind("4.5.3"), kind("4.6.0")], [Kind::Int, Kind::Text]);
    }
}
