//! Connecting, starting an engine inside this process, and asking who answers.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_structs.h`.

use std::ffi::c_char;

use super::family;

family! {
    /// How to connect to a host and port or to a socket's path.
    struct ConnectV2 = "dcgmConnectV2Params_v2" since "v3.1.3" version 2 {
        version: u32 = "version",
        persist_after_disconnect: u32 = "persistAfterDisconnect",
        timeout_ms: u32 = "timeoutMs",
        address_is_unix_socket: u32 = "addressIsUnixSocket",
    }

    /// How to connect to a URI. From 4.5.
    struct ConnectV3 = "dcgmConnectV3Params_v1" since "v4.5.3" version 1 {
        version: u32 = "version",
        persist_after_disconnect: u32 = "persistAfterDisconnect",
        timeout_ms: u32 = "timeoutMs",
    }

    /// How to start an engine; accepted by every version. In 3.1 the list had 9 places and a filler.
    struct StartV1 = "dcgmStartEmbeddedV2Params_v1" since "v3.3.9" version 1 {
        version: u32 = "version",
        op_mode: u32 = "opMode",
        handle: usize = "dcgmHandle",
        log_file: *const c_char = "logFile",
        severity: i32 = "severity",
        deny_list_count: u32 = "denyListCount",
        deny_list: [u32; 10] = "denyList",
    }

    /// The same with an account to drop to.
    struct StartV2 = "dcgmStartEmbeddedV2Params_v2" since "v3.3.9" version 2 {
        version: u32 = "version",
        op_mode: u32 = "opMode",
        handle: usize = "dcgmHandle",
        log_file: *const c_char = "logFile",
        severity: i32 = "severity",
        deny_list_count: u32 = "denyListCount",
        service_account: *const c_char = "serviceAccount",
        deny_list: [u32; 10] = "denyList",
    }

    /// The same with a longer list. From 4.3.
    struct StartV3 = "dcgmStartEmbeddedV2Params_v3" since "v4.5.3" version 3 {
        version: u32 = "version",
        op_mode: u32 = "opMode",
        handle: usize = "dcgmHandle",
        log_file: *const c_char = "logFile",
        severity: i32 = "severity",
        deny_list_count: u32 = "denyListCount",
        service_account: *const c_char = "serviceAccount",
        deny_list: [u32; 16] = "denyList",
    }

    /// `key:value;` pairs about a library or an engine.
    struct VersionInfo = "dcgmVersionInfo_v2" since "v3.1.3" version 2 {
        version: u32 = "version",
        build: [c_char; 512] = "rawBuildInfoString",
    }

    /// Whether an engine finds itself healthy: 0 is yes.
    struct EngineHealth = "dcgmHostengineHealth_v1" since "v3.1.3" version 1 {
        version: u32 = "version",
        overall: u32 = "overallHealth",
    }
}
