//! Answers of libdcgm's functions, and states of values.
//!
//! In: a number. Out: its name and what it means to a client. What can go wrong: a newer library has a number
//! that is not in this table; it stays a number.

use std::fmt;

/// `dcgmReturn_t`: 0 is good, all others are negative. Source: `dcgm_structs.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReturnCode(pub i32);

/// Number, name without `DCGM_ST_`, meaning.
const CODES: [(i32, &str, &str); 59] = [
    (0, "OK", "done"),
    (-1, "BADPARAM", "bad parameter: an unknown field or entity, or one that is already in the group"),
    (-3, "GENERIC_ERROR", "the engine failed without a reason"),
    (-4, "MEMORY", "the engine is out of memory"),
    (-5, "NOT_CONFIGURED", "the group does not exist (any more)"),
    (-6, "NOT_SUPPORTED", "this device or engine cannot do it"),
    (-7, "INIT_ERROR", "the library failed to start"),
    (-8, "NVML_ERROR", "NVML failed"),
    (-9, "PENDING", "another operation is still going on"),
    (-10, "UNINITIALIZED", "the library is not initialized"),
    (-11, "TIMEOUT", "the engine or the driver did not answer in time"),
    (-12, "VER_MISMATCH", "the engine does not know this version of the structure"),
    (-13, "UNKNOWN_FIELD", "the field is not known"),
    (-14, "NO_DATA", "nothing was measured yet, or the field group does not exist"),
    (-15, "STALE_DATA", "the data is old"),
    (-16, "NOT_WATCHED", "the field is not watched"),
    (-17, "NO_PERMISSION", "not permitted"),
    (-18, "GPU_IS_LOST", "the GPU has fallen off the bus or is detached"),
    (-19, "RESET_REQUIRED", "the GPU needs a reset"),
    (-20, "FUNCTION_NOT_FOUND", "the engine is older than the library and does not know this request"),
    (-21, "CONNECTION_NOT_VALID", "there is no engine at the other end"),
    (-22, "GPU_NOT_SUPPORTED", "DCGM does not support this GPU"),
    (-23, "GROUP_INCOMPATIBLE", "the group's GPUs do not fit together"),
    (-24, "MAX_LIMIT", "the engine has no room for more groups"),
    (-25, "LIBRARY_NOT_FOUND", "a library is missing"),
    (-26, "DUPLICATE_KEY", "the name is taken"),
    (-27, "GPU_IN_SYNC_BOOST_GROUP", "the GPU is in a sync boost group"),
    (-28, "GPU_NOT_IN_SYNC_BOOST_GROUP", "the GPU is in no sync boost group"),
    (-29, "REQUIRES_ROOT", "the engine does not run as root"),
    (-30, "NVVS_ERROR", "the diagnostics failed"),
    (-31, "INSUFFICIENT_SIZE", "the caller's array is too small"),
    (-32, "FIELD_UNSUPPORTED_BY_API", "the field cannot be read this way"),
    (-33, "MODULE_NOT_LOADED", "a module of the engine is missing or failed"),
    (-34, "IN_USE", "it is in use"),
    (-35, "GROUP_IS_EMPTY", "the group is empty"),
    (-36, "PROFILING_NOT_SUPPORTED", "the GPU cannot be profiled"),
    (-37, "PROFILING_LIBRARY_ERROR", "the profiling library failed"),
    (-38, "PROFILING_MULTI_PASS", "these profiling fields cannot be measured at once"),
    (-39, "DIAG_ALREADY_RUNNING", "diagnostics already run"),
    (-40, "DIAG_BAD_JSON", "the diagnostics answered nonsense"),
    (-41, "DIAG_BAD_LAUNCH", "the diagnostics could not be started"),
    (-42, "DIAG_UNUSED", "unused"),
    (-43, "DIAG_THRESHOLD_EXCEEDED", "a threshold of the diagnostics was exceeded"),
    (-44, "INSUFFICIENT_DRIVER_VERSION", "the driver is too old"),
    (-45, "INSTANCE_NOT_FOUND", "the GPU instance does not exist (any more)"),
    (-46, "COMPUTE_INSTANCE_NOT_FOUND", "the compute instance does not exist (any more)"),
    (-47, "CHILD_NOT_KILLED", "a child process could not be ended"),
    (-48, "3RD_PARTY_LIBRARY_ERROR", "a library that the engine uses failed"),
    (-49, "INSUFFICIENT_RESOURCES", "not enough resources"),
    (-50, "PLUGIN_EXCEPTION", "a plugin of the diagnostics failed"),
    (-51, "NVVS_ISOLATE_ERROR", "the diagnostics failed to isolate themselves"),
    (-52, "NVVS_BINARY_NOT_FOUND", "the diagnostics are not installed"),
    (-53, "NVVS_KILLED", "the diagnostics were killed"),
    (-54, "PAUSED", "paused for diagnostics or for another profiler"),
    (-55, "ALREADY_INITIALIZED", "already initialized"),
    (-56, "NVML_NOT_LOADED", "there is no driver on this node"),
    (-57, "NVML_DRIVER_TIMEOUT", "the engine stopped calling the driver after a fatal fault"),
    (-58, "NVVS_NO_AVAILABLE_TEST", "there is no diagnostic for this"),
    (-67, "GPUS_DETACHED", "the engine has let go of the driver"),
];

