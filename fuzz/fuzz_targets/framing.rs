//! See `bannerwall::fuzzing::framing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::framing(data));
