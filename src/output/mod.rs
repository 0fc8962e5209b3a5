//! Events out: how each format spells them, and the one thread that writes them.
//!
//! A format turns an [`Event`] into bytes and knows nothing of files or threads; [`writer`] owns the
//! destination and knows nothing of formats. Nothing here decides what is worth reporting.

pub mod csv;
pub mod eve;
pub mod text;
mod text_safe;
mod time;
pub mod writer;

use std::io;

use crate::event::Event;

pub use text_safe::{Escaped, escape};
pub use writer::{Destination, Handle, Overflow, Report, Writer, WriterConfig};

/// Spells events, one after the other, into a buffer.
///
/// A format may keep state between events (a header already written, an element still open).
pub trait Format: Send {
    /// What stands before the first event.
    ///
    /// # Errors
    /// Only what `out` itself gives.
    fn begin(&mut self, _out: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }

    /// One event.
    ///
    /// # Errors
    /// Only what `out` itself gives.
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()>;

    /// What stands behind the last event.
    ///
    /// # Errors
    /// Only what `out` itself gives.
    fn end(&mut self, _out: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }
}