#[expect(missing_docs, reason = "each is explained in the table above")]
impl ReturnCode {
    pub const OK: Self = Self(0);
    pub const BAD_PARAM: Self = Self(-1);
    pub const GENERIC_ERROR: Self = Self(-3);
    pub const NOT_CONFIGURED: Self = Self(-5);
    pub const NOT_SUPPORTED: Self = Self(-6);
    pub const NVML_ERROR: Self = Self(-8);
    pub const UNINITIALIZED: Self = Self(-10);
    pub const TIMEOUT: Self = Self(-11);
    pub const VER_MISMATCH: Self = Self(-12);
    pub const UNKNOWN_FIELD: Self = Self(-13);
    pub const NO_DATA: Self = Self(-14);
    pub const STALE_DATA: Self = Self(-15);
    pub const NOT_WATCHED: Self = Self(-16);
    pub const NO_PERMISSION: Self = Self(-17);
    pub const GPU_IS_LOST: Self = Self(-18);
    pub const RESET_REQUIRED: Self = Self(-19);
    pub const FUNCTION_NOT_FOUND: Self = Self(-20);
    pub const CONNECTION_NOT_VALID: Self = Self(-21);
    pub const GPU_NOT_SUPPORTED: Self = Self(-22);
    pub const MAX_LIMIT: Self = Self(-24);
    pub const DUPLICATE_KEY: Self = Self(-26);
    pub const REQUIRES_ROOT: Self = Self(-29);
    pub const INSUFFICIENT_SIZE: Self = Self(-31);
    pub const MODULE_NOT_LOADED: Self = Self(-33);
    pub const GROUP_IS_EMPTY: Self = Self(-35);
    pub const PROFILING_NOT_SUPPORTED: Self = Self(-36);
    pub const PROFILING_LIBRARY_ERROR: Self = Self(-37);
    pub const PROFILING_MULTI_PASS: Self = Self(-38);
    pub const INSUFFICIENT_DRIVER_VERSION: Self = Self(-44);
    pub const INSTANCE_NOT_FOUND: Self = Self(-45);
    pub const COMPUTE_INSTANCE_NOT_FOUND: Self = Self(-46);
    pub const PAUSED: Self = Self(-54);
    pub const NVML_NOT_LOADED: Self = Self(-56);
    pub const NVML_DRIVER_TIMEOUT: Self = Self(-57);
    pub const GPUS_DETACHED: Self = Self(-67);
}

impl ReturnCode {
    /// DCGM's name without `DCGM_ST_`, or `UNKNOWN`.
    pub fn name(self) -> &'static str {
        self.row().map_or("UNKNOWN", |(_, name, _)| name)
    }

    /// What it means, in a few words.
    pub fn meaning(self) -> &'static str {
        self.row().map_or("a code that only a newer libdcgm knows", |(.., meaning)| meaning)
    }

    fn row(self) -> Option<&'static (i32, &'static str, &'static str)> {
        CODES.iter().find(|(code, ..)| *code == self.0)
    }
}

impl fmt::Display for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.0, self.meaning())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names_and_meanings() {
        let names = [
            (ReturnCode::OK, "OK"),
            (ReturnCode::BAD_PARAM, "BADPARAM"),
            (ReturnCode::FUNCTION_NOT_FOUND, "FUNCTION_NOT_FOUND"),
            (ReturnCode::CONNECTION_NOT_VALID, "CONNECTION_NOT_VALID"),
            (ReturnCode::NVML_DRIVER_TIMEOUT, "NVML_DRIVER_TIMEOUT"),
            (ReturnCode::GPUS_DETACHED, "GPUS_DETACHED"),
            (ReturnCode(-2), "UNKNOWN"),
            (ReturnCode(-99), "UNKNOWN"),
            (ReturnCode(i32::MIN), "UNKNOWN"),
        ];
        for (code, name) in names {
            assert_eq!(code.name(), name);
            assert!(!code.meaning().is_empty());
        }
        let text = ReturnCode::PAUSED.to_string();
        assert_eq!(text, "PAUSED (-54): paused for diagnostics or for another profiler");
    }

    #[test]
    fn numbers_fall_without_gaps_up_to_the_last_public_one() {
        let expected = std::iter::once(0).chain([-1]).chain((3..=58).map(|n| -n)).chain([-67]);
        assert!(CODES.iter().map(|(code, ..)| *code).eq(expected));
    }
}
