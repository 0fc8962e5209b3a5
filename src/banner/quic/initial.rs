//! The keys of Initials, RFC 9001 section 5.2 and RFC 9369 section 3.3: rustls makes and uses them.

use std::fmt;
use std::ops::Range;

use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{DirectionalKeys, Keys, Version};
use rustls::{Side, SupportedCipherSuite};

use super::{ConnectionId, LongPacket};
use crate::terms::QuicVersion;

/// Octets of the longest packet number, behind which the sample for header protection begins.
const NUMBER_LIMIT: usize = 4;

/// What Initials of one end are opened with.
pub struct InitialKeys {
    version: QuicVersion,
    keys: DirectionalKeys,
}

impl InitialKeys {
    /// The keys that follow from the destination connection ID of a client's first Initial, or of its first
    /// behind a Retry; none for a version that is not read.
    pub fn new(version: QuicVersion, first_destination: &ConnectionId) -> Option<Self> {
        let keys = keys(version, first_destination, Side::Server)?;
        Some(Self { version, keys: keys.remote })
    }

    /// Those of the server's Initials, by what the client's first one was addressed to.
    pub fn of_server(version: QuicVersion, first_destination: &ConnectionId) -> Option<Self> {
        let keys = keys(version, first_destination, Side::Client)?;
        Some(Self { version, keys: keys.remote })
    }

    /// The version that they are of.
    pub const fn version(&self) -> QuicVersion {
        self.version
    }

    /// The number of a packet, and where in `room` its frames were put; none where it was not encrypted with
    /// these keys. `expected` is the number behind the highest that was seen.
    pub fn open(
        &self,
        packet: &LongPacket<'_>,
        expected: u64,
        room: &mut Vec<u8>,
    ) -> Option<(u64, Range<usize>)> {
        room.clear();
        room.extend_from_slice(packet.octets);
        let (header, rest) = room.split_at_mut_checked(packet.number_at)?;
        let (number, behind) = rest.split_at_mut_checked(NUMBER_LIMIT)?;
        let sample = behind.get(..self.keys.header.sample_len())?;
        let first = header.first_mut()?;
        self.keys.header.decrypt_in_place(sample, first, number).ok()?;
        let length = usize::from(*first & 3) + 1;
        let truncated = number.get(..length)?.iter().fold(0, |value, octet| value << 8 | u64::from(*octet));
        let number = whole_number(truncated, length, expected);
        let (header, payload) = room.split_at_mut_checked(packet.number_at + length)?;
        let payload = self.keys.packet.decrypt_in_place(number, header, payload).ok()?;
        Some((number, header.len()..header.len() + payload.len()))
    }
}

impl fmt::Debug for InitialKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("InitialKeys").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The keys of both directions, for an end of the connection.
pub(super) fn keys(version: QuicVersion, first_destination: &ConnectionId, side: Side) -> Option<Keys> {
    let version = match (version, version.draft()) {
        (QuicVersion::V1, _) | (_, Some(33 | 34)) => Version::V1,
        (QuicVersion::V2, _) => Version::V2,
        (_, Some(29..=32)) => Version::V1Draft,
        _ => return None,
    };
    let SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else { return None };
    Some(suite.quic_suite()?.keys(first_destination.octets(), side, version))
}

/// The packet number whose lowest octets these are, next to the `expected` one: RFC 9000 appendix A.3.
const fn whole_number(truncated: u64, octets: usize, expected: u64) -> u64 {
    let window = 1_u64 << (8 * octets);
    let candidate = expected & !(window - 1) | truncated;
    if candidate + window / 2 <= expected && candidate + window < 1 << 62 {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 9000 appendix A.3, and numbers around the turn of an octet.
    #[test]
    fn packet_numbers_are_those_next_to_the_expected_one() {
        assert_eq!(whole_number(0x9b32, 2, 0xa82f_30ea + 1), 0xa82f_9b32);
        assert_eq!(whole_number(2, 1, 0), 2);
        assert_eq!(whole_number(0xff, 1, 0), 0xff);
        assert_eq!(whole_number(1, 1, 0xff), 0x101);
        assert_eq!(whole_number(0xfe, 1, 0x101), 0xfe);
    }
}
