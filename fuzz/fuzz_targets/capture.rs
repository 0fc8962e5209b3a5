//! See `bannerwall::workbench::fuzzing::capture`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::capture(data));
