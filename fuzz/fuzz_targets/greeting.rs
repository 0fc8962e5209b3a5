//! See `bannerwall::fuzzing::greeting`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::greeting(data));
