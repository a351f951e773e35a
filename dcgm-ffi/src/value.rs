//! DCGM's ways of saying "there is no value" → [`Absent`].
//!
//! In: raw values as libdcgm delivers them. Out: the value, or the reason why there is none. The sentinels
//! never leave this crate. What can go wrong: a counter may truly reach a sentinel's range only as a
//! floating-point number, and DCGM delivers counters as integers; so the test by range is safe.

use crate::return_code::ReturnCode;

/// Why a field has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Absent {
    /// Not sampled yet, or the reading failed.
    Blank,
    /// The entity or the field does not exist.
    NotFound,
    /// This device cannot give it.
    NotSupported,
    /// This caller may not have it.
    NotPermitted,
    /// Watched, but nothing was sampled yet. Normal for an XID until the first one.
    NoData,
    /// The watch is gone.
    NotWatched,
    /// The engine lacks the module that measures it.
    ModuleMissing,
    /// The GPU has fallen off the bus.
    GpuLost,
    /// Paused for diagnostics or another profiler.
    Paused,
    /// The driver did not answer in time, or the engine stopped asking it.
    Timeout,
    /// There is no driver, or the engine has let go of it.
    NoDriver,
    /// Any other status.
    Status(ReturnCode),
}

impl Absent {
    /// The reason that a value's status carries. None: the status is good, which does not say that there is a
    /// value: sentinels usually arrive with a good status.
    pub fn of_status(status: ReturnCode) -> Option<Self> {
        match status {
            ReturnCode::OK => None,
            ReturnCode::NOT_SUPPORTED
            | ReturnCode::GPU_NOT_SUPPORTED
            | ReturnCode::PROFILING_NOT_SUPPORTED => Some(Self::NotSupported),
            ReturnCode::NO_DATA | ReturnCode::STALE_DATA => Some(Self::NoData),
            ReturnCode::NOT_WATCHED => Some(Self::NotWatched),
            ReturnCode::NO_PERMISSION | ReturnCode::REQUIRES_ROOT => Some(Self::NotPermitted),
            ReturnCode::GPU_IS_LOST => Some(Self::GpuLost),
            ReturnCode::MODULE_NOT_LOADED => Some(Self::ModuleMissing),
            ReturnCode::PAUSED => Some(Self::Paused),
            ReturnCode::TIMEOUT | ReturnCode::NVML_DRIVER_TIMEOUT => Some(Self::Timeout),
            ReturnCode::NVML_NOT_LOADED | ReturnCode::GPUS_DETACHED => Some(Self::NoDriver),
            ReturnCode::INSTANCE_NOT_FOUND
            | ReturnCode::COMPUTE_INSTANCE_NOT_FOUND
            | ReturnCode::UNKNOWN_FIELD => Some(Self::NotFound),
            other => Some(Self::Status(other)),
        }
    }
}

/// Base of the 32-bit sentinels; base + 1, 2, 3 carry a reason. Source: `dcgm_structs.h`, `DCGM_INT32_BLANK`.
const BLANK_I32: i32 = 0x7fff_fff0;
/// The same for 64 bits, `DCGM_INT64_BLANK`.
const BLANK_I64: i64 = 0x7fff_ffff_ffff_fff0;
/// The same for floating point, `DCGM_FP64_BLANK`: 2^47.
const BLANK_F64: f64 = 140_737_488_355_328.0;

/// A 64-bit integer field's value.
///
/// # Errors
/// The reason, for a sentinel.
pub fn present_i64(value: i64) -> Result<i64, Absent> {
    reason(value.checked_sub(BLANK_I64)).map_or(Ok(value), Err)
}

/// A 32-bit integer member's value, as in device attributes.
///
/// # Errors
/// The reason, for a sentinel.
pub fn present_i32(value: i32) -> Result<i32, Absent> {
    reason(value.checked_sub(BLANK_I32).map(i64::from)).map_or(Ok(value), Err)
}

/// A floating-point field's value. Not a number is no value either.
///
/// # Errors
/// The reason, for a sentinel.
pub fn present_f64(value: f64) -> Result<f64, Absent> {
    if value.is_nan() {
        return Err(Absent::Blank);
    }
    // The sentinels are whole numbers far below 2^53, so their distances are exact.
    let distance = (BLANK_F64 <= value).then_some((value - BLANK_F64) as i64);
    reason(distance).map_or(Ok(value), Err)
}

