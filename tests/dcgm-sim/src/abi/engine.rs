//! Structs of the session: connecting, starting, versions, modules.
//!
//! In: nothing. Out: structs. What can go wrong: see the parent.

use std::ffi::c_char;

use super::c_struct;

c_struct!(
    /// Connection, first form.
    ConnectV1 = "dcgmConnectV2Params_v1" { version: u32, persistAfterDisconnect: u32 }
);
c_struct!(
    /// Connection, second form.
    ConnectV2 = "dcgmConnectV2Params_v2" {
        version: u32, persistAfterDisconnect: u32, timeoutMs: u32, addressIsUnixSocket: u32,
    }
);
c_struct!(
    /// Connection to a URI.
    ConnectV3 = "dcgmConnectV3Params_v1" { version: u32, persistAfterDisconnect: u32, timeoutMs: u32 }
);
c_struct!(
    /// Embedded engine, first form.
    StartV1 = "dcgmStartEmbeddedV2Params_v1" {
        version: u32, opMode: u32, dcgmHandle: usize, logFile: *const c_char, severity: i32, denyListCount: u32,
        denyList: [u32; 10],
    }
);
c_struct!(
    /// Embedded engine, second form.
    StartV2 = "dcgmStartEmbeddedV2Params_v2" {
        version: u32, opMode: u32, dcgmHandle: usize, logFile: *const c_char, severity: i32, denyListCount: u32,
        serviceAccount: *const c_char, denyList: [u32; 10],
    }
);
c_struct!(
    /// Embedded engine, third form.
    StartV3 = "dcgmStartEmbeddedV2Params_v3" {
        version: u32, opMode: u32, dcgmHandle: usize, logFile: *const c_char, severity: i32, denyListCount: u32,
        serviceAccount: *const c_char, denyList: [u32; 16],
    }
);
c_struct!(
    /// Version text.
    VersionInfo = "dcgmVersionInfo_v2" { version: u32, rawBuildInfoString: [u8; 512] }
);
c_struct!(
    /// Health of the engine itself.
    EngineHealth = "dcgmHostengineHealth_v1" { version: u32, overallHealth: u32 }
);
c_struct!(
    /// A module and its state.
    ModuleStatus = "dcgmModuleGetStatusesModule_t" { id: u32, status: u32 }
);
c_struct!(
    /// All modules.
    ModuleStatuses = "dcgmModuleGetStatuses_v1" { version: u32, numStatuses: u32, statuses: [ModuleStatus; 16] }
);
