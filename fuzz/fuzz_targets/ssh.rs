//! See `bannerwall::testing::fuzzing::ssh`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::ssh(data));
