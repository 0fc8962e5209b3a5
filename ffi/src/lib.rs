#![doc = include_str!("../README.md")]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod datagrams;
pub mod descriptors;
pub mod error;
pub mod frames;
mod message;
pub mod namespace;
pub mod process;
pub mod queue;
pub mod stamps;
mod sys;
pub mod tun;
