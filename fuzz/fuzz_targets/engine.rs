//! See `bannerwall::workbench::fuzzing::engine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::engine(data));
