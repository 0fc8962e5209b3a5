//! See `bannerwall::testing::fuzzing::capture`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::capture(data));
