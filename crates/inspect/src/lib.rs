#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(clippy::missing_docs_in_private_items)]

pub mod banner;
pub mod engine;
pub mod event;
pub mod flow;
pub mod inspector;
pub mod packet;
pub mod rules;
pub mod terms;
