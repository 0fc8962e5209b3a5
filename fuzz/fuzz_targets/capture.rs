//! See `bannerwall::fuzzing::capture`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::capture(data));
