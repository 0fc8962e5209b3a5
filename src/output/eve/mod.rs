//! JSON lines with the names and the order of Suricata's EVE, so that readers of EVE can read them.
//!
//! Fields that EVE lacks are in `bannerwall`. [`EveOptions::strict`] omits that object; then every line
//! conforms to Suricata's `etc/schema.json`.

mod application;
mod bannerwall_fields;
mod community_id;
mod flow;
mod greeting;
mod quic;
mod record;
mod stats;
mod tls;
mod tls_extra;

use std::io;

use crate::event::Event;

use super::OutputFormat;

/// Options of EVE lines.
#[derive(Debug, Clone, Copy)]
pub struct EveOptions {
    /// True to omit all fields that EVE lacks.
    pub strict: bool,
    /// True to write the lists of header fields, in `http` events.
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
/// None at present: JSON can represent every event.
pub fn write(event: &Event, options: &EveOptions, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    sonic_rs::to_writer(&mut *out, &record::EveRecord::new(event, options))?;
    escape_c1(out, start);
    out.push(b'\n');
    Ok(())
}

/// Escapes U+0080 to U+009F from `start` on: JSON allows them raw, but a terminal takes some for
/// commands.
fn escape_c1(out: &mut Vec<u8>, start: usize) {
    let is_c1 = |pair: &[u8]| matches!(pair, [0xc2, 0x80..=0x9f]);
    let line = out.get(start..).unwrap_or_default();
    // Nearly no line contains such a first byte.
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

/// EVE lines as a [`OutputFormat`].
#[derive(Debug, Clone, Copy, Default)]
pub struct EveFormat(pub EveOptions);

impl OutputFormat for EveFormat {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        write(event, &self.0, out)
    }
}

#[cfg(test)]
mod tests;
