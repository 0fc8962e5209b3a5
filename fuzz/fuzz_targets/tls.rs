//! See `bannerwall::workbench::fuzzing::tls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::tls(data));
