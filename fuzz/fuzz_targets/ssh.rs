//! See `bannerwall::fuzzing::ssh`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::ssh(data));
