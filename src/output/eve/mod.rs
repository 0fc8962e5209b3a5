//! JSON lines in the names and the order of Suricata's EVE, so that what reads EVE reads these.
//!
//! What EVE has no name for stands under `bannerwall`; [`EveOptions::strict`] leaves that out, and
//! then every line holds to Suricata's `etc/schema.json`.

mod application;
mod community;
mod greeting;
mod own;
mod record;
mod stats;

use std::io;

use crate::event::Event;

use super::Format;

/// How EVE lines are written.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveOptions {
    /// Leave out everything that EVE has no name for.
    pub strict: bool,
}

/// Writes one event as one line.
///
/// # Errors
/// None so far: every event can be spelled in JSON.
pub fn write(event: &Event, options: &EveOptions, out: &mut Vec<u8>) -> io::Result<()> {
    sonic_rs::to_writer(&mut *out, &record::Record::new(event, options.strict))?;
    out.push(b'\n');
    Ok(())
}

/// EVE lines as a [`Format`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Eve(pub EveOptions);

impl Format for Eve {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        write(event, &self.0, out)
    }
}

#[cfg(test)]
mod tests;
