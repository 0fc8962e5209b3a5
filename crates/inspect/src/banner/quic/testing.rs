//! Builder of a client's Initials for tests and fuzzing; the program does not use it.

use super::ConnectionId;
use super::initial_keys::{InitialKeys, NUMBER_LIMIT, SAMPLE_LENGTH};
use crate::terms::{QuicVersion, Side};

/// Parts of an Initial; every field may be set to a value that no honest client would send.
#[derive(Debug, Clone)]
pub struct InitialBuilder {
    /// Its version.
    pub version: QuicVersion,
    /// The connection ID from which its keys are derived.
    pub keyed_by: Vec<u8>,
    /// Its destination connection ID.
    pub destination: Vec<u8>,
    /// Its source connection ID.
    pub source: Vec<u8>,
    /// Its token.
    pub token: Vec<u8>,
    /// Its number.
    pub number: u32,
    /// Its frames.
    pub payload: Vec<u8>,
    /// The side that sends it.
    pub side: Side,
}

impl InitialBuilder {
    /// Returns a client's first Initial to a connection ID.
    pub fn new(destination: &[u8]) -> Self {
        Self {
            version: QuicVersion::V1,
            keyed_by: destination.to_vec(),
            destination: destination.to_vec(),
            source: b"client".to_vec(),
            token: Vec::new(),
            number: 0,
            payload: Vec::new(),
            side: Side::Client,
        }
    }

    /// Adds a CRYPTO frame.
    #[must_use]
    pub fn crypto(mut self, offset: usize, octets: &[u8]) -> Self {
        self.payload.push(6);
        self.payload.extend(varint(offset));
        self.payload.extend(varint(octets.len()));
        self.payload.extend_from_slice(octets);
        self
    }

    /// Adds frames as they are.
    #[must_use]
    pub fn frames(mut self, frames: &[u8]) -> Self {
        self.payload.extend_from_slice(frames);
        self
    }

    /// Sets another packet number.
    #[must_use]
    pub fn number(mut self, number: u32) -> Self {
        self.number = number;
        self
    }

    /// Returns the packet as bytes, padded to the length of a client's first datagram.
    pub fn build(&self) -> Vec<u8> {
        self.padded_to(1200)
    }

    /// Returns the packet as bytes, padded to at least `least`.
    ///
    /// # Panics
    ///
    /// When the version is one that is not read, or a connection ID is too long.
    pub fn padded_to(&self, least: usize) -> Vec<u8> {
        let kind = if self.version == QuicVersion::V2 { 1 << 4 } else { 0 };
        let mut header = vec![0xc3 | kind];
        header.extend(self.version.0.to_be_bytes());
        for id in [&self.destination, &self.source] {
            header.push(u8::try_from(id.len()).expect("a short connection ID"));
            header.extend(id);
        }
        header.extend(varint(self.token.len()));
        header.extend(&self.token);
        let mut payload = self.payload.clone();
        let others = header.len() + 2 + 4 + 16;
        payload.resize(payload.len().max(least.saturating_sub(others)).max(4), 0);
        let length = u16::try_from(4 + payload.len() + 16).expect("a short packet") | 0x4000;
        header.extend(length.to_be_bytes());
        let number_at = header.len();
        header.extend(self.number.to_be_bytes());
        let first = ConnectionId::new(&self.keyed_by).expect("a connection ID");
        let keys = match self.side {
            Side::Client => InitialKeys::new(self.version, &first),
            Side::Server => InitialKeys::of_server(self.version, &first),
        }
        .expect("a version that is read");
        keys.seal(self.number.into(), &header, &mut payload).expect("keys");
        let mut packet = [header, payload].concat();
        let sample_at = number_at + NUMBER_LIMIT;
        let [first, number @ ..] =
            keys.mask(&packet[sample_at..sample_at + SAMPLE_LENGTH]).expect("a sample");
        packet[0] ^= first & 0x0f;
        packet[number_at..sample_at].iter_mut().zip(number).for_each(|(byte, mask)| *byte ^= mask);
        packet
    }
}

/// Returns a `ClientHello` message for a name, of at least `least` bytes.
pub fn hello(name: &str, least: usize) -> Vec<u8> {
    let counted = |octets: &[u8]| [&u16::try_from(octets.len()).unwrap_or(0).to_be_bytes(), octets].concat();
    let extension = |kind: u16, content: &[u8]| [&kind.to_be_bytes()[..], &counted(content)].concat();
    let name = counted(&[&[0][..], &counted(name.as_bytes())].concat());
    let known = [
        extension(0, &name),
        extension(16, &counted(b"\x02h3")),
        extension(13, b"\x00\x04\x04\x03\x08\x04"),
        extension(43, b"\x02\x03\x04"),
        extension(57, b""),
    ]
    .concat();
    let padding = extension(21, &vec![0; least.saturating_sub(known.len() + 60)]);
    let extensions = counted(&[known, padding].concat());
    let body = [&[3, 3][..], &[7; 32], &[0], b"\x00\x04\x13\x01\x13\x02", b"\x01\x00", &extensions].concat();
    let length = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    [&[1][..], &length[1..], &body].concat()
}

/// Encodes a variable-length integer in four bytes, RFC 9000 section 16.
fn varint(value: usize) -> [u8; 4] {
    (u32::try_from(value).unwrap_or(0) | 0x8000_0000).to_be_bytes()
}
