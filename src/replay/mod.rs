//! Capture files as a source of packets for the engine.

pub mod capture;
pub mod input;
pub mod link;
pub mod tunnel;
mod window;
