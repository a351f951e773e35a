//! What becomes of each measured field: the embedded table `data/field_metrics.csv`.
//!
//! In: a [`Field`]. Out: its [`FieldRow`]: under which metric it leaves, in which unit, which values can be; or why it
//! does not leave. What can go wrong: a damaged row is left out, and a test fails; an id that the table lacks has no row.
//!
//! Columns: `field` (DCGM's id, or the name of a host value), `name`, `treatment`, `metric` (of `info` the attribute, of
//! `refused` the reason), `scale` (of `info` the form), `range`, `attributes` (`name=value;…`).
//! Names: OpenTelemetry's hardware conventions where they have one, else those of the Collector's `dcgmreceiver`, else
//! `gpu.dcgm.` and the field's name in lower case without `DCGM_FI_` and `DEV_`, `PROF_` or `SYSTEM_`; a number inside
//! the name (link, lane, engine) is an attribute.

use std::sync::LazyLock;

use dcgm_ffi::FieldKind;

use super::{Field, HostField};

const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/field_metrics.csv"));

/// What becomes of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldRow {
    /// The field.
    pub field: Field,
    /// DCGM's name in 4.6, or the name of a host value.
    pub name: &'static str,
    /// How its values become points.
    pub treatment: Treatment,
    /// The metric; of [`Treatment::Info`] the attribute, of [`Treatment::Refused`] the reason.
    pub target: &'static str,
    /// From the field's unit to the metric's.
    pub scale: Scale,
    /// Which values can be. Unit: the field's.
    pub range: Range,
    /// Attributes that every point has.
    pub attributes: Vec<(&'static str, &'static str)>,
    /// Points are floating-point numbers even where a value happens to be whole.
    pub double: bool,
}

/// How values become points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The latest value.
    Level,
    /// A counter of the device: its increase since the first observation.
    Counter,
    /// A rate, averaged by the engine over its interval: integrated.
    Rate,
    /// A mask of reasons: the time of each bit.
    Mask,
    /// A number per event: events by number.
    Event,
    /// An attribute of the info series.
    Info(Form),
    /// Not exported.
    Refused,
}

/// From a field's unit to its metric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Multiplied; whole numbers stay whole.
    Times(i64),
    /// Divided; the result is a floating-point number.
    Per(i64),
}

/// How a number is written into an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Text,
    /// Hexadecimal with `0x`.
    Hex,
    /// Upper and lower 16 bits with a dot: CUDA's compute capability.
    Pair,
}

/// Which values can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words say it")]
pub enum Range {
    Any,
    /// 0 or more.
    Positive,
    /// 0 to 100.
    Percent,
    /// 0 to 1.
    Ratio,
    /// A temperature that matter and a sensor can have: -273 to 1000.
    Celsius,
}

impl FieldRow {
    /// The engine makes the rate from two readings of a counter, so that the first one after a gap is nonsense: the
    /// whole counter divided by one interval. True of NVLink's throughputs (MB/s); rates in B/s come from the GPU.
    pub fn is_difference_of_a_counter(&self) -> bool {
        self.treatment == Treatment::Rate && self.scale != Scale::Times(1)
    }
}

/// All fields, in the order of the file.
pub fn rows() -> &'static [FieldRow] {
    &ROWS.rows
}

/// The place of a field in [`rows`].
pub fn slot(field: Field) -> Option<usize> {
    let slot = match field {
        Field::Dcgm(id) => ROWS.by_id.get(usize::from(id)),
        Field::Host(host) => ROWS.by_host.get(host as usize),
    };
    slot.copied().filter(|slot| *slot != NONE).map(usize::from)
}

/// The row of a field.
pub fn row(field: Field) -> Option<&'static FieldRow> {
    rows().get(slot(field)?)
}

const NONE: u16 = u16::MAX;

struct Rows {
    rows: Vec<FieldRow>,
    by_id: Vec<u16>,
    by_host: Vec<u16>,
}

static ROWS: LazyLock<Rows> = LazyLock::new(|| {
    let rows: Vec<FieldRow> = TABLE.lines().skip(1).filter_map(parse).collect();
    let last =
        rows.iter().filter_map(|row| if let Field::Dcgm(id) = row.field { Some(id) } else { None }).max();
    let mut by_id = vec![NONE; last.map_or(0, |id| usize::from(id) + 1)];
    let mut by_host = vec![NONE; HostField::ALL.len()];
    for (row, at) in rows.iter().zip(0u16..) {
        let place = match row.field {
            Field::Dcgm(id) => by_id.get_mut(usize::from(id)),
            Field::Host(host) => by_host.get_mut(host as usize),
        };
        if let Some(place) = place {
            *place = at;
        }
    }
    Rows { rows, by_id, by_host }
});