/// A text field's value.
///
/// # Errors
/// The reason, for a sentinel.
pub fn present_str(value: &str) -> Result<&str, Absent> {
    match value {
        "<<<NULL>>>" => Err(Absent::Blank),
        "<<<NOT_FOUND>>>" => Err(Absent::NotFound),
        "<<<NOT_SUPPORTED>>>" => Err(Absent::NotSupported),
        "<<<NOT_PERM>>>" => Err(Absent::NotPermitted),
        other if other.starts_with("<<<") && other.contains(">>>") => Err(Absent::Blank),
        text => Ok(text),
    }
}

/// The reason at a distance from the base; everything above the known ones is blank too.
fn reason(distance: Option<i64>) -> Option<Absent> {
    match distance? {
        i64::MIN..=-1 => None,
        1 => Some(Absent::NotFound),
        2 => Some(Absent::NotSupported),
        3 => Some(Absent::NotPermitted),
        _ => Some(Absent::Blank),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASONS: [(i64, Absent); 5] = [
        (0, Absent::Blank),
        (1, Absent::NotFound),
        (2, Absent::NotSupported),
        (3, Absent::NotPermitted),
        (4, Absent::Blank),
    ];

    #[test]
    fn each_sentinel_has_its_reason_in_every_width() {
        for (distance, want) in REASONS {
            assert_eq!(present_i64(BLANK_I64 + distance), Err(want), "i64 + {distance}");
            assert_eq!(
                present_i32(BLANK_I32 + i32::try_from(distance).unwrap()),
                Err(want),
                "i32 + {distance}"
            );
            assert_eq!(present_f64(BLANK_F64 + distance as f64), Err(want), "f64 + {distance}");
        }
    }

    #[test]
    fn values_next_to_the_sentinels_are_values() {
        for value in [0, -1, i64::MIN, BLANK_I64 - 1] {
            assert_eq!(present_i64(value), Ok(value));
        }
        for value in [0, -1, i32::MIN, BLANK_I32 - 1] {
            assert_eq!(present_i32(value), Ok(value));
        }
        for value in [0.0, -1.5, f64::NEG_INFINITY, BLANK_F64 - 1.0] {
            assert_eq!(present_f64(value), Ok(value));
        }
    }

    #[test]
    fn what_is_no_number_is_no_value() {
        assert_eq!(present_f64(f64::NAN), Err(Absent::Blank));
        assert_eq!(present_f64(f64::INFINITY), Err(Absent::Blank));
        assert_eq!(present_i64(i64::MAX), Err(Absent::Blank));
    }

    #[test]
    fn a_status_is_a_reason() {
        let cases = [
            (0, None),
            (-1, Some(Absent::Status(ReturnCode::BAD_PARAM))),
            (-6, Some(Absent::NotSupported)),
            (-14, Some(Absent::NoData)),
            (-16, Some(Absent::NotWatched)),
            (-17, Some(Absent::NotPermitted)),
            (-18, Some(Absent::GpuLost)),
            (-33, Some(Absent::ModuleMissing)),
            (-46, Some(Absent::NotFound)),
            (-54, Some(Absent::Paused)),
            (-57, Some(Absent::Timeout)),
            (-67, Some(Absent::NoDriver)),
            (-99, Some(Absent::Status(ReturnCode(-99)))),
        ];
        for (status, want) in cases {
            assert_eq!(Absent::of_status(ReturnCode(status)), want, "{status}");
        }
    }

    #[test]
    fn texts_have_sentinels_too() {
        assert_eq!(present_str("<<<NOT_SUPPORTED>>>"), Err(Absent::NotSupported));
        assert_eq!(present_str("<<<NULL>>>"), Err(Absent::Blank));
        assert_eq!(present_str("<<<A_LATER_ONE>>>"), Err(Absent::Blank));
        assert_eq!(present_str("NVIDIA H100"), Ok("NVIDIA H100"));
        assert_eq!(present_str(""), Ok(""));
    }
}
