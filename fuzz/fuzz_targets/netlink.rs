//! See `bannerwall::fuzzing::netlink`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::fuzzing::netlink(data));
