//! See `bannerwall::testing::fuzzing::engine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::engine(data));
