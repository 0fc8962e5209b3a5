//! See `bannerwall::workbench::fuzzing::certificate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::certificate(data));
