//! The `bannerwall` program.
#![forbid(unsafe_code)]

fn main() {}
