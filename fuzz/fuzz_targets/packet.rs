//! See `bannerwall::testing::fuzzing::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::packet(data));
