//! See `bannerwall::testing::fuzzing::other`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::other(data));
