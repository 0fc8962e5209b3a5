#![doc = include_str!("../README.md")]
#![deny(unsafe_op_in_unsafe_fn)]

mod control_message;
pub mod descriptors;
pub mod error;
pub mod namespace;
pub mod packet_socket;
pub mod process;
pub mod queue;
pub mod socket_timestamps;
mod sys;
pub mod tun;
pub mod udp_segmentation;
