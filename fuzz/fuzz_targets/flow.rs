//! See `bannerwall::workbench::fuzzing::flow`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::flow(data));
