//! See `bannerwall::fuzzing::engine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::engine(data));
