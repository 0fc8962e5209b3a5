//! See `bannerwall::fuzzing::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::http(data));
