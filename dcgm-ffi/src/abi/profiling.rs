//! Groups of profiling fields that a GPU can measure at once.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_structs.h`.

use super::family;

family! {
    /// Fields that are measured together.
    struct RawMetricGroup = "dcgmProfMetricGroupInfo_v2" since "v3.1.3" {
        major: u16 = "majorId",
        minor: u16 = "minorId",
        count: u32 = "numFieldIds",
        fields: [u16; 64] = "fieldIds",
    }

    /// All groups of a GPU.
    struct MetricGroups = "dcgmProfGetMetricGroups_v3" since "v3.1.3" version 3 {
        version: u32 = "version",
        unused: u32 = "unused",
        gpu: u32 = "gpuId",
        count: u32 = "numMetricGroups",
        groups: [RawMetricGroup; 10] = "metricGroups",
    }
}
