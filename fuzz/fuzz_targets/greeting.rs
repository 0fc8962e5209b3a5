//! See `bannerwall::testing::fuzzing::greeting`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::greeting(data));
