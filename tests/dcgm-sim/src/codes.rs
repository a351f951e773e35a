//! DCGM's return codes, and their texts.
//!
//! In: a code. Out: a text of our own, for `errorString`. What can go wrong: an unknown code has none.

use std::ffi::CStr;

pub(crate) const OK: i32 = 0;
pub(crate) const BAD_PARAM: i32 = -1;
pub(crate) const NOT_CONFIGURED: i32 = -5;
pub(crate) const NOT_SUPPORTED: i32 = -6;
pub(crate) const UNINITIALIZED: i32 = -10;
pub(crate) const TIMEOUT: i32 = -11;
pub(crate) const VER_MISMATCH: i32 = -12;
pub(crate) const NO_DATA: i32 = -14;
pub(crate) const NOT_WATCHED: i32 = -16;
pub(crate) const GPU_IS_LOST: i32 = -18;
pub(crate) const FUNCTION_NOT_FOUND: i32 = -20;
pub(crate) const CONNECTION_NOT_VALID: i32 = -21;
pub(crate) const MAX_LIMIT: i32 = -24;
pub(crate) const DUPLICATE_KEY: i32 = -26;
pub(crate) const INSUFFICIENT_SIZE: i32 = -31;
pub(crate) const MODULE_NOT_LOADED: i32 = -33;
pub(crate) const GROUP_IS_EMPTY: i32 = -35;
pub(crate) const PROFILING_NOT_SUPPORTED: i32 = -36;
pub(crate) const GENERIC_ERROR: i32 = -3;

const TEXTS: &[(i32, &CStr)] = &[
    (0, c"Success"),
    (-1, c"Bad parameter passed to function"),
    (-3, c"Generic unspecified error"),
    (-4, c"Out of memory"),
    (-5, c"Setting not configured"),
    (-6, c"Feature not supported"),
    (-7, c"DCGM initialization error"),
    (-8, c"NVML error"),
    (-9, c"Object is in a pending state"),
    (-10, c"Object is in an undefined state"),
    (-11, c"Timeout"),
    (-12, c"API version mismatch"),
    (-13, c"Unknown field identifier"),
    (-14, c"No data"),
    (-15, c"Only old data"),
    (-16, c"Field is not being updated"),
    (-17, c"No permission"),
    (-18, c"GPU is lost"),
    (-19, c"GPU requires a reset"),
    (-20, c"Unable to find function"),
    (-21, c"Connection to the host engine is not valid"),
    (-22, c"GPU is not supported"),
    (-23, c"GPUs of the group are not compatible"),
    (-24, c"Limit reached"),
    (-25, c"Library not found"),
    (-26, c"Duplicate key"),
    (-29, c"Requires root"),
    (-31, c"Insufficient size"),
    (-32, c"Field unsupported by API"),
    (-33, c"Module not loaded"),
    (-34, c"In use"),
    (-35, c"Group is empty"),
    (-36, c"Profiling is not supported"),
    (-37, c"Profiling library error"),
    (-38, c"Profiling metrics need several passes"),
    (-44, c"Insufficient driver version"),
    (-45, c"Instance not found"),
    (-46, c"Compute instance not found"),
    (-48, c"Error in a third-party library"),
    (-49, c"Insufficient resources"),
    (-54, c"Paused"),
    (-56, c"NVML is not loaded"),
    (-57, c"NVML driver timeout"),
    (-67, c"GPUs are detached"),
];

/// Text of a code.
pub(crate) fn text(code: i32) -> Option<&'static CStr> {
    let known = TEXTS.iter().find(|(of, _)| *of == code).map(|(_, text)| *text);
    known.or_else(|| ((-67..=0).contains(&code) && code != -2).then_some(c"Unnamed error"))
}
