//! Health checks.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_structs.h`.

use std::ffi::c_char;

use super::{family, group::Pair};

family! {
    /// What to watch and how often.
    struct HealthSet = "dcgmHealthSetParams_v2" since "v3.1.3" version 2 {
        version: u32 = "version",
        group: usize = "groupId",
        systems: u32 = "systems",
        interval_us: i64 = "updateInterval",
        keep_s: f64 = "maxKeepAge",
    }

    /// What went wrong, in words and as a number.
    struct ErrorDetail = "dcgmDiagErrorDetail_t" since "v3.1.3" {
        text: [c_char; 1024] = "msg",
        code: u32 = "code",
    }

    /// One incident.
    struct RawIncident = "dcgmIncidentInfo_t" since "v3.1.3" {
        system: u32 = "system",
        level: u32 = "health",
        error: ErrorDetail = "error",
        entity: Pair = "entityInfo",
    }

    /// All incidents in 3.x: 67 kB.
    struct HealthV4 = "dcgmHealthResponse_v4" since "v3.1.3" version 4 {
        version: u32 = "version",
        overall: u32 = "overallHealth",
        count: u32 = "incidentCount",
        incidents: [RawIncident; 64] = "incidents",
    }

    /// All incidents from 4.0: 1 MB.
    struct HealthV5 = "dcgmHealthResponse_v5" since "v4.0.0" version 5 {
        version: u32 = "version",
        overall: u32 = "overallHealth",
        count: u32 = "incidentCount",
        incidents: [RawIncident; 1024] = "incidents",
    }
}
