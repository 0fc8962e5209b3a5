//! See `bannerwall::workbench::fuzzing::framing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::framing(data));
