//! Fields: what they are, and their values.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_fields.h`, `dcgm_structs.h`.

use std::ffi::{c_char, c_void};

use super::family;

/// The union of a value: 4096 bytes, aligned for the numbers that may begin it. Read by the value's own type
/// code.
pub(crate) type RawValue = [u64; 512];

family! {
    /// What the library knows of a field. It is the library's own memory and lasts as long as the library.
    struct Meta = "dcgm_field_meta_t" since "v3.1.3" {
        field_id: u16 = "fieldId",
        field_type: u8 = "fieldType",
        size: u8 = "size",
        tag: [c_char; 48] = "tag",
        scope: i32 = "scope",
        nvml_field_id: i32 = "nvmlFieldId",
        entity_level: u32 = "entityLevel",
        value_format: *const c_void = "valueFormat",
    }

    /// A value of an entity that the caller names.
    struct FieldValueV1 = "dcgmFieldValue_v1" since "v3.1.3" version 1 {
        version: u32 = "version",
        field_id: u16 = "fieldId",
        field_type: u16 = "fieldType",
        status: i32 = "status",
        ts: i64 = "ts",
        value: RawValue = "value",
    }

    /// A value together with its entity.
    struct FieldValueV2 = "dcgmFieldValue_v2" since "v3.1.3" version 2 {
        version: u32 = "version",
        entity_group: u32 = "entityGroupId",
        entity_id: u32 = "entityId",
        field_id: u16 = "fieldId",
        field_type: u16 = "fieldType",
        status: i32 = "status",
        unused: u32 = "unused",
        ts: i64 = "ts",
        value: RawValue = "value",
    }
}
