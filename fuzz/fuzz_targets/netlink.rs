//! See `bannerwall::testing::fuzzing::netlink`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bannerwall::testing::fuzzing::netlink(data));
