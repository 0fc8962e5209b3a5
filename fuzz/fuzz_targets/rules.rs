//! See `bannerwall::testing::fuzzing::rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::rules(data));
