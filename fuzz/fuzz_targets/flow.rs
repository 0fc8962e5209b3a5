//! See `bannerwall::testing::fuzzing::flow`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::flow(data));
