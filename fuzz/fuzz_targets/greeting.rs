//! See `bannerwall::workbench::fuzzing::greeting`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::greeting(data));
