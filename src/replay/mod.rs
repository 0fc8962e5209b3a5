//! Capture files through the engine: `replay` says what the guard would have said.
//!
//! This room opens files; the engine does the rest. Events carry the capture's
//! times and packet numbers. Memory is bounded whatever the file's size.

pub mod capture;
pub mod input;
mod run;
mod session;
mod window;

pub use run::{Replay, ReplayConfig};
pub use session::{Onlooker, Session};
