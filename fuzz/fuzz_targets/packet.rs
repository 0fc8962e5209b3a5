//! See `bannerwall::fuzzing::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::packet(data));
