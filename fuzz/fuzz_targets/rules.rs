//! See `bannerwall::fuzzing::rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::rules(data));
