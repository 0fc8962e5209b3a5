//! See `bannerwall::testing::fuzzing::framing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::framing(data));
