//! The field table of the library.
//!
//! In: an id or a tag. Out: a row that lives as long as the process. What can go wrong: a field that the scenario's
//! library does not know is a null pointer.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::OnceLock;

use gpu_scenario::answer::Kind;
use gpu_scenario::catalog::{self, FieldRow, Level};
use gpu_scenario::{Version, simulator};

use crate::abi::put_text;
use crate::abi::values::{FieldMeta, OutputFormat};
use crate::pointers::text;

/// Rows as the client sees them.
struct Table(HashMap<u16, FieldMeta>);

// SAFETY: the rows are never written to, and their pointers lead to one static
unsafe impl Sync for Table {}
// SAFETY: as above
unsafe impl Send for Table {}

static FORMAT: OutputFormat = OutputFormat { shortName: *b"SIM\0\0\0\0\0\0\0", unit: [0; 4], width: 10 };

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let version = || simulator().with(|world, _| world.library());
    TABLE.get_or_init(|| {
        let version = version();
        Table(catalog::rows().iter().map(|row| (row.id, meta(row, version))).collect())
    })
}

fn meta(row: &FieldRow, version: Version) -> FieldMeta {
    let (kind, size) = match row.kind_in(version) {
        Kind::Int => (b'i', 8),
        Kind::Double => (b'd', 8),
        Kind::Text => (b's', 0),
        Kind::Bytes => (b'b', 0),
    };
    let mut tag = [0; 48];
    put_text(&mut tag, &row.tag);
    FieldMeta {
        fieldId: row.id,
        fieldType: kind,
        size,
        tag,
        scope: i32::from(row.level != Level::Global),
        nvmlFieldId: row.nvml.and_then(|id| i32::try_from(id).ok()).unwrap_or(0),
        entityLevel: row.level.raw(),
        valueFormat: &raw const FORMAT,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn DcgmFieldsInit() -> i32 {
    table();
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn DcgmFieldsTerm() -> i32 {
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn DcgmFieldGetById(id: u16) -> *const FieldMeta {
    let version = simulator().with(|world, _| world.library());
    let known = catalog::by_id(id, version).and_then(|row| table().0.get(&row.id));
    known.map_or(std::ptr::null(), std::ptr::from_ref)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn DcgmFieldGetByTag(tag: *const c_char) -> *const FieldMeta {
    // SAFETY: the caller's promise
    let Ok(tag) = (unsafe { text(tag) }) else { return std::ptr::null() };
    catalog::rows().iter().find(|row| row.tag == tag).map_or(std::ptr::null(), |row| DcgmFieldGetById(row.id))
}
