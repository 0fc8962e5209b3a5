//! Events out: how each format spells them, and the one thread that writes them.
//!
//! A format turns an [`Event`] into bytes and knows nothing of files or threads; [`writer`] owns the
//! destination and knows nothing of formats. Nothing here decides what is worth reporting.

mod channel;
pub mod consumer;
pub mod csv;
pub mod eve;
mod finding;
pub mod grepable;
mod identity;
pub mod learn;
#[cfg(test)]
mod samples;
mod sink;
pub mod table;
pub mod text;
mod text_safe;
mod time;
pub mod writer;
pub mod xml;

use std::io;

use crate::event::Event;

pub use channel::Overflow;
pub use consumer::Consumer;
pub use sink::create;
pub use text_safe::{Escaped, escape};
pub use writer::{Destination, Handle, Report, Writer, WriterConfig};

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

    /// Events that belong together: all that was found out about one target.
    ///
    /// # Errors
    /// Only what `out` itself gives.
    fn group(&mut self, events: &[Event], out: &mut Vec<u8>) -> io::Result<()> {
        events.iter().try_for_each(|event| self.event(event, out))
    }

    /// What was held back, in parts: called when no event will come any more, until it says that there is
    /// no more. What it gives is written before the next part is asked for.
    ///
    /// # Errors
    /// What was held back cannot be had.
    fn rest(&mut self, _out: &mut Vec<u8>) -> io::Result<bool> {
        Ok(false)
    }

    /// What stands behind the last event.
    ///
    /// # Errors
    /// Only what `out` itself gives.
    fn end(&mut self, _out: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }
}

/// A format that goes on where an earlier run stopped, so that the file has but one beginning.
pub struct Continued<F>(pub F);

impl<F: Format> Format for Continued<F> {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        self.0.event(event, out)
    }

    fn group(&mut self, events: &[Event], out: &mut Vec<u8>) -> io::Result<()> {
        self.0.group(events, out)
    }

    fn rest(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        self.0.rest(out)
    }

    fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.0.end(out)
    }
}

impl<F: Format + ?Sized> Format for Box<F> {
    fn begin(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        (**self).begin(out)
    }

    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        (**self).event(event, out)
    }

    fn group(&mut self, events: &[Event], out: &mut Vec<u8>) -> io::Result<()> {
        (**self).group(events, out)
    }

    fn rest(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        (**self).rest(out)
    }

    fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        (**self).end(out)
    }
}
