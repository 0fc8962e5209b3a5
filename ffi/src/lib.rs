//! Every `unsafe` line of bannerwall, behind types that cannot be misused.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod ring;
