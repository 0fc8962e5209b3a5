//! Output of events: the formats, and the thread that writes.
//!
//! A format turns an [`Event`] into bytes and knows no files or threads. [`writer`] owns the destination
//! and knows no formats. Neither decides what is worth reporting.

mod alert_totals;
mod blocked_flows;
mod channel;
pub mod consumer;
pub mod csv;
pub mod eve;
pub mod evidence;
pub mod grepable;
pub mod learned_policies;
#[cfg(test)]
mod sample_events;
mod service_identity;
mod sink;
pub mod table;
mod target_report;
pub mod text;
mod text_escape;
mod time;
pub mod writer;
pub mod xml;

use std::io;

use crate::event::{Event, EventKind};

pub use alert_totals::AlertTotals;
pub use channel::OverflowPolicy;
pub use consumer::EventConsumer;
pub use sink::create;
pub use text_escape::{EscapedText, escape};
pub use writer::{ChannelHandle, OutputCopy, OutputDestination, OutputWriter, WriteReport, WriterConfig};

/// Writes events into a buffer, one after the other.
///
/// A format may keep state between events (a header was written, an element is open).
pub trait OutputFormat: Send {
    /// Writes the text before the first event.
    ///
    /// # Errors
    /// Only errors of `out` itself.
    fn begin(&mut self, _out: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }

    /// Writes one event.
    ///
    /// # Errors
    /// Only errors of `out` itself.
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()>;

    /// Writes events that belong together: all results for one target.
    ///
    /// # Errors
    /// Only errors of `out` itself.
    fn group(&mut self, events: &[Event], out: &mut Vec<u8>) -> io::Result<()> {
        events.iter().try_for_each(|event| self.event(event, out))
    }

    /// Writes a part of the events that were held back. The caller calls it after the last event until it
    /// returns false, and writes each part before it requests the next one.
    ///
    /// # Errors
    /// The held back events cannot be read.
    fn rest(&mut self, _out: &mut Vec<u8>) -> io::Result<bool> {
        Ok(false)
    }

    /// Writes the text after the last event.
    ///
    /// # Errors
    /// Only errors of `out` itself.
    fn end(&mut self, _out: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }
}

/// A format that continues the file of an earlier run, so that the file has only one header.
pub struct ContinuedFormat<F>(pub F);

impl<F: OutputFormat> OutputFormat for ContinuedFormat<F> {
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

/// A format without the `connect` events of targets that have other events, which say more.
pub struct WithoutBareConnects<F>(pub F);

impl<F: OutputFormat> OutputFormat for WithoutBareConnects<F> {
    fn begin(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.0.begin(out)
    }

    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        self.0.event(event, out)
    }

    fn group(&mut self, events: &[Event], out: &mut Vec<u8>) -> io::Result<()> {
        match events {
            [Event { kind: EventKind::Connect(_), .. }, others @ ..] if !others.is_empty() => {
                self.0.group(others, out)
            }
            _ => self.0.group(events, out),
        }
    }

    fn rest(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        self.0.rest(out)
    }

    fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.0.end(out)
    }
}

impl<F: OutputFormat + ?Sized> OutputFormat for Box<F> {
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
