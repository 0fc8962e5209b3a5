//! See `bannerwall::testing::fuzzing::certificate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::certificate(data));
