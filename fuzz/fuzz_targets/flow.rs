//! See `bannerwall::fuzzing::flow`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::flow(data));
