//! See `bannerwall::workbench::fuzzing::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::packet(data));
