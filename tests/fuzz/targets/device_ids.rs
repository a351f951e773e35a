//! Fuzz target `device_ids`: see [`warpgauge_fuzz::device_ids`].
//!
//! In: bytes of libFuzzer, or files. Out: a finding, or nothing. What can go wrong: what it looks for.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| warpgauge_fuzz::device_ids(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    warpgauge_fuzz::over_files(warpgauge_fuzz::device_ids)
}
