//! See `bannerwall::testing::fuzzing::quic`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::quic(data));
