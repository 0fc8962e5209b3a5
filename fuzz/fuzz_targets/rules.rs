//! See `bannerwall::workbench::fuzzing::rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::rules(data));
