//! Runs capture files through the engine: `replay` reports what the guard would have reported.
//!
//! This module opens files; the engine does the rest. Events carry the capture's times and packet numbers.
//! Memory is bounded for files of any size.

pub mod capture;
pub mod input;
mod run;
mod session;
mod stream_window;

pub use run::{CaptureReplay, ReplayConfig};
pub use session::{ReplayObserver, ReplaySession};