fn parse(line: &'static str) -> Option<FieldRow> {
    let cells: Vec<&'static str> = line.split(',').collect();
    let [field, name, treatment, target, scale, range, attributes] = cells.try_into().ok()?;
    let field = match field.parse() {
        Ok(id) => Field::Dcgm(id),
        Err(_) => Field::Host(HostField::from_name(field)?),
    };
    let treatment = match treatment {
        "gauge" => Treatment::Level,
        "counter" => Treatment::Counter,
        "rate" => Treatment::Rate,
        "mask" => Treatment::Mask,
        "event" => Treatment::Event,
        "info" => Treatment::Info(form(scale)?),
        "refused" => Treatment::Refused,
        _ => return None,
    };
    let plain = matches!(treatment, Treatment::Info(_) | Treatment::Refused);
    let scale = if plain { Scale::Times(1) } else { self::scale(scale)? };
    let double = match field {
        Field::Dcgm(id) => {
            dcgm_ffi::field_table::by_id(id).is_some_and(|row| row.kind == Some(FieldKind::Double))
        }
        Field::Host(_) => false,
    };
    let pairs = attributes.split(';').filter(|pair| !pair.is_empty());
    Some(FieldRow {
        field,
        name,
        treatment,
        target,
        scale,
        range: match range {
            "any" | "" => Range::Any,
            "positive" => Range::Positive,
            "percent" => Range::Percent,
            "ratio" => Range::Ratio,
            "celsius" => Range::Celsius,
            _ => return None,
        },
        attributes: pairs.map(|pair| pair.split_once('=')).collect::<Option<_>>()?,
        double: double || matches!(scale, Scale::Per(_)),
    })
}

fn form(text: &str) -> Option<Form> {
    match text {
        "text" => Some(Form::Text),
        "hex" => Some(Form::Hex),
        "pair" => Some(Form::Pair),
        _ => None,
    }
}

fn scale(text: &str) -> Option<Scale> {
    match text.strip_prefix('/') {
        Some(by) => by.parse().ok().filter(|by| *by > 0).map(Scale::Per),
        None => text.parse().ok().filter(|by| *by > 0).map(Scale::Times),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_row_and_every_field_has_one() {
        for line in TABLE.lines().skip(1) {
            assert!(parse(line).is_some(), "{line}");
        }
        for known in dcgm_ffi::field_table::rows() {
            let row = row(Field::Dcgm(known.id)).unwrap_or_else(|| panic!("{} has no row", known.id));
            assert_eq!((row.field, row.name), (Field::Dcgm(known.id), known.name));
        }
        for host in HostField::ALL {
            let row = row(Field::Host(*host)).unwrap_or_else(|| panic!("{} has no row", host.name()));
            assert_eq!((row.field, row.name), (Field::Host(*host), host.name()));
        }
        assert_eq!(rows().len(), dcgm_ffi::field_table::rows().len() + HostField::ALL.len());
        assert_eq!((slot(Field::Dcgm(u16::MAX)), slot(Field::Dcgm(0))), (None, None));
    }

    /// The unit of the engine's table, and what the scale makes of it.
    #[test]
    fn scales_fit_the_units_of_the_engine() {
        for row in rows() {
            let Field::Dcgm(id) = row.field else { continue };
            if matches!(row.treatment, Treatment::Info(_) | Treatment::Refused) {
                continue;
            }
            let unit = dcgm_ffi::field_table::by_id(id).unwrap().unit;
            let want: &[Scale] = match unit {
                "MiBy" => &[Scale::Times(1_048_576)],
                "MHz" | "MBy/s" => &[Scale::Times(1_000_000)],
                "kHz" => &[Scale::Times(1_000)],
                "mJ" | "mV" | "ms" | "mW/s" => &[Scale::Per(1_000)],
                "ns" => &[Scale::Per(1_000_000_000)],
                "%" => &[Scale::Per(100), Scale::Times(1)],
                _ => &[Scale::Times(1)],
            };
            assert!(want.contains(&row.scale), "{id}: {unit} {:?}", row.scale);
            let range = match unit {
                "%" => Some(Range::Percent),
                "1" => Some(Range::Ratio),
                _ => None,
            };
            assert!(range.is_none_or(|range| range == row.range), "{id}: {unit} {:?}", row.range);
        }
    }

    #[test]
    fn what_is_not_exported_has_a_reason() {
        for row in rows().iter().filter(|row| row.treatment == Treatment::Refused) {
            assert!(!row.target.is_empty(), "{}", row.name);
        }
        for known in dcgm_ffi::field_table::rows().iter().filter(|row| row.kind == Some(FieldKind::Binary)) {
            assert_eq!(row(Field::Dcgm(known.id)).unwrap().treatment, Treatment::Refused, "{}", known.id);
        }
        for known in dcgm_ffi::field_table::rows().iter().filter(|row| row.kind == Some(FieldKind::Str)) {
            let treatment = row(Field::Dcgm(known.id)).unwrap().treatment;
            assert!(matches!(treatment, Treatment::Info(_) | Treatment::Refused), "{}: a text", known.id);
        }
    }
}
