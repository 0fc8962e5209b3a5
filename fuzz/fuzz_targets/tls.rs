//! See `bannerwall::testing::fuzzing::tls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::tls(data));
