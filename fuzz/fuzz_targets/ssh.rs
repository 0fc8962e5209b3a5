//! See `bannerwall::workbench::fuzzing::ssh`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::ssh(data));
