//! See `bannerwall::workbench::fuzzing::quic`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::quic(data));
