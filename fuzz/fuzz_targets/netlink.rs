//! See `bannerwall::workbench::fuzzing::netlink`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::workbench::fuzzing::netlink(data));
