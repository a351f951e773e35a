//! The engine's modules.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_structs.h`.

use super::family;

family! {
    /// One module.
    struct RawModule = "dcgmModuleGetStatusesModule_t" since "v3.1.3" {
        id: u32 = "id",
        status: u32 = "status",
    }

    /// All modules.
    struct Modules = "dcgmModuleGetStatuses_v1" since "v3.1.3" version 1 {
        version: u32 = "version",
        count: u32 = "numStatuses",
        statuses: [RawModule; 16] = "statuses",
    }
}
