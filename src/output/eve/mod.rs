//! JSON lines in the names and the order of Suricata's EVE, so that what reads EVE reads these.
//!
//! What EVE has no name for stands under `bannerwall`; [`EveOptions::strict`] leaves that out, and
//! then every line holds to Suricata's `etc/schema.json`.

mod application;
mod community;
mod flow;
mod greeting;
mod handshake;
mod own;
mod quic;
mod record;
mod stats;
mod tls;

use std::io;

use crate::event::Event;

use super::Format;

/// How EVE lines are written.
#[derive(Debug, Clone, Copy)]
pub struct EveOptions {
    /// Leave out everything that EVE has no name for.
    pub strict: bool,
    /// Write the lists of header fields, in `http` events.
    pub headers: bool,
}

impl Default for EveOptions {
    fn default() -> Self {
        Self { strict: false, headers: true }
    }
}

/// Writes one event as one line.
///
/// # Errors
/// None so far: every event can be spelled in JSON.
pub fn write(event: &Event, options: &EveOptions, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    sonic_rs::to_writer(&mut *out, &record::Record::new(event, options))?;
    escape_c1(out, start);
    out.push(b'\n');
    Ok(())
}

/// Escapes U+0080 to U+009F from `start` on: JSON allows them raw, and a terminal takes some for commands.
fn escape_c1(out: &mut Vec<u8>, start: usize) {
    let is_c1 = |pair: &[u8]| matches!(pair, [0xc2, 0x80..=0x9f]);
    let line = out.get(start..).unwrap_or_default();
    // Nearly no line has any byte like the first one.
    if memchr::memchr(0xc2, line).is_none() || !line.windows(2).any(is_c1) {
        return;
    }
    let line = out.split_off(start);
    let mut rest = line.as_slice();
    while let Some((first, behind)) = rest.split_first() {
        match rest.get(..2) {
            Some(pair) if is_c1(pair) => {
                out.extend_from_slice(format!("\\u00{:02x}", pair[1]).as_bytes());
                rest = rest.get(2..).unwrap_or_default();
            }
            _ => {
                out.push(*first);
                rest = behind;
            }
        }
    }
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
