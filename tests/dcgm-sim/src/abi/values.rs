//! Structs of groups, fields, values, health and profiling.
//!
//! In: nothing. Out: structs. What can go wrong: see the parent.

use super::c_struct;

c_struct!(
    /// An entity.
    Pair = "dcgmGroupEntityPair_t" { entityGroupId: u32, entityId: u32 }
);
c_struct!(
    /// A group, as 3.x tells it.
    GroupInfoV2 = "dcgmGroupInfo_v2" {
        version: u32, count: u32, groupName: [u8; 256], entityList: [Pair; 64],
    }
);
c_struct!(
    /// A group, as 4.x tells it.
    GroupInfoV3 = "dcgmGroupInfo_v3" {
        version: u32, count: u32, groupName: [u8; 256], entityList: [Pair; 1024],
    }
);
c_struct!(
    /// A field group.
    FieldGroupInfo = "dcgmFieldGroupInfo_v1" {
        version: u32, numFieldIds: u32, fieldGroupId: usize, fieldGroupName: [u8; 256], fieldIds: [u16; 128],
    }
);
/// All field groups; not in the list of layouts, its size is in its version word.
#[repr(C)]
pub(crate) struct AllFieldGroups {
    pub(crate) version: u32,
    pub(crate) count: u32,
    pub(crate) groups: [FieldGroupInfo; 64],
}
/// A value: number, text or bytes, at the union's place.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Payload(pub(crate) [u8; 4096]);

c_struct!(
    /// A value.
    FieldValueV1 = "dcgmFieldValue_v1" {
        version: u32, fieldId: u16, fieldType: u16, status: i32, ts: i64, value: Payload,
    }
);
c_struct!(
    /// A value with its entity.
    FieldValueV2 = "dcgmFieldValue_v2" {
        version: u32, entityGroupId: u32, entityId: u32, fieldId: u16, fieldType: u16, status: i32, unused: u32,
        ts: i64, value: Payload,
    }
);
c_struct!(
    /// How a field is printed.
    OutputFormat = "dcgm_field_output_format_t" { shortName: [u8; 10], unit: [u8; 4], width: i16 }
);
c_struct!(
    /// A row of the field table.
    FieldMeta = "dcgm_field_meta_t" {
        fieldId: u16, fieldType: u8, size: u8, tag: [u8; 48], scope: i32, nvmlFieldId: i32, entityLevel: u32,
        valueFormat: *const OutputFormat,
    }
);
c_struct!(
    /// What to watch for health.
    HealthSetParams = "dcgmHealthSetParams_v2" {
        version: u32, groupId: usize, systems: u32, updateInterval: i64, maxKeepAge: f64,
    }
);
c_struct!(
    /// Text and code of an incident.
    ErrorDetail = "dcgmDiagErrorDetail_t" { msg: [u8; 1024], code: u32 }
);
c_struct!(
    /// An incident.
    IncidentInfo = "dcgmIncidentInfo_t" { system: u32, health: u32, error: ErrorDetail, entityInfo: Pair }
);
c_struct!(
    /// Incidents, as 3.x tells them.
    HealthResponseV4 = "dcgmHealthResponse_v4" {
        version: u32, overallHealth: u32, incidentCount: u32, incidents: [IncidentInfo; 64],
    }
);
c_struct!(
    /// Incidents, as 4.x tells them: above 1 MB, never on a stack.
    HealthResponseV5 = "dcgmHealthResponse_v5" {
        version: u32, overallHealth: u32, incidentCount: u32, incidents: [IncidentInfo; 1024],
    }
);
c_struct!(
    /// Profiling fields that go together.
    MetricGroup = "dcgmProfMetricGroupInfo_v2" {
        majorId: u16, minorId: u16, numFieldIds: u32, fieldIds: [u16; 64],
    }
);
c_struct!(
    /// All of them for a GPU.
    MetricGroups = "dcgmProfGetMetricGroups_v3" {
        version: u32, unused: u32, gpuId: u32, numMetricGroups: u32, metricGroups: [MetricGroup; 10],
    }
);
