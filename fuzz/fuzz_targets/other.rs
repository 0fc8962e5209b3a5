//! See `bannerwall::workbench::fuzzing::other`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::other(data));
